//! Schedulers are polled, and what they report becomes records.
//!
//! - `plans`: which schedulers, by the configuration. `scheduler_poller`: one is polled. `job_update_parser`: what a person or a file reports of a job.

pub(crate) mod job_update_parser;
pub(crate) mod plans;
pub(crate) mod scheduler_poller;
