//! Listeners, bodies, parameters, and the limits of connections and of questions.

pub(crate) mod body;
pub(crate) mod connection_limits;
pub(crate) mod listen;
pub(crate) mod params;
pub(crate) mod query_executor;
pub(crate) mod selection;
