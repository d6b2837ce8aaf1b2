//! What each program can be told.

pub(crate) mod agent;
pub(crate) mod client;
pub(crate) mod command;
pub(crate) mod remote;
pub(crate) mod schedulers;
pub(crate) mod server;
pub(crate) mod variables;
