//! Which texts are near each other, and which can be printed.

pub(crate) mod near;
pub(crate) mod printable;
