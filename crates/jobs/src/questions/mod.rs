//! Questions to the registry.

pub(crate) mod ask;
pub(crate) mod check;
pub(crate) mod list;
