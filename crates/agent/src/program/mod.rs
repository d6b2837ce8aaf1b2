//! The agent as a program: startup, signals, changes by the server, and shutdown.
//!
//! - `main_loop`: startup, threads and shutdown.
//! - `signals`: SIGTERM, SIGINT and SIGHUP.
//! - `apply_settings`: changes by the server.
//! - `once`: `--once`.
//! - `sampling_alone`: the readings of another program.

pub(crate) mod apply_settings;
pub(crate) mod main_loop;
pub(crate) mod once;
pub(crate) mod sampling_alone;
pub(crate) mod signals;
