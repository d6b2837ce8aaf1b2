//! SQL over the store. DataFusion plans and runs SELECT statements on tables. Their rows come from crate `query`,
//! so that SQL and `get_metrics` agree. [`arrow`] re-exports the types of DataFusion in this crate's interface.
//!
//! A statement may only read: DDL, DML, SET, COPY and files are rejected. EXPLAIN shows how a SELECT is processed.
//! [`Limits`] bounds the resources of a statement. `docs/reference/tables.md` describes the tables.

mod common;
mod functions;
mod statements;

pub use common::error::SqlError;
pub use common::schema::{Column, is_json};
pub use common::statement_limits::{Limit, Load};
pub use common::wire::{Parameter, WireStatement, type_of};
pub use datafusion::arrow;
pub use functions::instants::Zone;
pub use functions::job_requests::{
    DEFAULT_JOB_REQUESTS, JobRequest, JobRequestError, read_job_requests,
};
pub use functions::values::text_casts::{Interval, element_text, interval, interval_text};
pub use statements::encoding::{Encoding, Form};
pub use statements::engine::{Limits, Piece, Sql, SqlRows};
pub use statements::worker::child::{Encode, NewEncoder, WorkerBounds, run as run_worker};
pub use statements::worker::pool::Launch;

/// The columns of a table, or of the rows of a function, in their order.
pub fn columns(name: &str) -> Option<Vec<(&'static str, Column)>> {
    let table = common::schema::Table::every().find(|table| table.name() == name)?;
    Some(table.columns().iter().map(|(name, kind, _)| (*name, *kind)).collect())
}

/// Names of the tables.
pub fn tables() -> impl Iterator<Item = &'static str> {
    common::schema::Table::ALL.into_iter().map(common::schema::Table::name)
}
