//! Tables' columns, errors, and the bounds of memory and of turns.
//!
//! - `schema`: tables and columns. `error`, `words`: errors in the words of who wrote the statement. `complexity`, `memory`, `turns`: bounds.

pub(crate) mod complexity;
pub(crate) mod error;
pub(crate) mod memory;
pub(crate) mod schema;
pub(crate) mod turns;
pub(crate) mod words;
