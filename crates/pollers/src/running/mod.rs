//! Polling without end: every target in its period, and its samples on their way to the server.
//!
//! - `schedule`: which descriptions are due, and at which instant
//! - `rejections`: targets that reject a password
//! - `outages`: failures as gaps that grow
//! - `poll_metrics`: the metrics about polling itself
//! - `limits`: how many exchanges run at the same time, and what a target may store
//! - `problem_log`: what the log says of a target
//! - `demand`: the promotions and changed periods in force, and which nodes have jobs
//! - `period_changes`: the periods that the server changes, within the poller's own limits
//! - `poller_error`: why a poller does not start
//! - `entries`: the entries of the folder, read again when a file changes
//! - `target_loop`: the exchanges with one target
//! - `targets`: the loops of all targets
//! - `poller_program`: from start to end

mod demand;
mod entries;
mod limits;
mod outages;
mod period_changes;
mod poll_metrics;
mod poller_error;
mod poller_program;
mod problem_log;
mod rejections;
mod schedule;
mod target_loop;
mod targets;

pub(crate) use demand::{Demand, DemandNames, Names, follow_demand};
pub use poller_error::PollerError;
pub use poller_program::run;
