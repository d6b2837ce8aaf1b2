//! Lists: nodes, jobs, series, gaps, marks, where a series comes from.
//!
//! - `listing`: series, latest values, jobs, metrics, gaps. `shown`: parts of jobs in the format of `api`.
//! - `nodes`: reporting nodes. `marks`: promotions, setting overrides and on-demand requests.
//! - `explain`: origin of a series. `check`: disagreements of schedulers and nodes. `silent_jobs`: local jobs
//!   without a sign of life.

pub(crate) mod check;
pub(crate) mod explain;
pub(crate) mod listing;
pub(crate) mod marks;
pub(crate) mod nodes;
pub(crate) mod shown;
pub(crate) mod silent_jobs;
