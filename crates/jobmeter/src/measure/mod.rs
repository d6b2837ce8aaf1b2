//! Commands that measure: run.
//!
//! - `run`: a command as a job. `exec`: between fork and the command.

pub(crate) mod exec;
pub(crate) mod run;
