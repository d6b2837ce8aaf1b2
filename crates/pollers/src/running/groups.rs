//! The groups of a poller: the origins of its devices. Each has a delivery of its own.

use super::assignment::Assignment;
use super::group::Group;
use super::poller_error::PollerError;
use config::{PollerConfig, Spool};
use delivery::{Clock, DeliveryError, MachineClock, environment};
use model::{DeviceId, Origin};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

/// Devices with their shortest periods.
pub(super) type Devices = BTreeMap<DeviceId, Duration>;

/// The groups.
pub(super) struct Groups {
    config: PollerConfig,
    poller: DeviceId,
    /// The folder of the groups' spools; `None` for none.
    folder: Option<PathBuf>,
    clock: Arc<dyn Clock>,
    list: RwLock<Vec<Mutex<Group>>>,
}

impl Groups {
    /// Starts the groups of these devices, and those of earlier starts: their spools are sent, too.
    pub(super) fn start(
        config: &PollerConfig,
        poller: DeviceId,
        devices: &Devices,
    ) -> Result<Self, PollerError> {
        let folder = spool_folder(config, &poller)?;
        let groups = Self {
            config: config.clone(),
            poller,
            clock: Arc::new(MachineClock),
            list: RwLock::default(),
            folder,
        };
        let earlier = groups.folder.as_deref().map_or(0, earlier_groups);
        groups.start_missing(&assignment(devices, earlier), devices, true)?;
        Ok(groups)
    }

    /// Replaces the devices. A group that would have too many is split: the number of groups doubles.
    pub(super) fn set_devices(&self, devices: &Devices) -> Result<(), PollerError> {
        let assignment = assignment(devices, self.count());
        self.start_missing(&assignment, devices, false)?;
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        for (group, devices) in list.iter().zip(assignment.groups) {
            group.lock().unwrap_or_else(PoisonError::into_inner).set_devices(devices);
        }
        Ok(())
    }

    fn count(&self) -> usize {
        self.list.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Starts the groups that are not there yet. `is_start`: nothing ran before.
    fn start_missing(
        &self,
        assignment: &Assignment,
        devices: &Devices,
        is_start: bool,
    ) -> Result<(), PollerError> {
        let count = assignment.groups.len();
        let mut new = Vec::new();
        for (number, names) in assignment.groups.iter().enumerate().skip(self.count()) {
            let folder = self.folder.as_ref().map(|dir| dir.join(format!("group-{number}")));
            let periods = names.iter().filter_map(|one| Some((one.clone(), *devices.get(one)?)));
            let periods: Vec<_> = periods.collect();
            let origin = Origin::of_poller_group(&self.poller, number);
            let origin = origin.map_err(|error| PollerError::Machine(error.to_string()))?;
            let of = (origin, &self.poller);
            let (of_devices, clock) = ((&*periods, is_start), (&self.clock, count));
            let group = Group::start(&self.config, of, of_devices, folder.as_deref(), clock)?;
            new.push(Mutex::new(group));
        }
        self.list.write().unwrap_or_else(PoisonError::into_inner).append(&mut new);
        Ok(())
    }

    /// Calls a function with the group of a device.
    pub(super) fn of(&self, device: &DeviceId, call: impl FnOnce(&mut Group)) {
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(group) = list.get(Assignment::place(device, list.len())) {
            call(&mut group.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Passes the samples of all groups on.
    pub(super) fn seal(&self) {
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        for group in list.iter() {
            group.lock().unwrap_or_else(PoisonError::into_inner).seal();
        }
    }

    /// Ends all groups. Together: each waits a moment for the server.
    pub(super) fn end(self) {
        let list = self.list.into_inner().unwrap_or_else(PoisonError::into_inner);
        std::thread::scope(|scope| {
            for group in list {
                let group = group.into_inner().unwrap_or_else(PoisonError::into_inner);
                scope.spawn(move || group.end());
            }
        });
    }
}

fn assignment(devices: &Devices, groups: usize) -> Assignment {
    let devices: BTreeSet<DeviceId> = devices.keys().cloned().collect();
    Assignment::new(&devices, groups)
}

/// The folder of the groups' spools; `None` for none.
fn spool_folder(config: &PollerConfig, name: &DeviceId) -> Result<Option<PathBuf>, DeliveryError> {
    let folder = match &config.spool.spool {
        Some(Spool::None) => return Ok(None),
        Some(Spool::Folder(folder)) => Some(folder.clone()),
        None => {
            let is_root = rustix::process::geteuid().is_root();
            config::state_dir(is_root, &environment)
                .map(|state| state.join(format!("poller-{name}")))
        }
    };
    let Some(folder) = folder else {
        log::warn!(
            "no folder for a spool; samples are lost while the server is unavailable; set `spool`"
        );
        return Ok(None);
    };
    let made = std::fs::create_dir_all(&folder);
    made.map_err(|why| DeliveryError::Spool { dir: folder.clone(), why })?;
    Ok(Some(folder))
}

/// The number of groups of an earlier start.
fn earlier_groups(folder: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let number = |entry: io::Result<std::fs::DirEntry>| {
        entry.ok()?.file_name().to_str()?.strip_prefix("group-")?.parse::<usize>().ok()
    };
    entries
        .filter_map(number)
        .filter(|number| *number < 65_536)
        .map(|number| number + 1)
        .max()
        .unwrap_or(0)
}
