//! Samples and notes become batches, and batches frames of the wire.
//!
//! - `notes`: gaps and events of jobs, until a batch carries them. `tables`: series. `seal`: samples become batches. `frames`: batches on the wire.

pub(crate) mod frames;
pub(crate) mod notes;
pub(crate) mod seal;
pub(crate) mod tables;
