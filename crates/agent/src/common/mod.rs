//! What every part uses: clocks, waits, private files, threads, the error of a start.

pub(crate) mod backoff;
pub(crate) mod clock;
pub(crate) mod files;
pub(crate) mod print;
pub(crate) mod schedule;
pub(crate) mod start_error;
pub(crate) mod threads;
