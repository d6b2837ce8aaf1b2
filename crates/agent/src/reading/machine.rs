//! Facts about the machine that the agent reads once, at startup.

use crate::common::start_error::StartError;
use crate::reading::one_reading::Machine;
use kernel::Root;
use model::{DeviceId, Timestamp};
use std::fmt::Display;
use std::path::Path;

/// Returns the device name of a machine: its host name up to the first dot.
///
/// # Errors
/// The machine has no host name that is a valid device name.
pub fn device_of(root: &Root) -> Result<DeviceId, StartError> {
    let nameless = |why: &dyn Display| {
        StartError::Machine(format!("this machine has no usable host name: {why}; set `device`"))
    };
    let name = root
        .read_text("proc/sys/kernel/hostname")
        .or_else(|_| root.read_text("etc/hostname"))
        .map_err(|e| nameless(&e))?;
    DeviceId::new(name.split('.').next().unwrap_or_default()).map_err(|e| nameless(&e))
}

/// Opens a recorded machine in a folder that `jobmeter capture` wrote.
///
/// # Errors
/// The folder has no `proc`. If it contains folders of single ticks, the error lists them.
pub fn recorded(dir: &Path) -> Result<Root, StartError> {
    let shown = dir.display();
    let root = Root::recorded(dir).map_err(|e| match e.is_absent() {
        true => StartError::Machine(format!("{shown}: not there, or no folder")),
        false => StartError::machine("root", &e),
    })?;
    if root.stat("proc").is_ok() {
        return Ok(root);
    }
    let mut ticks = Vec::new();
    let listed = root.list("", |entry| ticks.push(entry.name.to_owned()));
    listed.map_err(|e| StartError::machine("root", &e))?;
    ticks.retain(|name| root.stat(&format!("{name}/proc")).is_ok());
    ticks.sort_unstable();
    Err(StartError::Machine(match ticks.first() {
        Some(first) => {
            let one = dir.join(first);
            let (list, one) =
                (ticks.get(..TICKS_NAMED_MAX).unwrap_or(&ticks).join(", "), one.display());
            format!(
                "{shown} contains several recorded machines or ticks: {list}; choose one of them, \
                 such as {one}"
            )
        }
        None => format!(
            "{shown} is no recorded machine: it has no folder `proc`; `jobmeter capture --out DIR` records one"
        ),
    }))
}

/// Maximum number of tick folders that an error lists.
const TICKS_NAMED_MAX: usize = 16;

/// A machine with its boot time.
pub(crate) fn machine(root: Root, now: Timestamp) -> Machine {
    let boot = boot_of(&root).unwrap_or_else(|why| {
        log::warn!("{why}; its counters start now");
        now
    });
    Machine { root, boot }
}

/// Reads the boot time of a machine, which is the start of its counters.
///
/// # Errors
/// `/proc/stat` cannot be read, or it lacks the boot time.
pub fn boot_of(root: &Root) -> Result<Timestamp, StartError> {
    let mut text = Vec::new();
    let wrong = |why: &dyn Display| StartError::machine("when this machine booted", why);
    root.read("proc/stat", &mut text).map_err(|e| wrong(&e))?;
    let stat = kernel::stat::stat(&text, |_, _| {}).map_err(|e| wrong(&e))?;
    let seconds = stat.boot_seconds.and_then(|seconds| i64::try_from(seconds).ok());
    seconds.map(Timestamp::from_seconds).ok_or_else(|| wrong(&"/proc/stat has no btime"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_ticks_is_no_machine_and_they_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let check = |path: &Path| recorded(path).map(drop).map_err(|error| error.to_string());
        let at = dir.path().display();
        let none = format!(
            "{at} is no recorded machine: it has no folder `proc`; `jobmeter capture --out DIR` records one"
        );
        assert_eq!(check(dir.path()), Err(none));
        for inside in ["2/proc", "1/proc", "3"] {
            std::fs::create_dir_all(dir.path().join(inside)).unwrap();
        }
        let want = format!(
            "{at} contains several recorded machines or ticks: 1, 2; choose one of them, such as \
             {at}/1"
        );
        assert_eq!(check(dir.path()), Err(want));
        assert_eq!(check(&dir.path().join("1")), Ok(()));
        assert!(check(&dir.path().join("4")).unwrap_err().contains("not there"));
    }
}
