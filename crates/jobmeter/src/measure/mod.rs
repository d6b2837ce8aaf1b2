//! Commands that measure: run.

pub(crate) mod exec;
pub(crate) mod run;
