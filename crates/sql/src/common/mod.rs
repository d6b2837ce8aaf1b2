//! Tables' columns, errors, and the bounds of memory and of turns.

pub(crate) mod complexity;
pub(crate) mod error;
pub(crate) mod memory;
pub(crate) mod schema;
pub(crate) mod turns;
pub(crate) mod words;
