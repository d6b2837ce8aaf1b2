//! HTTP: listeners, bodies, parameters, and limits of connections and queries.
//!
//! - `listen`: sockets. `connection_limits`: number of connections. `body`: bodies, limited per sender.
//! - `params`, `selection`: parameters, and what they select. `query_executor`: queries on threads, with a
//!   time limit. `compression`: gzip and Zstandard. `sent_body`: what a response occupies until it is sent.
//! - `pg_sessions`: sessions of PostgreSQL's protocol: limits and keys.

pub(crate) mod body;
pub(crate) mod compression;
pub(crate) mod connection_limits;
pub(crate) mod listen;
pub(crate) mod params;
pub(crate) mod pg_sessions;
pub(crate) mod query_executor;
pub(crate) mod selection;
pub(crate) mod sent_body;
