//! What one job used, and how it ended.

pub(crate) mod ended;
pub(crate) mod report;
pub(crate) mod totals;
