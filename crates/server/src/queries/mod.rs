//! Queries about stored data, and their responses.
//!
//! - `answers`: runs a query and returns JSON. `series`, `nodes`, `statements` (SQL), `kwollect`: the queries.
//! - `slow`: logs slow queries.

pub(crate) mod answers;
pub(crate) mod kwollect;
pub(crate) mod nodes;
pub(crate) mod series;
pub(crate) mod slow;
pub(crate) mod statements;
