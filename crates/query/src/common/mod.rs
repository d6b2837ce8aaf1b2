//! Times, printed values and errors, as PostgreSQL and PostgREST have them.

pub(crate) mod error;
pub(crate) mod print;
pub(crate) mod time;
