//! Encoding of text: CSV cells, columns of lists, large numbers and JSON.

pub(crate) mod columns;
pub(crate) mod csv;
pub(crate) mod digits;
pub(crate) mod json;
