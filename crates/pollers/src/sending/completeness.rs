//! Until when samples and gaps of each device are complete: a kill loses what follows, so the next start reports it as a gap.
//!
//! A lasting failure is reported once a minute only. The file `failing` beside the spool holds until when, for each device
//! that fails, so that the others of its group have no gap of that minute.

use super::device_times;
use model::{DeviceId, Origin, Timestamp};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// Name and first line of the file.
const FILE: &str = "failing";
const HEAD: &str = "jobmeter failing devices 1";

/// Until when what a target returns of a device is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CompleteUntil {
    pub(crate) at: Timestamp,
    /// Whether a gap of it grows, which is reported until then.
    pub(crate) is_failing: bool,
}

/// The same for the devices of a group.
#[derive(Debug)]
pub(super) struct Completeness {
    origin: Origin,
    /// The file; `None` without a spool.
    path: Option<PathBuf>,
    written: BTreeMap<DeviceId, Timestamp>,
    /// Each device is read from some targets.
    devices: HashMap<DeviceId, Vec<(u64, CompleteUntil)>>,
}

/// What is complete in a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct GroupComplete {
    /// Without the devices that fail.
    until: Option<Timestamp>,
    failing: BTreeMap<DeviceId, Timestamp>,
}

impl Completeness {
    /// Of a group with this folder. Also returns what an earlier start wrote.
    pub(super) fn open(
        origin: &Origin,
        folder: Option<&Path>,
    ) -> (Self, BTreeMap<DeviceId, Timestamp>) {
        let path = folder.map(|folder| folder.join(FILE));
        let found =
            path.as_deref().and_then(|path| device_times::read(path, (HEAD, origin.as_str())));
        let written = found.unwrap_or_default();
        let devices = HashMap::new();
        (Self { origin: origin.clone(), path, written: written.clone(), devices }, written)
    }

    /// Sets until when what a target returns of a device is complete; `None` if it does not return it any more.
    pub(super) fn set(&mut self, device: &DeviceId, target: u64, until: Option<CompleteUntil>) {
        match self.devices.get_mut(device) {
            Some(targets) => {
                targets.retain(|(known, _)| *known != target);
                targets.extend(until.map(|until| (target, until)));
            }
            None => {
                let targets = until.into_iter().map(|until| (target, until));
                self.devices.insert(device.clone(), targets.collect());
            }
        }
    }

    /// Whether another target returns something of a device, too.
    pub(super) fn has_others(&self, device: &DeviceId, target: u64) -> bool {
        let targets = self.devices.get(device);
        targets.is_some_and(|targets| targets.iter().any(|(known, _)| *known != target))
    }

    /// Forgets all devices but these.
    pub(super) fn retain(&mut self, devices: &[DeviceId]) {
        self.devices.retain(|device, _| devices.contains(device));
    }

    /// What is complete.
    pub(super) fn complete(&self) -> GroupComplete {
        let mut complete = GroupComplete::default();
        for (device, targets) in &self.devices {
            let Some(at) = targets.iter().map(|(_, until)| until.at).min() else { continue };
            if self.path.is_some() && targets.iter().any(|(_, until)| until.is_failing) {
                complete.failing.insert(device.clone(), at);
            } else {
                complete.until = Some(complete.until.map_or(at, |until| until.min(at)));
            }
        }
        complete
    }

    /// Writes the devices that fail. Returns until when the group is complete without them.
    pub(super) fn write(&mut self, complete: &GroupComplete) -> Option<Timestamp> {
        let GroupComplete { until, failing } = complete;
        if *failing != self.written
            && let Some(path) = &self.path
        {
            let owner = (HEAD, self.origin.as_str());
            if let Err(error) = device_times::write(path, owner, failing) {
                log::error!("cannot store which devices fail: {error}");
                // Then no device is complete beyond them.
                return failing.values().copied().chain(*until).min();
            }
            self.written.clone_from(failing);
        }
        *until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(name: &str) -> DeviceId {
        DeviceId::new(name).unwrap()
    }

    fn until(at: i64, is_failing: bool) -> Option<CompleteUntil> {
        Some(CompleteUntil { at: Timestamp(at), is_failing })
    }

    #[test]
    fn a_device_that_fails_concerns_no_other_and_is_found_by_the_next_start() {
        let folder = tempfile::tempdir().unwrap();
        let origin = Origin::new("poller-a/group-0").unwrap();
        let open = || Completeness::open(&origin, Some(folder.path()));
        let (mut group, before) = open();
        assert_eq!(before, BTreeMap::new());
        group.set(&device("good"), 1, until(90, false));
        group.set(&device("bad"), 2, until(30, true));
        group.set(&device("bad"), 3, until(95, false));
        assert!(group.has_others(&device("bad"), 2) && !group.has_others(&device("good"), 1));
        assert_eq!(group.write(&group.complete()), Some(Timestamp(90)));
        let (_, found) = open();
        assert_eq!(found, [(device("bad"), Timestamp(30))].into());
        group.set(&device("bad"), 2, None);
        assert_eq!(group.write(&group.complete()), Some(Timestamp(90)));
        assert_eq!(open().1, BTreeMap::new());
        group.retain(&[device("bad")]);
        assert_eq!(group.complete().until, Some(Timestamp(95)));
        let other = Origin::new("poller-a/group-1").unwrap();
        group.set(&device("bad"), 2, until(30, true));
        group.write(&group.complete());
        assert_eq!(Completeness::open(&other, Some(folder.path())).1, BTreeMap::new());
    }

    #[test]
    fn without_a_file_no_device_is_complete_beyond_one_that_fails() {
        let origin = Origin::new("poller-a/group-0").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let lost = folder.path().join("lost");
        for folder in [None, Some(&*lost)] {
            let (mut group, _) = Completeness::open(&origin, folder);
            group.set(&device("good"), 1, until(90, false));
            group.set(&device("bad"), 2, until(30, true));
            assert_eq!(group.write(&group.complete()), Some(Timestamp(30)));
        }
    }
}
