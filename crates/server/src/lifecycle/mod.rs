//! The server is checked, started, and stopped; connections are accepted.
//!
//! - `server`: start, reload, stop. `accept`: connections. `check`: everything that start would reject. `recorded`: the runtime file.
//! - `retention`: what is kept how long. `sql_worker`: the process that executes SQL. `store_halves`: the two sides of the store.

pub(crate) mod accept;
pub mod check;
pub(crate) mod recorded;
pub(crate) mod retention;
pub(crate) mod server;
pub mod sql_worker;
pub(crate) mod store_halves;
