//! Checks, starts and stops the server, and accepts its connections.
//!
//! - `server`: startup, reload, shutdown. `accept`: connections. `check`: every error that would prevent startup.
//! - `runtime_file`: the runtime file. `retention`: how long data is kept. `sql_worker`: the process that executes SQL.
//! - `poller_process`: the poller and the inputs that the server starts.
//! - `pg`: sessions of PostgreSQL's protocol.
//! - `data_folder`: everything in the data folder. `store_halves`: the two halves of the store. `stores`: the kind of store that the settings name.

pub(crate) mod accept;
pub mod check;
pub(crate) mod data_folder;
pub(crate) mod pg;
pub mod poller_process;
pub(crate) mod retention;
pub(crate) mod runtime_file;
pub(crate) mod server;
pub mod sql_worker;
pub(crate) mod startup_warnings;
pub(crate) mod store_halves;
pub(crate) mod stores;
