//! Queries: one read transaction each.

mod other_series;
pub(crate) mod session;
mod snapshot;
pub(crate) mod view;
mod window_scan;
