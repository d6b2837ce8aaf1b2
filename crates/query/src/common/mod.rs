//! Times, printed values and errors, as PostgreSQL and PostgREST have them.
//!
//! - `error`: why there is no answer. `print`: values and times. `time`: the parser of times.

pub(crate) mod error;
pub(crate) mod print;
pub(crate) mod time;
