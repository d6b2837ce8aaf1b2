//! Functions of statements, and handling of their texts, times and column names.
//!
//! - `age`, `label_functions`, `to_char`, `to_timestamp`, `string_limits`: functions.
//! - `values`: literals, division, and texts of values.
//! - `float_extremes`: `min` and `max` of values.
//! - `instants`: times in texts.
//! - `headers`: column names.
//! - `job_requests`: a site's own statements about a job.
//! - `guard`: deadline of a statement.
//! - `information`: `SHOW TABLES`, `DESCRIBE`.

pub(crate) mod age;
pub(crate) mod float_extremes;
pub(crate) mod guard;
pub(crate) mod headers;
pub(crate) mod information;
pub(crate) mod instants;
pub(crate) mod job_requests;
pub(crate) mod label_functions;
pub(crate) mod parameters;
pub(crate) mod pg_catalog;
pub(crate) mod string_limits;
pub(crate) mod to_char;
pub(crate) mod to_timestamp;
pub(crate) mod values;
