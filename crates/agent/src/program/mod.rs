//! The agent as a program: startup, signals, changes by the server, and shutdown.
//!
//! - `main_loop`: startup, threads and shutdown.
//! - `signals`: SIGTERM, SIGINT and SIGHUP.
//! - `change`: changes by the server.
//! - `once`: `--once`.

pub(crate) mod change;
pub(crate) mod main_loop;
pub(crate) mod once;
pub(crate) mod signals;
