//! The tick: the choice of the next reading, the thread that reads, and their shared context.
//!
//! - `sampler`: the choice of the next step, as a state machine.
//! - `reader_thread`: the thread that makes the steps.
//! - `waiter`: waiting for the next instant.
//! - `context`: what all of them share.

pub(crate) mod context;
pub(crate) mod reader_thread;
pub(crate) mod sampler;
pub(crate) mod waiter;
