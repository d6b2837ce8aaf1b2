//! Outputs over a store: what reaches the files of the output `file`.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]
#![expect(clippy::disallowed_methods, reason = "tests wait for threads")]
#![expect(clippy::indexing_slicing, reason = "small and known")]

mod colmet;
mod files;
mod fills;
mod kit;
mod resend;
mod windows;
