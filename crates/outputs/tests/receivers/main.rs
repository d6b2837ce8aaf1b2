//! Outputs beside the real receivers, on loopback.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]
#![expect(clippy::disallowed_methods, reason = "tests wait for programs")]
#![expect(clippy::indexing_slicing, reason = "small and known")]

#[path = "../delivery/documents.rs"]
mod documents;
#[path = "../delivery/kit.rs"]
#[allow(dead_code, reason = "the tests of files use the rest")]
mod kit;
mod opensearch;
mod search_server;
