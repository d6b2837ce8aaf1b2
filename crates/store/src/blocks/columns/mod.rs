//! Columns of a row group, encoded by the store itself: the Parquet library looks up or converts each row.
//!
//! - `rle_columns`: columns that are constant for thousands of rows. `value_columns`: values and instants.
//! - `column_chunk`: the pages of a column, and their place in the file. `delta`: integers as differences.

mod column_chunk;
mod delta;
mod rle_columns;
mod value_columns;

pub(super) use column_chunk::EncodedColumn;
pub(super) use rle_columns::{RunColumn, RunValue};
pub(super) use value_columns::{Effort, Pages, Presence, Value, ValueEncoder};
