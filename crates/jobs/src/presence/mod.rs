//! Where jobs were, when, and by whose report.
//!
//! - `allocations`: where a job was, and when. `verified_presence`: by more than its user's report. `granted`: what a node's report opens.

pub(crate) mod allocations;
pub(crate) mod granted;
pub(crate) mod verified_presence;
