//! Threads of a program: one that fails ends the whole.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::JoinHandle;

/// Exit code of an agent of which a part fell; that of a panic in Rust.
const FALLEN: i32 = 101;

pub(crate) fn thread(
    name: &str,
    run: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let builder = std::thread::Builder::new().name(name.to_owned());
    builder.spawn(|| or_end(run))
}

/// Runs a part of the agent. Where it falls, the agent ends, rather than going on with a part missing:
/// what is not acknowledged is told as a gap by the next start.
pub fn or_end(run: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(run)).is_err() {
        log::error!("a part of the agent fell; it ends, to be started again");
        kernel::command::kill_all();
        std::process::exit(FALLEN);
    }
}
