//! Which devices the poller polls, beside the groups' spools: a device that is new at a start was not polled before, so that
//! it has no gap of the time before.

use super::groups::Devices;
use delivery::replace_private;
use model::DeviceId;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// Name of the file. It has a device per line.
const FILE: &str = "devices";

/// The file; without a spool there is none.
#[derive(Debug)]
pub(super) struct PolledDevices(Option<PathBuf>);

impl PolledDevices {
    pub(super) fn of(folder: Option<&Path>) -> Self {
        Self(folder.map(|folder| folder.join(FILE)))
    }

    /// The devices that an earlier start polled last; `None` if unknown.
    pub(super) fn read(&self) -> Option<HashSet<DeviceId>> {
        let text = std::fs::read_to_string(self.0.as_deref()?).ok()?;
        text.lines().map(|line| DeviceId::new(line).ok()).collect()
    }

    /// Replaces them.
    pub(super) fn write(&self, devices: &Devices) {
        let Some(path) = &self.0 else { return };
        let text: String = devices.keys().map(|device| format!("{device}\n")).collect();
        if let Err(error) = replace_private(path, text.as_bytes()) {
            log::error!("cannot store which devices are polled: {error}");
            // All devices then count as polled before. Without this file, too, nothing is hidden.
            std::fs::remove_file(path).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn devices_are_those_of_the_latest_write() {
        let dir = tempfile::tempdir().unwrap();
        let file = PolledDevices::of(Some(dir.path()));
        assert_eq!(file.read(), None);
        let name = |name: &str| DeviceId::new(name).unwrap();
        let of = |names: &[&str]| -> Devices {
            names.iter().map(|one| (name(one), Duration::from_secs(1))).collect()
        };
        file.write(&of(&["a", "b"]));
        file.write(&of(&["b", "c"]));
        assert_eq!(file.read(), Some([name("b"), name("c")].into()));
        file.write(&Devices::new());
        assert_eq!(file.read(), Some(HashSet::new()));
        assert_eq!(PolledDevices::of(None).read(), None);
    }
}
