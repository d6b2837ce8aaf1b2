//! The tick: what is read next, the thread that reads, and what all of it shares.
//!
//! - `sampler`: what to do next, as a machine of steps. `reader_thread`: the thread that does it. `waiter`: until the next instant. `context`: what all share.

pub(crate) mod context;
pub(crate) mod reader_thread;
pub(crate) mod sampler;
pub(crate) mod waiter;
