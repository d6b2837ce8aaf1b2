//! State that the store's threads share.
//!
//! - `shared`: queue, counters and locks. `view`: a consistent view of the store.
//! - `manifest`: the list of blocks. `ledger`: changes of it. `positions`, `points`, `rests`: those of followers. `flush_queue`, `maintenance_queue`: work for the threads.

pub(crate) mod flush_queue;
pub(crate) mod ledger;
pub(crate) mod maintenance_queue;
pub(crate) mod manifest;
pub(crate) mod points;
pub(crate) mod positions;
pub(crate) mod rests;
pub(crate) mod shared;
pub(crate) mod view;
