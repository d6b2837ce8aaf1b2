//! Directories of cgroups: who made them and when, their paths, the tree of those that matter.

pub(crate) mod facts;
pub(crate) mod paths;
pub(crate) mod sluid;
pub(crate) mod tree;
