//! Threads of the agent: one that fails ends the whole.

use crate::common::start_error::StartError;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::JoinHandle;

/// Exit code of an agent of which a part fell; that of a panic in Rust.
const FALLEN: i32 = 101;

pub(crate) fn thread(
    name: &str,
    run: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, StartError> {
    let builder = std::thread::Builder::new().name(name.to_owned());
    builder.spawn(|| or_end(run)).map_err(|e| StartError::machine("a thread", &e))
}

/// Runs a part of the agent. Where it falls, the agent ends, rather than going on with a part missing:
/// what is not acknowledged is told as a gap by the next start.
pub(crate) fn or_end(run: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(run)).is_err() {
        log::error!("a part of the agent fell; it ends, to be started again");
        kernel::command::kill_all();
        std::process::exit(FALLEN);
    }
}
