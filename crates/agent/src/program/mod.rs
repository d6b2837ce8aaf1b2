//! The whole agent: start, signals, changes by the server, end.
//!
//! - `main_loop`: start, threads, end. `signals`. `change`: what the server changes. `once`: one tick.

pub(crate) mod change;
pub(crate) mod main_loop;
pub(crate) mod once;
pub(crate) mod signals;
