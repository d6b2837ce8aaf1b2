//! The whole agent: start, signals, changes by the server, end.

pub(crate) mod change;
pub(crate) mod main_loop;
pub(crate) mod once;
pub(crate) mod signals;
pub(crate) mod stepped;
