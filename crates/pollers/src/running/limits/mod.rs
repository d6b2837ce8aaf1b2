//! Limits of exchanges, and of what a target may store.
//!
//! - `exchange_limit`: how many exchanges run at the same time
//! - `text_limit`: a limit of the texts of a metric
//! - `series_limit`: a limit of the series of an exporter
//! - `stated_samples`: samples with instants of their exporter, each stored once

pub(super) mod exchange_limit;
pub(super) mod series_limit;
pub(super) mod stated_samples;
pub(super) mod text_limit;
