//! Queries: one read transaction each.

pub(crate) mod session;
mod snapshot;
pub(crate) mod view;
mod window_scan;
