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
//! - `other_rows`: series of rows that other programs write.
//! - `reading`: `session` is one read transaction, `view` what one query sees, `window_scan` its windows, `snapshot` its interface.
//! - `writing`: `writer` is the thread that stores batches, `commit` what it stores at once, `rejected_rows` finds rows that the database rejects.
//!   `discovery` looks for series in old rows, `late_rollups` computes rollups again, `maintenance` settles time; `partitions` creates
//!   them, `partition_drain` fills them from the default partition, `retention` deletes what is too old. `maintenance_connection`
//!   has its statements.
//! - `exchange`: tables that the server shares with people and other programs.
//! - `shared`: state of all threads. `store`: all of it.

mod check;
mod connection;
mod copy;
mod exchange;
mod other_rows;
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
