//! What every part uses: when something is due, and the error of a start.
//!
//! - `schedule`: when something is due. `start_error`: why the agent does not start.

pub(crate) mod schedule;
pub(crate) mod start_error;
