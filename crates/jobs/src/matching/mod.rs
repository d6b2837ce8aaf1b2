//! Groups visits into runs and finds the record of each run.
//!
//! - `visits`: groups visits into runs. `join`: assigns records to runs.

pub(crate) mod join;
pub(crate) mod visits;
