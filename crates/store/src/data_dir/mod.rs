//! Operations on a whole data directory: open, verify, copy.
//!
//! - `open`: builds a store from the manifest, blocks and log. `recovery`: the repairs of opening.
//!   `latest`: the newest samples of live series.
//! - `verify`: checks every checksum without changes. `backup`: a consistent copy.

pub(crate) mod backup;
mod latest;
pub(crate) mod open;
pub(crate) mod recovery;
pub(crate) mod verify;
