//! Queries of the registry.
//!
//! - `ask`: one job. `list`: many jobs, a page at a time. `check`: disagreements between schedulers and
//!   nodes.

pub(crate) mod ask;
pub(crate) mod check;
pub(crate) mod list;
