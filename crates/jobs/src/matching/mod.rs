//! Which visits make one run, and which record belongs to it.

pub(crate) mod join;
pub(crate) mod visits;
