//! Batches: samples and notes become batches, and batches become wire frames.
//!
//! - `pending_events`: gaps and job events that wait for a batch.
//! - `tables`: series tables of the batches.
//! - `seal`: samples become batches.
//! - `frames`: batches on the wire.
//! - `sealed`: batches for callers that send them on their own.
//! - `print`: samples as lines of text.

pub(crate) mod frames;
pub(crate) mod pending_gaps_and_job_events;
pub(crate) mod print;
pub(crate) mod seal;
pub(crate) mod sealed;
pub(crate) mod tables;
