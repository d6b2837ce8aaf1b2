//! Types that every part of the agent uses.
//!
//! - `schedule`: instants at which periodic work is due.
//! - `start_error`: reasons why the agent does not start.

pub(crate) mod schedule;
pub(crate) mod start_error;
