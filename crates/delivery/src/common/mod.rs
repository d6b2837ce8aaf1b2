//! What every part uses: clocks, waits, counters, private files, threads, errors.
//!
//! - `clock`: all that reads a clock. `backoff`: how long to wait. `counters`: what the parts count. `boot`: random bits of a start.
//! - `files`: private files and checksums. `threads`: one that fails ends the program. `error`: why a delivery does not start.

pub(crate) mod backoff;
pub(crate) mod boot;
pub(crate) mod clock;
pub(crate) mod counters;
pub(crate) mod error;
pub(crate) mod files;
pub(crate) mod threads;
