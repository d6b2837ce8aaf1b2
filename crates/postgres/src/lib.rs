//! The store on PostgreSQL: samples are rows of `metrics` and of the schema `jobmeter`.
//!
//! One transaction stores many batches: their samples by a binary COPY, and the records of their senders. A batch is
//! acknowledged after its commit. Readers select series in memory, then read their samples by a portal of one
//! transaction, so each query sees one state of the database.
//!
//! - `connection`: a connection, and the errors of all. `schema`: whether the database can be used. `copy`: rows in the binary format of COPY.
//! - `check`: whether a server could use a database.
//! - `series_book`: the known series with their newest sample and counter starts.
//! - `records`: what is known of senders, in tables. `rollup_rows`: windows as rows.
//! - `reading`: `session` is one read transaction, `view` what one query sees, `window_scan` its windows, `snapshot` its interface.
//! - `writing`: `writer` is the thread that stores batches, `maintenance` settles time and deletes what is too old.
//! - `exchange`: tables that the server shares with people and other programs.
//! - `shared`: state of all threads. `store`: all of it.

mod check;
mod connection;
mod copy;
mod exchange;
mod reading;
mod records;
mod rollup_rows;
mod schema;
mod series_book;
mod shared;
mod store;
mod writing;

pub use check::check;
pub use connection::{Connecting, Connector, DatabaseError};
pub use shared::Settings;
pub use store::PostgresStore;
