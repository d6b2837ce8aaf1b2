//! Schedulers are polled, and what they report becomes records.

pub(crate) mod job_update_parser;
pub(crate) mod plans;
pub(crate) mod scheduler_poller;
