//! The process that started this one.

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use std::io;

/// Lets the kernel send SIGTERM to this process when the thread that started it ends (prctl(2), `PR_SET_PDEATHSIG`).
/// Returns whether the process `parent` still runs: it may have ended before the kernel received the request.
///
/// # Errors
/// The kernel rejects the request.
pub fn end_with(parent: u32) -> io::Result<bool> {
    set_parent_process_death_signal(Some(Signal::TERM))?;
    let now = getppid().map(Pid::as_raw_nonzero).and_then(|now| u32::try_from(now.get()).ok());
    Ok(now == Some(parent))
}
