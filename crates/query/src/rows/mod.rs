//! Samples and rollups as rows: by device, by alias, by job.
//!
//! - `table_rows`: rows of the tables. `line_cache`: texts of a series. `slices`, `summary`: samples, and 5 min
//!   aggregates.
//! - `device_rows`, `alias`, `by_job`, `node_rows_filter`, `merge`: selection and order of rows.

pub(crate) mod alias;
pub(crate) mod by_job;
pub(crate) mod device_rows;
pub(crate) mod line_cache;
pub(crate) mod merge;
pub(crate) mod node_rows_filter;
pub(crate) mod slices;
pub(crate) mod summary;
pub(crate) mod table_rows;
