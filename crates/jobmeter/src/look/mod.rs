//! Commands that read data: nodes, devices, jobs, job, get, sql, explain, gaps, audit, outputs, extract.
//!
//! - `nodes_command`, `devices`, `jobs`, `gaps`, `audit`, `outputs`: lists. `job`: one job. `data_queries`: get, sql.
//! - `extract`: records in HDF5 files. `explain`: the origin of a series. `explain_missing`: why a node has no series. `entry_errors`: of the files of pollers.

pub(crate) mod audit;
pub(crate) mod data_queries;
pub(crate) mod devices;
mod entry_errors;
pub(crate) mod explain;
pub(crate) mod explain_missing;
pub(crate) mod extract;
mod first_sample;
pub(crate) mod gaps;
pub(crate) mod job;
pub(crate) mod jobs;
pub(crate) mod nodes_command;
pub(crate) mod outputs;
