//! The server, as commands ask it; text of others made harmless, and a line on work that takes long.

pub(crate) mod client;
pub(crate) mod plain;
pub(crate) mod progress;
pub(crate) mod unknown;
pub(crate) mod unreachable;
