//! What is asked of the machine once, at the start.

use crate::work::Machine;
use kernel::Root;
use model::{DeviceId, Timestamp};

/// The name of a machine: its host name up to the first dot.
///
/// # Errors
/// It has none that can name a device.
pub(crate) fn device_of(root: &Root) -> Result<DeviceId, String> {
    let name = root
        .read_text("proc/sys/kernel/hostname")
        .or_else(|_| root.read_text("etc/hostname"))
        .map_err(|e| format!("this machine has no name: {e}; give `device`"))?;
    let first = name.split('.').next().unwrap_or_default();
    DeviceId::new(first).map_err(|e| format!("{e}; give `device`"))
}

/// A machine with the instant of its boot.
pub(crate) fn machine(root: Root, now: Timestamp) -> Machine {
    let boot = boot_of(&root).unwrap_or_else(|why| {
        log::warn!("when this machine booted is unknown: {why}; its counters start now");
        now
    });
    Machine { root, boot }
}

fn boot_of(root: &Root) -> Result<Timestamp, String> {
    let mut text = Vec::new();
    root.read("proc/stat", &mut text).map_err(|e| e.to_string())?;
    let stat = kernel::stat::stat(&text, |_, _| {}).map_err(|e| e.to_string())?;
    let seconds = stat.boot_seconds.and_then(|seconds| i64::try_from(seconds).ok());
    seconds.map(Timestamp::from_seconds).ok_or_else(|| "/proc/stat has no btime".to_owned())
}
