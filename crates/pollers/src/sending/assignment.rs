//! Which group a device belongs to (docs/decisions/0041-origins-of-pollers.md).

use delivery::crc32c;
use model::DeviceId;
use std::collections::BTreeSet;

/// Devices of a group: each then has gaps of its own in the store.
const GROUP_DEVICES_MAX: usize = 64;
/// Devices per group at the start.
const GROUP_DEVICES: usize = 40;

/// The devices of each group, by the group's number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Assignment {
    pub(super) groups: Vec<Vec<DeviceId>>,
}

impl Assignment {
    /// Assigns devices by a hash of their names. At least `groups` groups: so a change of the files moves no device
    /// while the program runs, unless a group is full.
    pub(super) fn new(devices: &BTreeSet<DeviceId>, groups: usize) -> Self {
        let mut count = devices.len().div_ceil(GROUP_DEVICES).max(groups).max(1);
        loop {
            count = count.next_power_of_two();
            let mut groups = vec![Vec::new(); count];
            for device in devices {
                if let Some(group) = groups.get_mut(Self::place(device, count)) {
                    group.push(device.clone());
                }
            }
            // Names whose hashes are equal in all bits cannot be separated.
            let is_full = groups.iter().any(|group| group.len() > GROUP_DEVICES_MAX);
            if !is_full || count >= devices.len() {
                return Self { groups };
            }
            count *= 2;
        }
    }

    /// The group of a device, of so many groups.
    pub(super) fn place(device: &DeviceId, groups: usize) -> usize {
        usize::try_from(chance(device)).unwrap_or(0) % groups.max(1)
    }
}

/// A number that spreads devices. It is the same at each start.
pub(crate) fn chance(device: &DeviceId) -> u64 {
    u64::from(crc32c(device.as_str().as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn devices(count: usize) -> BTreeSet<DeviceId> {
        (0..count).map(|n| DeviceId::new(&format!("node-{n}-bmc")).unwrap()).collect()
    }

    #[test]
    fn every_device_has_one_group_and_no_group_is_too_large() {
        for count in [0, 1, 64, 1000, 5000] {
            let all = devices(count);
            let assignment = Assignment::new(&all, 1);
            assert_eq!(assignment.groups.iter().flatten().count(), count);
            assert!(assignment.groups.iter().all(|group| group.len() <= GROUP_DEVICES_MAX));
            assert!(assignment.groups.len() <= (count / 8).max(2), "{}", assignment.groups.len());
            for device in &all {
                let place = Assignment::place(device, assignment.groups.len());
                assert!(assignment.groups[place].contains(device));
            }
        }
    }

    #[test]
    fn a_further_device_moves_no_other() {
        let (before, after) = (Assignment::new(&devices(900), 1), devices(901));
        let after = Assignment::new(&after, before.groups.len());
        assert_eq!(before.groups.len(), after.groups.len());
    }
}
