//! Lists: nodes, jobs, series, gaps, marks, where a series comes from.
//!
//! - `listing`: series, latest values, jobs, metrics, gaps. `to_api`: parts of jobs in the format of `api`.
//! - `nodes`: reporting nodes. `devices`: polled and other devices that are no nodes.
//!   `device_polls`: their latest polls. `device_senders`: their pollers and states. `poll_summary`: counts of them.
//!   `pollers`: they, with the errors in their description files. `marks`: promotions, setting overrides and on-demand requests.
//! - `explain`: origin of a series. `gap_samples`: its samples around a gap. `disagreements`: disagreements of schedulers and nodes. `silent_jobs`: local jobs
//!   without a sign of life.

pub(crate) mod available;
pub(crate) mod device_polls;
pub(crate) mod device_senders;
pub(crate) mod devices;
pub(crate) mod disagreements;
pub(crate) mod end_silent_jobs;
pub(crate) mod explain;
pub(crate) mod gap_samples;
pub(crate) mod listing;
pub(crate) mod marks;
pub(crate) mod nodes;
pub(crate) mod poll_summary;
pub(crate) mod pollers;
pub(crate) mod to_api;
