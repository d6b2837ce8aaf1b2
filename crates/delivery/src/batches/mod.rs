//! Samples and notes become batches, and batches frames of the wire.
//!
//! - `notes`: gaps and events of jobs, until a batch carries them. `tables`: series. `seal`: samples become batches. `frames`: batches on the wire.
//! - `sealed`: batches for callers that send by themselves. `print`: samples as lines.

pub(crate) mod frames;
pub(crate) mod notes;
pub(crate) mod print;
pub(crate) mod seal;
pub(crate) mod sealed;
pub(crate) mod tables;
