//! Outputs and the real programs that receive them.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]
#![expect(clippy::disallowed_methods, reason = "tests wait for threads and programs")]
#![expect(clippy::indexing_slicing, reason = "small and known")]

mod graphite;
