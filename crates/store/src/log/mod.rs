//! The log: every accepted frame, before it is acknowledged.
//!
//! - `files`: its segments. `record`: a frame with its checksum. `segment`: reads a segment after a crash.

pub(crate) mod files;
pub(crate) mod record;
pub(crate) mod segment;
