//! The server is checked, started, and stopped; connections are accepted.

pub(crate) mod accept;
pub mod check;
pub(crate) mod recorded;
pub(crate) mod retention;
pub(crate) mod server;
pub mod sql_worker;
pub(crate) mod store_halves;
