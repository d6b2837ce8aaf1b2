//! Query types, and the permissions of their readers.
//!
//! - `questions`: query types and readers. `access_filter`: which jobs, devices and times a reader may see.

pub(crate) mod access_filter;
pub(crate) mod questions;
