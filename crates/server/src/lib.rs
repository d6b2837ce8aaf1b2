//! The server: receives batches over HTTP, answers queries and serves the web pages.
//!
//! ```text
//! listen ─► accept (who is at the other end?) ─► gate (Host, Origin, caller) ─► router
//!             POST /v1/batches ─► decoding ─► store ─► registry of jobs ─► acks
//!             queries ─► query executor (concurrency and time limits, cancelled with the connection) ─► query, sql
//! ```
//!
//! [`Server`] is the entry point. The program `jobmeter-server` adds flags, signals and the runtime file.

mod api;
mod app;
mod auth;
mod background;
mod common;
mod http;
mod ingest;
mod lifecycle;
mod queries;
mod reloadable_config;
mod schedulers;
mod web;

pub use auth::tls::{TlsError, TlsFiles};
pub use auth::tokens::SecretError;
pub use common::limits::Limits;
pub use control::{AgentConfigError, RuleError};
pub use lifecycle::runtime_file::RuntimeFile;
pub use lifecycle::server::{Server, Settings, StartError};
pub use lifecycle::stores::StoreError;
pub use lifecycle::{check, poller_process, sql_worker};
pub use reloadable_config::{LiveErrors, ReloadError, is_reloadable};
pub use schedulers::database_addresses::SettingError;

/// Returns the wall-clock time, for the log.
pub fn now() -> model::Timestamp {
    common::clock::now()
}

#[cfg(test)]
mod tests;
