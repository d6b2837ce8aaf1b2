//! Tests of commands with servers that answer from a table: termination, exit codes and output.
#![expect(clippy::unwrap_used, reason = "tests end at the first surprise")]

mod compare;
mod every_command;
mod exits;
mod extract;
mod faulty_files;
mod hostile;
mod import;
mod lists;
mod messages;
mod serve;
