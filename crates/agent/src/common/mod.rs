//! What every part uses: clocks, waits, private files, threads, the error of a start.
//!
//! - `clock`: all that reads a clock. `schedule`: when something is due. `backoff`: how long to wait. `print`: samples as lines.
//! - `files`: private files. `threads`: one that fails ends the agent. `start_error`: why it does not start.

pub(crate) mod backoff;
pub(crate) mod clock;
pub(crate) mod files;
pub(crate) mod print;
pub(crate) mod schedule;
pub(crate) mod start_error;
pub(crate) mod threads;
