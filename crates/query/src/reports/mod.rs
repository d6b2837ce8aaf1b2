//! Usage of one job, and how it ended.
//!
//! - `report`: one job. `totals`: the largest verified value of each origin (decision 0024). `job_end`: how a
//!   job ended.
//! - `missed`: gaps that make totals lower bounds. `coverage`: nodes and times that totals cover.
//! - `last_samples`: the mean of a gauge up to the job's end.

pub(crate) mod coverage;
pub(crate) mod job_end;
pub(crate) mod job_gaps;
pub(crate) mod job_usage;
pub(crate) mod last_samples;
pub(crate) mod node_metrics;
pub(crate) mod totals;
