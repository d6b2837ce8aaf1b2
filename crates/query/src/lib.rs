//! Queries: each is one typed value, answered from the embedded store and the job registry. Plain values and
//! iterators: no HTTP, no async runtime, no SQL. Callers wait asynchronously for the permit of a query
//! ([`ConcurrencyLimit`]).
//!
//! [`QueryEngine`] holds the store and the registry. [`QueryContext`] states the reader, the current time, and how to
//! cancel.
//!
//! - Kwollect's `get_metrics` is [`GetMetrics`]; the answer consists of pieces of JSON or CSV.
//! - The SQL tables are [`Rows`].
//! - Answers of `/api/v1` are types of crate `api`.
//!
//! ```text
//! store ─► slices (by time; summary, rates) ─► own, alias rows ─► merged ─► encoder
//!       └► chunks (by series) ──────────────► own, alias rows ─► by job ─► SQL
//! ```

mod answers;
mod common;
mod engine;
mod lists;
mod ranges;
mod reports;
mod rows;

pub use answers::encode::{encoded_rows, record_field};
pub use answers::get_metrics::{AnswerPieces, Format, GetMetrics};
pub use api::parse_zone;
pub use common::error::QueryError;
pub use common::print::double;
pub use common::time::parse_time;
pub use engine::access_filter::NodeAccess;
pub use engine::concurrency_limit::{ConcurrencyLimit, NoPermit, Permit};
pub use engine::entry_errors::EntryErrors;
pub use engine::query_engine::{
    Cancel, QueryContext, QueryEngine, RangeQuery, Rate, ReadObserver, Settings,
};
pub use lists::available::AvailableFilter;
pub use lists::devices::{DeviceFilter, PolledDevice};
pub use lists::listing::gap;
pub use lists::marks::{SeenMark, SeenMarks};
pub use lists::nodes::{judge, patience};
pub use lists::poll_summary::{PollSummary, PollerAge};
pub use reports::job_end::how_it_ended;
pub use rows::slices::AsRate;
pub use rows::table_rows::{Line, RowBatch, RowQuery, Rows, StartRow, View};
