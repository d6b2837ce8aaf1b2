//! Kwollect's get_metrics, and rows as JSON and CSV.

pub(crate) mod encode;
pub(crate) mod get_metrics;
