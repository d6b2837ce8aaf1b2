//! Polling without end: every target in its period, and its samples on their way to the server.
//!
//! - `schedule`: which descriptions are due, and at which instant
//! - `outages`: failures as gaps that grow
//! - `poll_metrics`: the metrics about polling itself
//! - `group`: the devices of one origin, with their samples
//! - `assignment`: which group a device belongs to
//! - `target_loop`: the exchanges with one target
//! - `poller_program`: all targets and groups, from start to end

mod assignment;
mod group;
mod outages;
mod poll_metrics;
mod poller_program;
mod schedule;
mod target_loop;

pub use poller_program::{PollerError, run};
