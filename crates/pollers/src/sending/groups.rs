//! The groups of a poller: the origins of its devices. Each has a delivery of its own.

use super::assignment::Assignment;
use super::first_descriptions::FirstDescriptions;
use super::group::{Group, GroupStart};
use super::spool_folders::{earlier_groups, spool_folder};
use config::PollerConfig;
use delivery::{Clock, DeliveryError, MachineClock};
use model::{DeviceId, NameError, Origin, Timestamp};
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
    /// From when samples or gaps of each device follow, of those at the start.
    begun: BTreeMap<DeviceId, Timestamp>,
    described: Mutex<FirstDescriptions>,
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
        let described = FirstDescriptions::open(&poller, folder.as_deref());
        let mut groups = Self {
            config: config.clone(),
            poller,
            described: Mutex::new(described),
            clock: Arc::new(MachineClock),
            begun: BTreeMap::new(),
            list: RwLock::default(),
            folder,
        };
        let earlier = groups.folder.as_deref().map_or(0, earlier_groups);
        let assignment = assignment(devices, earlier);
        groups.start_missing(&assignment)?;
        let now = groups.clock.wall();
        groups.describe(devices, now);
        for (device, period) in devices {
            let since = groups.described_since(device);
            let begin = groups.of(device, |group| group.note_down((device, since), now, *period));
            groups.begun.extend(begin.map(|begin| (device.clone(), begin)));
        }
        Ok(groups)
    }

    /// The folder of the groups' spools; `None` for none.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// Replaces the devices. A group that would have too many is split: the number of groups doubles.
    pub(crate) fn set_devices(&self, devices: &Devices) -> Result<(), GroupsError> {
        let assignment = assignment(devices, self.count());
        self.start_missing(&assignment)?;
        self.describe(devices, self.clock.wall());
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        for (group, devices) in list.iter().zip(assignment.groups) {
            group.lock().unwrap_or_else(PoisonError::into_inner).set_devices(devices);
        }
        Ok(())
    }

    /// Remembers which devices are described.
    fn describe(&self, devices: &Devices, now: Timestamp) {
        let mut described = self.described.lock().unwrap_or_else(PoisonError::into_inner);
        described.set(devices.keys(), now);
    }

    fn described_since(&self, device: &DeviceId) -> Timestamp {
        self.described.lock().unwrap_or_else(PoisonError::into_inner).since(device)
    }

    fn count(&self) -> usize {
        self.list.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// From when samples or gaps of a device follow; `None` for one that was not there at the start.
    pub(crate) fn begun(&self, device: &DeviceId) -> Option<Timestamp> {
        self.begun.get(device).copied()
    }

    /// Starts the groups that are not there yet.
    fn start_missing(&self, assignment: &Assignment) -> Result<(), GroupsError> {
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
                input_down: None,
            })?;
            new.push(Mutex::new(group));
        }
        self.list.write().unwrap_or_else(PoisonError::into_inner).append(&mut new);
        Ok(())
    }

    /// Calls a function with the group of a device, and returns its result.
    pub(crate) fn of<T>(&self, device: &DeviceId, call: impl FnOnce(&mut Group) -> T) -> Option<T> {
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        let group = list.get(Assignment::place(device, list.len()))?;
        Some(call(&mut group.lock().unwrap_or_else(PoisonError::into_inner)))
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
