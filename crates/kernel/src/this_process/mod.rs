//! The process itself: its memory, limits, children.

#[cfg(feature = "count-allocations")]
pub mod allocations;
pub mod code;
pub mod command;
pub mod confine;
pub mod heap;
pub mod inherited;
pub mod limits;
pub mod sibling;
