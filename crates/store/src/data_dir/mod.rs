//! A data folder as a whole: opened, checked, copied.
//!
//! - `open`: the manifest, blocks and log become a store. `recovery`: what that repaired.
//! - `verify`: every checksum, without changes. `backup`: a copy of one moment.

pub(crate) mod backup;
pub(crate) mod open;
pub(crate) mod recovery;
pub(crate) mod verify;
