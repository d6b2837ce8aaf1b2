//! The questions: each is one typed value, answered from the embedded store and the registry of jobs.
//! Plain values and iterators: no HTTP, no async runtime, no SQL.
//!
//! [`Questions`] holds what is asked; [`Asker`] says for whom, when, and how to stop. Kwollect's
//! `get_metrics` is [`GetMetrics`] answered as pieces of JSON or CSV; the tables of SQL are [`Rows`];
//! what `/api/v1` tells are the types of crate `api`.
//!
//! ```text
//! store ─► slices (by time; summary, rates) ─► own, alias rows ─► merged ─► encoder
//!       └► chunks (by series) ──────────────► own, alias rows ─► by job ─► SQL
//! ```

mod answers;
mod asking;
mod common;
mod lists;
mod ranges;
mod reports;
mod rows;

pub use answers::get_metrics::{Answer, Format, GetMetrics};
pub use api::parse_zone;
pub use asking::access_filter::NodeSight;
pub use asking::questions::{Asker, Cancel, Questions, RangeQuestion, Rate, Settings, Watch};
pub use common::error::QueryError;
pub use common::time::parse_time;
pub use lists::listing::gap;
pub use lists::marks::{SeenMark, SeenMarks};
pub use lists::nodes::{judge, patience};
pub use lists::shown::shown;
pub use reports::ended::how_it_ended;
pub use rows::slices::AsRate;
pub use rows::table_rows::{Line, RowBatch, RowQuestion, Rows, StartRow, View};
