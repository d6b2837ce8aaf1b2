//! The store from outside: what is acknowledged is there, once, whatever happens to disk and process.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]
#![expect(clippy::indexing_slicing, clippy::cast_possible_wrap, reason = "small and known")]

mod archive;
mod basics;
mod disk;
mod faults;
mod killed;
mod kit;
mod limits;
mod merging;
mod model;
mod reading;
mod retention;
mod senders;
mod verify;
