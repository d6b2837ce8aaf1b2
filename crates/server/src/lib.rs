//! The server: batches in over HTTP, questions out, pages beside them.
//!
//! ```text
//! listen ─► accept (who is at the other end?) ─► gate (Host, Origin, caller) ─► router
//!             POST /v1/batches ─► decoding ─► store ─► registry of jobs ─► acks
//!             questions ─► work (turns, an end, cancelled with the connection) ─► query, sql
//! ```
//!
//! [`Server`] is the whole of it; the program `jobmeter-server` adds flags, signals and the runtime file.

mod accept;
mod access;
mod account_routes;
mod agents;
mod answers;
mod app;
mod audit;
mod audit_lines;
mod authentication;
mod believed;
mod body;
mod caller;
mod certificate;
pub mod check;
mod claims;
mod clock;
mod connection;
mod counts;
mod csv;
mod declared_metrics;
mod decoding;
mod demand_follower;
mod demand_routes;
mod exposition;
mod gate;
mod ingest;
mod job_file;
mod job_routes;
mod job_told;
mod keep;
mod kwollect;
mod life;
mod listen;
mod live;
mod made_tokens;
mod name_service;
mod nodes;
mod ondemand;
mod openapi;
mod own_device;
mod pages;
mod params;
mod peer;
mod plans;
mod problem;
mod promotion_routes;
mod recorded;
mod rounds;
mod router;
mod rule_actions;
mod scheduler_routes;
mod seats;
mod selection;
mod send_limits;
mod series;
mod settings;
mod silent_jobs;
mod slow;
pub mod sql_worker;
mod staff_groups;
mod staff_refresh;
mod statements;
mod store_halves;
mod table;
mod tasks;
mod timed;
mod tls;
mod token_routes;
mod tokens;
mod told_jobs;
mod upkeep;
mod user_numbers;
mod users;
mod work;

pub use life::{Server, Settings, StartError};
pub use live::LiveError;
pub use plans::PlanError;
pub use recorded::Recorded;
pub use settings::Limits;
pub use tls::{TlsError, TlsFiles};
pub use tokens::SecretError;

/// What the wall clock shows, for the log.
pub fn now() -> model::Timestamp {
    clock::now()
}

#[cfg(test)]
mod tests;
