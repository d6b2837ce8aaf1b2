//! Sockets on loopback: hostile peers, limits, and libzmq at the other end.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on fails"
)]
#![expect(clippy::disallowed_methods, reason = "tests start programs and bound their time")]
#![expect(clippy::indexing_slicing, reason = "small and known")]

mod hostile;
mod kit;
mod limits;
mod pyzmq;
