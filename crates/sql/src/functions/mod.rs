//! Functions of statements, and handling of their texts, times and column names.
//!
//! - `label_functions`, `to_char`, `string_limits`: functions.
//! - `instants`: times in texts.
//! - `headers`: column names.
//! - `guard`: deadline of a statement.
//! - `information`: `SHOW TABLES`, `DESCRIBE`.

pub(crate) mod guard;
pub(crate) mod headers;
pub(crate) mod information;
pub(crate) mod instants;
pub(crate) mod label_functions;
pub(crate) mod parameters;
pub(crate) mod pg_catalog;
pub(crate) mod string_limits;
pub(crate) mod to_char;
