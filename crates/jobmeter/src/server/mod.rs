//! The server, as commands ask it; text of others made harmless, and a line on work that takes long.
//!
//! - `client`: requests. `unreachable`, `unknown`: why one failed, and what was meant. `plain`: text made harmless. `progress`: long work.
//!   `streamed`: answers that end early.

pub(crate) mod client;
pub(crate) mod plain;
pub(crate) mod progress;
pub(crate) mod streamed;
pub(crate) mod unknown;
pub(crate) mod unreachable;
