//! SQL over the store: SELECT statements, planned and run by DataFusion on tables whose rows come from
//! crate `query`, so that SQL and `get_metrics` agree. The types of DataFusion that leave this crate are
//! re-exported as [`arrow`].
//!
//! A statement may read, and nothing else: DDL, DML, SET, COPY and files are refused. EXPLAIN tells how a SELECT
//! is answered. What a statement may take is bounded by [`Limits`]. The tables are described in `docs/reference/tables.md`.

mod columns;
mod complexity;
mod engine;
mod error;
mod exec;
mod explain;
mod functions;
mod guard;
mod headers;
mod information;
mod instants;
mod meant;
mod memory;
mod narrow;
mod of_jobs;
mod provider;
mod run;
mod schema;
mod small;
mod state;
mod texts;
mod to_char;
mod turns;
mod words;
mod worker;

pub use datafusion::arrow;
pub use engine::{Limits, Piece, Sql, SqlRows};
pub use error::SqlError;
pub use instants::Zone;
pub use turns::{Limit, Load, NoTurn, Turn, Turns};
pub use worker::child::{Encode, NewEncoder, WorkerBounds, run as run_worker};
pub use worker::pool::Launch;

/// The names of the tables.
pub fn tables() -> impl Iterator<Item = &'static str> {
    schema::Table::ALL.into_iter().map(schema::Table::name)
}
