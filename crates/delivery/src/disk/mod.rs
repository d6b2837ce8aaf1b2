//! What is on disk: frames that the server has not acknowledged, and those that it rejected.
//!
//! - `spool`: frames in segments. `durable_watermark`: how far everything is kept. `refused`: batches that the server rejected.
//! - `folders`: all three, opened as the settings say.

pub(crate) mod durable_watermark;
pub(crate) mod folders;
pub(crate) mod refused;
pub(crate) mod spool;
