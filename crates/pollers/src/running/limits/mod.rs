//! What a target may store.
//!
//! - `text_limit`: a limit of the texts of a metric
//! - `series_limit`: a limit of the series of an exporter
//! - `stated_samples`: samples with instants of their exporter, each stored once

pub(super) mod series_limit;
pub(super) mod stated_samples;
pub(super) mod text_limit;
