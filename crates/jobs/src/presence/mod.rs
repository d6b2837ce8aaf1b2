//! Places and times of jobs, by source of the report.
//!
//! - `allocations`: places and times of a job. `verified_presence`: the part that an agent or the
//!   kernel verified. `granted`: access that a node's report grants.

pub(crate) mod allocations;
pub(crate) mod granted;
pub(crate) mod verified_presence;
