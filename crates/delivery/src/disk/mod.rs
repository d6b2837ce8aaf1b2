//! Data on disk: frames that the server has not acknowledged, and those that it rejected permanently.
//!
//! - `spool`: unacknowledged frames in segments.
//! - `durable_watermark`: time until which everything is kept.
//! - `refused`: permanently rejected batches.
//! - `folders`: all three, opened as the settings say.

pub(crate) mod durable_watermark;
pub(crate) mod folders;
pub(crate) mod refused;
pub(crate) mod spool;
