//! Encoding of text: CSV cells, columns of lists and large numbers.

pub(crate) mod columns;
pub(crate) mod csv;
pub(crate) mod digits;
