//! Cells of CSV, columns, digits.

pub(crate) mod columns;
pub(crate) mod csv;
pub(crate) mod digits;
