//! What is asked of the machine once, at the start.

use crate::program::StartError;
use crate::work::Machine;
use kernel::Root;
use model::{DeviceId, Timestamp};
use std::fmt::Display;

/// The name of a machine: its host name up to the first dot.
///
/// # Errors
/// It has none that can name a device.
pub fn device_of(root: &Root) -> Result<DeviceId, StartError> {
    let nameless = |why: &dyn Display| {
        StartError::Machine(format!("this machine has no usable name: {why}; give `device`"))
    };
    let name = root
        .read_text("proc/sys/kernel/hostname")
        .or_else(|_| root.read_text("etc/hostname"))
        .map_err(|e| nameless(&e))?;
    DeviceId::new(name.split('.').next().unwrap_or_default()).map_err(|e| nameless(&e))
}

/// A machine with the instant of its boot.
pub(crate) fn machine(root: Root, now: Timestamp) -> Machine {
    let boot = boot_of(&root).unwrap_or_else(|why| {
        log::warn!("{why}; its counters start now");
        now
    });
    Machine { root, boot }
}

/// When a machine booted: the start of its counters.
///
/// # Errors
/// `/proc/stat` does not tell.
pub fn boot_of(root: &Root) -> Result<Timestamp, StartError> {
    let mut text = Vec::new();
    let wrong = |why: &dyn Display| StartError::machine("when this machine booted", why);
    root.read("proc/stat", &mut text).map_err(|e| wrong(&e))?;
    let stat = kernel::stat::stat(&text, |_, _| {}).map_err(|e| wrong(&e))?;
    let seconds = stat.boot_seconds.and_then(|seconds| i64::try_from(seconds).ok());
    seconds.map(Timestamp::from_seconds).ok_or_else(|| wrong(&"/proc/stat has no btime"))
}
