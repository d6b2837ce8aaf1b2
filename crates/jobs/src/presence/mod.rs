//! Places and times of jobs, by source of the report.
//!
//! - `allocations`: places and times of a job. `verified_presence`: the part that an agent or the
//!   kernel verified. `reports_of_inputs`: visits that other monitoring systems report. `granted`: access that
//!   a node's report grants.

pub(crate) mod allocations;
pub(crate) mod granted;
pub(crate) mod reports_of_inputs;
pub(crate) mod verified_presence;
