//! Who asks what, and what he may see.

pub(crate) mod access_filter;
pub(crate) mod questions;
