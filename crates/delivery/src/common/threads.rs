//! Threads whose panic ends the program.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::JoinHandle;

/// Exit code after a thread panicked. It equals that of a panic in Rust.
const FALLEN: i32 = 101;

pub(crate) fn thread(
    name: &str,
    run: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let builder = std::thread::Builder::new().name(name.to_owned());
    builder.spawn(|| or_end(run))
}

/// Runs a part of the program. If it panics, the program exits instead of running without that part. The next start
/// reports samples that were not acknowledged as a gap.
pub fn or_end(run: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(run)).is_err() {
        log::error!("a part of the program fell; the program ends, to be started again");
        kernel::child_program::kill_all();
        std::process::exit(FALLEN);
    }
}
