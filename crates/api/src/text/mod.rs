//! Encoding of text: CSV cells, columns of lists, large numbers and JSON. Decoding of objects without repeated keys.

pub(crate) mod columns;
pub(crate) mod csv;
pub(crate) mod digits;
pub(crate) mod json;
pub(crate) mod unique_keys;
