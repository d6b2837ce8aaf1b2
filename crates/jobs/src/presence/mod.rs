//! Where jobs were, when, and by whose report.

pub(crate) mod allocations;
pub(crate) mod granted;
pub(crate) mod verified_presence;
