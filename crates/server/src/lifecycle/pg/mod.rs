//! PostgreSQL's protocol: sessions of psql, Grafana, pandas and other clients (decision 0052).
//!
//! - `listener`: sockets and connections. `startup`: TLS, authentication and cancellation. `input`: messages of a client,
//!   with limits of time and size.
//! - `session`: the messages of a session, in their order. `extended`: prepared statements and portals. `named`: PREPARE and EXECUTE.
//!   `commands`: statements that need no engine. `cursors`: portals by name. `statement_rows`: rows of a statement.
//! - `writes`: INSERT and COPY. `session_settings`: parameters of a session. `reports`: errors as clients receive them.

mod commands;
mod cursors;
mod extended;
mod input;
pub(crate) mod listener;
mod named;
mod reports;
mod session;
mod session_settings;
mod startup;
mod statement_rows;
mod writes;
