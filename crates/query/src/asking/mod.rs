//! Who asks what, and what he may see.
//!
//! - `questions`: what can be asked, and by whom. `access_filter`: which jobs, devices and times a reader may see.

pub(crate) mod access_filter;
pub(crate) mod questions;
