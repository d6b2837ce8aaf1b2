//! Utilities of all parts: clocks, delays, counters, private files, threads and errors.
//!
//! - `clock`: all code that reads a clock.
//! - `backoff`: delays between retries.
//! - `counters`: counters of the parts.
//! - `boot`: random ID of a start.
//! - `files`: private files and checksums.
//! - `threads`: threads whose panic ends the program.
//! - `error`: reasons why a delivery does not start.

pub(crate) mod backoff;
pub(crate) mod boot;
pub(crate) mod clock;
pub(crate) mod counters;
pub(crate) mod error;
pub(crate) mod files;
pub(crate) mod threads;
