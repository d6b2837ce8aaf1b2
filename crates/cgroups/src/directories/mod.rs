//! Cgroup directories: owners and creation times, paths, and the tree of relevant ones.
//!
//! - `tree`: directories as last seen. `facts`: owner and time. `paths`: a stack of paths. `sluid`: a job
//!   ID from a SLUID.

pub(crate) mod facts;
pub(crate) mod paths;
pub(crate) mod sluid;
pub(crate) mod tree;
