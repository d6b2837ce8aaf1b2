//! From a sealed batch to the server's acknowledgement.
//!
//! - `queue`, `keeper`: sealed batches become frames. `outbox`: frames in memory, with the spool behind. `dispatch`: what is sent next.
//! - `sender`: the thread that sends. `delivery_threads`: both threads, started and ended together.

pub(crate) mod delivery_threads;
pub(crate) mod dispatch;
pub(crate) mod keeper;
pub(crate) mod outbox;
pub(crate) mod queue;
pub(crate) mod sender;
