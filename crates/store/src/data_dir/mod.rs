//! Operations on a whole data directory: open, verify, copy.
//!
//! - `open`: builds a store from the manifest, blocks and log. `threads`: starts its threads. `recovery`: the repairs of opening.
//!   `latest`: the newest samples of live series.
//! - `verify`: checks every checksum without changes. `backup`: a consistent copy.

pub(crate) mod backup;
mod latest;
pub(crate) mod open;
pub(crate) mod recovery;
mod threads;
pub(crate) mod verify;
