//! Questions to the registry.
//!
//! - `ask`: one job. `list`: many, a page at a time. `check`: where schedulers and nodes disagree.

pub(crate) mod ask;
pub(crate) mod check;
pub(crate) mod list;
