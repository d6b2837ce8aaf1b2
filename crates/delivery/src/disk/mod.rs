//! Data on disk: frames that the server has not acknowledged, and those that it rejected permanently.
//!
//! - `spool`: unacknowledged frames in segments.
//! - `durable_watermark`: time until which everything is kept.
//! - `rejected_batches`: permanently rejected batches.
//! - `folders`: all three, opened as the settings say.

pub(crate) mod durable_watermark;
pub(crate) mod folders;
pub(crate) mod rejected_batches;
pub(crate) mod spool;
