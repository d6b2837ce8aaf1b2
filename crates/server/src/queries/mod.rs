//! Queries about stored data, and their responses.
//!
//! - `answers`: runs a query and returns JSON. `series`, `nodes`, `statements` (SQL), `kwollect`, `job_metrics`: the queries.
//! - `slow_query_log`: logs slow queries.

pub(crate) mod answers;
pub(crate) mod job_metrics_route;
pub(crate) mod kwollect_routes;
pub(crate) mod node_routes;
pub(crate) mod postgrest;
pub(crate) mod rest_routes;
pub(crate) mod series_routes;
pub(crate) mod slow_query_log;
pub(crate) mod sql_routes;
