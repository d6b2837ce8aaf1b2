//! A statement: from the conditions that the store answers to the rows of the answer.
//!
//! - `engine`: from a text to an answer. `worker`: the process that executes it; `run`, `state`: in there. `explain`.
//! - `provider`, `exec`: tables for the engine. `narrow`, `of_jobs`, `scan_request`: what the store answers. `metadata_tables`, `columns`: small tables.

pub(crate) mod columns;
pub(crate) mod engine;
pub(crate) mod exec;
pub(crate) mod explain;
pub(crate) mod metadata_tables;
pub(crate) mod narrow;
pub(crate) mod of_jobs;
pub(crate) mod provider;
pub(crate) mod run;
pub(crate) mod scan_request;
pub(crate) mod state;
pub(crate) mod worker;
