//! When each device of a poller was described first: before, it has no samples and no gap.

use super::device_times;
use model::{DeviceId, Timestamp};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Name and first line of the file beside the groups' spools.
const FILE: &str = "described";
const HEAD: &str = "jobmeter described devices 1";

/// The described devices, and since when they are described.
#[derive(Debug)]
pub(super) struct FirstDescriptions {
    poller: DeviceId,
    /// The file; `None` without a spool.
    path: Option<PathBuf>,
    since: BTreeMap<DeviceId, Timestamp>,
    /// Whether no earlier start is known: its devices may have been described before.
    is_unknown: bool,
}

impl FirstDescriptions {
    /// Those of earlier starts.
    pub(super) fn open(poller: &DeviceId, folder: Option<&Path>) -> Self {
        let path = folder.map(|folder| folder.join(FILE));
        let found =
            path.as_deref().and_then(|path| device_times::read(path, (HEAD, poller.as_str())));
        let (is_unknown, since) = (found.is_none(), found.unwrap_or_default());
        Self { poller: poller.clone(), path, since, is_unknown }
    }

    /// Replaces the devices: new ones are described since `now`, and one that is not described any more is forgotten.
    pub(super) fn set<'a>(&mut self, devices: impl Iterator<Item = &'a DeviceId>, now: Timestamp) {
        let new = if std::mem::take(&mut self.is_unknown) { Timestamp(0) } else { now };
        let since = |device: &DeviceId| self.since.get(device).copied().unwrap_or(new);
        let since: BTreeMap<_, _> = devices.map(|device| (device.clone(), since(device))).collect();
        if since == self.since {
            return;
        }
        self.since = since;
        let Some(path) = &self.path else { return };
        let owner = (HEAD, self.poller.as_str());
        if let Err(error) = device_times::write(path, owner, &self.since) {
            log::error!("cannot store since when devices are described: {error}");
            // Without it, the next start takes all of them for old ones.
            std::fs::remove_file(path).ok();
        }
    }

    /// Since when a device is described.
    pub(super) fn since(&self, device: &DeviceId) -> Timestamp {
        self.since.get(device).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_new_once_and_those_of_an_unknown_start_are_old() {
        let folder = tempfile::tempdir().unwrap();
        let name = |name: &str| DeviceId::new(name).unwrap();
        let (a, b, c) = (name("a"), name("b c"), name("c"));
        let open = |poller: &str| FirstDescriptions::open(&name(poller), Some(folder.path()));
        let mut first = open("one");
        first.set([&a].into_iter(), Timestamp(10));
        first.set([&a, &b].into_iter(), Timestamp(20));
        let since = |of: &FirstDescriptions| [&a, &b, &c].map(|device| of.since(device).0);
        assert_eq!(since(&first), [0, 20, 0]);
        let mut second = open("one");
        second.set([&b, &c].into_iter(), Timestamp(30));
        assert_eq!(since(&second), [0, 20, 30]);
        let mut third = open("one");
        third.set([&a, &b].into_iter(), Timestamp(40));
        assert_eq!(since(&third), [40, 20, 0], "described again");
        let mut other = open("other");
        other.set([&c].into_iter(), Timestamp(50));
        assert_eq!(since(&other), [0; 3], "the file of another poller");
    }
}
