//! Polls schedulers, and turns their reports into job records.
//!
//! - `plans`: the schedulers that the configuration names. `scheduler_poller`: polls one scheduler.
//! - `job_update_parser`: checks the job updates that an administrator or a file reports.

pub(crate) mod configured_schedulers;
pub(crate) mod job_update_parser;
pub(crate) mod scheduler_poller;
