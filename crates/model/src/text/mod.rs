//! Similarity of texts, and printable characters.

pub(crate) mod near;
pub(crate) mod printable;
