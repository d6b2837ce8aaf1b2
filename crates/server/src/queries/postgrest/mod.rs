//! PostgREST's form of a query: columns, conditions, order and window of the rows of a table or a function, as a
//! statement in SQL.
//!
//! The form is that of PostgREST 12, <https://docs.postgrest.org/en/v12/references/api/tables_views.html>, without
//! embedded resources and aggregates.
//!
//! ```text
//! query string ─► RowQuery (columns, conditions, order) ┐
//! headers ──────► Window (limit, offset, count) ────────┴─► statement ─► crate sql
//! ```

pub(crate) mod answer;
mod column_ref;
mod conditions;
mod cursor;
pub(crate) mod row_query;
mod selection;
mod window;
