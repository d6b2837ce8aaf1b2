//! A statement, from the conditions that the store evaluates to the rows of the result.
//!
//! - `engine`: from the text to the result.
//! - `worker`: the process that runs a statement; `run` and `state` are its parts.
//! - `explain`: EXPLAIN.
//! - `provider`, `exec`: tables for the engine.
//! - `scan_filter`, `of_jobs`, `scan_request`: conditions that the store evaluates.
//! - `table_functions`: Kwollect's functions.
//! - `metadata_tables`, `columns`: small tables.

pub(crate) mod columns;
pub(crate) mod encoding;
pub(crate) mod engine;
pub(crate) mod explain;
pub(crate) mod metadata_tables;
pub(crate) mod of_jobs;
pub(crate) mod provider;
pub(crate) mod run;
pub(crate) mod scan_filter;
pub(crate) mod scan_request;
pub(crate) mod state;
pub(crate) mod table_functions;
pub(crate) mod table_scan;
pub(crate) mod worker;
