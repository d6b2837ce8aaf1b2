//! The commands beside servers that answer from a table: that they end, with which code, and what they print.
#![expect(clippy::unwrap_used, reason = "tests end at the first surprise")]

mod every_command;
mod exits;
mod hostile;
mod messages;
mod serve;
