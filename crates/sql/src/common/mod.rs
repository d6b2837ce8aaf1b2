//! Table columns, errors, and limits on statements.
//!
//! - `dialect`: the parser of statements. `schema`: tables and columns.
//! - `error`, `error_texts`, `value_codes`: errors, with text for the statement's author, and their codes.
//! - `complexity`, `memory`, `statement_limits`: limits.

pub(crate) mod complexity;
pub(crate) mod dialect;
pub(crate) mod error;
pub(crate) mod error_texts;
pub(crate) mod memory;
pub(crate) mod schema;
pub(crate) mod statement_limits;
pub(crate) mod value_codes;
pub(crate) mod wire;
