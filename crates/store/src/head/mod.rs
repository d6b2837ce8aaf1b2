//! Samples in memory, from the arrival of a batch on.
//!
//! - `append`: a caller's batch, and its outcome. `intake`: selects the samples to store.
//! - `samples`: the head itself. `series_builder`: batches as series. `rejected_series`: series rejected by
//!   limits, for the log.

pub(crate) mod append;
pub(crate) mod intake;
mod rejected_samples;
pub(crate) mod rejected_series;
pub(crate) mod samples;
pub(crate) mod series_builder;
