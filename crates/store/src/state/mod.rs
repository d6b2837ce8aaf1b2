//! What the store's threads share.
//!
//! - `shared`: queue, counters and locks. `view`: one moment of the store. `select`: which series a query wants.
//! - `manifest`: which blocks there are. `ledger`: changes of it. `flush_queue`, `maintenance_queue`: work for the threads.

pub(crate) mod flush_queue;
pub(crate) mod ledger;
pub(crate) mod maintenance_queue;
pub(crate) mod manifest;
pub(crate) mod select;
pub(crate) mod shared;
pub(crate) mod view;
