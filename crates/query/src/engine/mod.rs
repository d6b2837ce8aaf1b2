//! Query types, and the permissions of their readers.
//!
//! - `query_engine`: query types and readers. `access_filter`: which jobs, devices and times a reader may see.
//! - `concurrency_limit`: running and waiting queries.

pub(crate) mod access_filter;
pub(crate) mod concurrency_limit;
pub(crate) mod entry_errors;
pub(crate) mod query_engine;
