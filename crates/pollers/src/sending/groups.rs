//! The groups of a poller: the origins of its devices. Each has a delivery of its own.

use super::assignment::Assignment;
use super::group::{Group, GroupStart};
use super::spool_folders::{earlier_groups, spool_folder};
use config::PollerConfig;
use delivery::{Clock, DeliveryError, MachineClock};
use model::{DeviceId, NameError, Origin};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

/// Devices with their shortest periods.
pub(crate) type Devices = BTreeMap<DeviceId, Duration>;

/// Why groups do not start.
#[derive(Debug, thiserror::Error)]
pub enum GroupsError {
    /// A delivery does not start.
    #[error(transparent)]
    Delivery(#[from] DeliveryError),
    /// The name of the poller is too long for the names of its groups.
    #[error("the name of the poller: {0}")]
    Name(#[from] NameError),
}

/// The groups.
pub(crate) struct Groups {
    config: PollerConfig,
    poller: DeviceId,
    /// The folder of the groups' spools; `None` for none.
    folder: Option<PathBuf>,
    clock: Arc<dyn Clock>,
    list: RwLock<Vec<Mutex<Group>>>,
}

impl Groups {
    /// Starts the groups of these devices, and those of earlier starts: their spools are sent, too.
    pub(crate) fn start(
        config: &PollerConfig,
        poller: DeviceId,
        devices: &Devices,
    ) -> Result<Self, GroupsError> {
        let folder = spool_folder(config, &format!("poller-{poller}"), None)?;
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

    /// The folder of the groups' spools; `None` for none.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// Replaces the devices. A group that would have too many is split: the number of groups doubles.
    pub(crate) fn set_devices(&self, devices: &Devices) -> Result<(), GroupsError> {
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

    /// Starts the groups that are not there yet. `is_start`: nothing polled before, so each device has a gap.
    fn start_missing(
        &self,
        assignment: &Assignment,
        devices: &Devices,
        is_start: bool,
    ) -> Result<(), GroupsError> {
        let count = assignment.groups.len();
        let mut new = Vec::new();
        for (number, names) in assignment.groups.iter().enumerate().skip(self.count()) {
            let folder = self.folder.as_ref().map(|dir| dir.join(format!("group-{number}")));
            let group = Group::start(GroupStart {
                config: &self.config,
                origin: Origin::of_poller_group(&self.poller, number)?,
                poller: &self.poller,
                devices: names.clone(),
                folder: folder.as_deref(),
                clock: &self.clock,
                groups: count,
                is_feed: false,
            })?;
            let periods = names.iter().filter_map(|one| Some((one, *devices.get(one)?)));
            for (device, period) in periods.filter(|_| is_start) {
                group.note_down(device, self.clock.wall(), period);
            }
            new.push(Mutex::new(group));
        }
        self.list.write().unwrap_or_else(PoisonError::into_inner).append(&mut new);
        Ok(())
    }

    /// Calls a function with the group of a device.
    pub(crate) fn of(&self, device: &DeviceId, call: impl FnOnce(&mut Group)) {
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(group) = list.get(Assignment::place(device, list.len())) {
            call(&mut group.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Passes the samples of all groups on.
    pub(crate) fn seal(&self) {
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        for group in list.iter() {
            group.lock().unwrap_or_else(PoisonError::into_inner).seal();
        }
    }

    /// Ends all groups. Together: each waits a moment for the server.
    pub(crate) fn end(self) {
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
