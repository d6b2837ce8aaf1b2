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

mod alias;
mod by_job;
mod check;
mod encode;
mod ended;
mod error;
mod explain;
mod get_metrics;
mod jobless;
mod line;
mod lists;
mod marks;
mod merge;
mod nodes;
mod own;
mod print;
mod questions;
mod range;
mod range_gaps;
mod range_holes;
mod range_line;
mod report;
mod rows;
mod shown;
mod sight;
mod silent;
mod slices;
mod summary;
mod time;
mod totals;

pub use api::parse_zone;
pub use ended::how_it_ended;
pub use error::QueryError;
pub use get_metrics::{Answer, Format, GetMetrics};
pub use lists::gap;
pub use marks::{SeenMark, SeenMarks};
pub use nodes::{judge, patience};
pub use questions::{Asker, Cancel, Questions, RangeQuestion, Rate, Settings, Watch};
pub use rows::{Line, RowBatch, RowQuestion, Rows, StartRow, View};
pub use shown::shown;
pub use sight::NodeSight;
pub use slices::AsRate;
pub use time::parse_time;
