//! SQL over the store: SELECT statements, planned and run by DataFusion on tables whose rows come from
//! crate `query`, so that SQL and `get_metrics` agree. The types of DataFusion that leave this crate are
//! re-exported as [`arrow`].
//!
//! A statement may read, and nothing else: DDL, DML, SET, COPY and files are refused. EXPLAIN tells how a SELECT
//! is answered. What a statement may take is bounded by [`Limits`]. The tables are described in `docs/reference/tables.md`.

mod common;
mod functions;
mod statements;

pub use common::error::SqlError;
pub use common::turns::{Limit, Load, NoTurn, Turn, Turns};
pub use datafusion::arrow;
pub use functions::instants::Zone;
pub use statements::engine::{Limits, Piece, Sql, SqlRows};
pub use statements::worker::child::{Encode, NewEncoder, WorkerBounds, run as run_worker};
pub use statements::worker::pool::Launch;

/// The names of the tables.
pub fn tables() -> impl Iterator<Item = &'static str> {
    common::schema::Table::ALL.into_iter().map(common::schema::Table::name)
}
