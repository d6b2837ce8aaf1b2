//! Times, printed values and errors, compatible with PostgreSQL and PostgREST.
//!
//! - `error`: query errors. `print`: values and times. `time`: the time parser.

pub(crate) mod error;
pub(crate) mod print;
pub(crate) mod time;
