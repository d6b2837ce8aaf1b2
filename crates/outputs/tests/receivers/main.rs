//! Outputs beside the real receivers, which the tests start and stop.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on fails"
)]
#![expect(clippy::disallowed_methods, reason = "tests start programs and bound their time")]
#![expect(clippy::indexing_slicing, reason = "small and known")]

mod colmet;
#[path = "../delivery/documents.rs"]
mod documents;
mod graphite;
mod hdf5;
#[allow(dead_code, reason = "the tests of delivery use the rest")]
#[path = "../delivery/kit.rs"]
mod kit;
mod opensearch;
mod search_server;
