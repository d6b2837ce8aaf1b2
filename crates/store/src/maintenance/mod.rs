//! The thread that maintains blocks: merges, builds rollups, moves to the archive, deletes.
//!
//! - `compactor`: the thread and its order of work. `merging`: many blocks into one. `rollups`: windows of
//!   five minutes and an hour.
//! - `retention`: deletion by age and size. `archive`: blocks on another file system.

pub(crate) mod archive;
pub(crate) mod compactor;
pub(crate) mod merging;
pub(crate) mod retention;
pub(crate) mod rollups;
