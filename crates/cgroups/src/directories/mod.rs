//! Directories of cgroups: who made them and when, their paths, the tree of those that matter.
//!
//! - `tree`: directories as last seen. `facts`: owner and time. `paths`: paths that wait. `sluid`: a job's number from a SLUID.

pub(crate) mod facts;
pub(crate) mod paths;
pub(crate) mod sluid;
pub(crate) mod tree;
