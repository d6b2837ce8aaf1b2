//! A file with an instant for each device.

use delivery::{crc32c, replace_private};
use model::{DeviceId, Timestamp};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// Writes the file. `owner` is the name of its poller or group: another one does not read it.
pub(super) fn write(
    path: &Path,
    (head, owner): (&str, &str),
    times: &BTreeMap<DeviceId, Timestamp>,
) -> io::Result<()> {
    replace_private(path, text((head, owner), times).as_bytes())
}

/// The instants in a file; `None` if there is no file, if it is damaged, or if it has another owner.
pub(super) fn read(
    path: &Path,
    (head, owner): (&str, &str),
) -> Option<BTreeMap<DeviceId, Timestamp>> {
    let found = std::fs::read_to_string(path).ok()?;
    let lines = found.lines().skip(1).filter_map(|line| line.split_once(' '));
    let device = |(at, device): (&str, &str)| {
        Some((DeviceId::new(device).ok()?, Timestamp(at.parse().ok()?)))
    };
    let times: BTreeMap<_, _> = lines.map(device).collect::<Option<_>>()?;
    (text((head, owner), &times) == found).then_some(times)
}

/// The content of the file, with the checksum of its lines and of the owner.
fn text((head, owner): (&str, &str), times: &BTreeMap<DeviceId, Timestamp>) -> String {
    let lines = times.iter().map(|(device, at)| format!("{} {device}\n", at.0));
    let body: String = [format!("{head}\n")].into_iter().chain(lines).collect();
    let checksum = crc32c(format!("{body}{owner}").as_bytes());
    format!("{body}{checksum:08x}\n")
}
