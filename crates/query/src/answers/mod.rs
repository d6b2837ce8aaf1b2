//! Kwollect's `get_metrics`, and rows as JSON and CSV.
//!
//! - `get_metrics`: parameters and rows. `encode`: rows as text.

pub(crate) mod encode;
pub(crate) mod get_metrics;
