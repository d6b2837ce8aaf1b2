//! Commands that measure: run.
//!
//! - `run`: runs a command as a job. `exec`: the process between fork and the command.

pub(crate) mod exec;
pub(crate) mod run;
