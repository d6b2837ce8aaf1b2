//! Polls schedulers, and turns their reports into job records.
//!
//! - `configured_schedulers`: the schedulers that the configuration names. `database_addresses`: their databases, and that
//!   of the store. `scheduler_poller`: polls one scheduler.
//! - `job_update_parser`: checks the job updates that an administrator or a file reports.

pub(crate) mod configured_schedulers;
pub(crate) mod database_addresses;
pub(crate) mod job_update_parser;
pub(crate) mod scheduler_poller;
