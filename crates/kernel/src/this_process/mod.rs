//! The process itself: its memory, limits, children.
//!
//! - `command`, `sibling`: programs that are started. `confine`, `limits`, `heap`, `code`: limits and memory.
//!   `inherited`: sockets of systemd. `parent`: the process that started it.
//! - `allocations`: counted, for tests.

#[cfg(feature = "count-allocations")]
pub mod allocations;
pub mod child_program;
pub mod code;
pub mod confine;
pub mod heap;
pub mod inherited;
pub mod limits;
pub mod parent;
pub mod sibling;
