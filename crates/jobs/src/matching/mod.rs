//! Which visits make one run, and which record belongs to it.
//!
//! - `visits`: which visits are one run. `join`: which record belongs to it.

pub(crate) mod join;
pub(crate) mod visits;
