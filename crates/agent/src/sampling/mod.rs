//! The tick: what is read next, the thread that reads, and what all of it shares.

pub(crate) mod context;
pub(crate) mod reader_thread;
pub(crate) mod sampler;
pub(crate) mod waiter;
