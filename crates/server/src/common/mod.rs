//! Modules shared by the whole server: time, counters, error responses, limits and tasks.
//!
//! - `http_error`: error responses. `settings`: limits. `counts`: the counters of `/metrics`. `tasks`: tasks
//!   that run until the server stops.
//! - `json_error`: errors of JSON in words. `clock`, `timed`: time, and streams with a time limit. `csv`, `table`: rows as text.
//! - `pg_counts`: the counters of PostgreSQL's protocol. `pg_row_encoder`: rows as its messages. `instant_texts`: their times.
//! - `recent_value`: a value that is expensive to compute.

pub(crate) mod clock;
pub(crate) mod counts;
pub(crate) mod csv;
pub(crate) mod http_error;
pub(crate) mod instant_texts;
pub(crate) mod json_error;
pub(crate) mod limits;
pub(crate) mod pg_counts;
pub(crate) mod pg_row_encoder;
pub(crate) mod recent_value;
pub(crate) mod sql_row_encoder;
pub(crate) mod tasks;
pub(crate) mod timed;
