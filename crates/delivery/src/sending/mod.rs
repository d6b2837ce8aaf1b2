//! Sending: from a sealed batch to the server's acknowledgement.
//!
//! - `queue`, `encoder_thread`: sealed batches become frames.
//! - `outbox`: frames in memory, with the spool behind it.
//! - `dispatch`: choice of the next request.
//! - `sender`: the sender thread.
//! - `delivery_threads`: startup and shutdown of both threads.

pub(crate) mod delivery_threads;
pub(crate) mod dispatch;
pub(crate) mod encoder_thread;
pub(crate) mod outbox;
pub(crate) mod queue;
pub(crate) mod sender;
