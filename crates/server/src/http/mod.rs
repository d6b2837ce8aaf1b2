//! Listeners, bodies, parameters, and the limits of connections and of questions.
//!
//! - `listen`: sockets. `connection_limits`: how many connections. `body`: bodies, bounded for each sender.
//! - `params`, `selection`: parameters, and what they select. `query_executor`: questions on threads, with a time limit.

pub(crate) mod body;
pub(crate) mod connection_limits;
pub(crate) mod listen;
pub(crate) mod params;
pub(crate) mod query_executor;
pub(crate) mod selection;
