//! Samples in memory, from the moment when a batch arrives.
//!
//! - `append`: what a caller hands in, and the outcome. `intake`: which samples of a batch are stored.
//! - `samples`: the head itself. `series_builder`: batches as series. `rejected_series`: what limits rejected, for the log.

pub(crate) mod append;
pub(crate) mod intake;
pub(crate) mod rejected_series;
pub(crate) mod samples;
pub(crate) mod series_builder;
