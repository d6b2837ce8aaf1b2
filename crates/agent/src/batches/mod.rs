//! Samples and notes become batches, and batches frames of the wire.

pub(crate) mod frames;
pub(crate) mod notes;
pub(crate) mod seal;
pub(crate) mod tables;
