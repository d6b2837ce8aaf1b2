//! Polling without end: every target in its period, and its samples on their way to the server.
//!
//! - `schedule`: which descriptions are due, and at which instant
//! - `outages`: failures as gaps that grow
//! - `poll_metrics`: the metrics about polling itself
//! - `patient_output`: a queue that waits for its reader
//! - `spool_folders`: the folders of the groups' spools
//! - `group`: the devices of one origin, with their samples
//! - `assignment`: which group a device belongs to
//! - `target_loop`: the exchanges with one target
//! - `poller_program`: all targets and groups, from start to end

mod assignment;
mod group;
mod outages;
mod patient_output;
mod poll_metrics;
mod poller_program;
mod schedule;
mod spool_folders;
mod target_loop;

pub(crate) use group::{Group, GroupStart, SEAL_EVERY};
pub(crate) use outages::Missing;
pub use poller_program::{PollerError, run};
pub(crate) use spool_folders::{earlier_groups, spool_folder};
