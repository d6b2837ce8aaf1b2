//! Tests of the store on a real PostgreSQL.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod conforming;
mod exchange;
mod faults;
mod hypertables;
mod other_rows;
mod partitions;
mod read_connections;
mod records;
mod rejected_rows;
mod rollup_partitions;
mod rows;
mod server;
