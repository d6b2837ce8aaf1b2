//! Samples in memory, from the arrival of a batch on.
//!
//! - `intake`: selects the samples to store.
//! - `samples`: the head itself. `series_builder`: batches as series. `rejected_series`: series rejected by
//!   limits, for the log.

pub(crate) mod intake;
pub(crate) mod samples;
pub(crate) mod series_builder;
