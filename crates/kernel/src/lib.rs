//! What the kernel says, as typed structs in the kernel's own units. No metrics here, and no meaning
//! beyond that of the kernel's documents.
//!
//! Reading and parsing are two things: a parser is a function from bytes to a struct and never
//! panics, whatever the bytes; [`Root`] is the only way to a machine's files, at `/` or under a
//! recorded copy.

pub mod loadavg;
pub mod parse;
mod root;

pub use root::{DirEntry, KeptFile, NodeKind, NodeStat, ReadError, Root};
