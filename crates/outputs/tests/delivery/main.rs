//! Outputs over a store: what reaches the files of the output `file`.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]
#![expect(clippy::disallowed_methods, reason = "tests wait for threads")]
#![expect(clippy::indexing_slicing, reason = "small and known")]

mod collector;
mod colmet;
mod documents;
mod elasticsearch;
mod files;
mod fills;
mod index_server;
mod kit;
mod resend;
mod windows;
