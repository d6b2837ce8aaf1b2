//! The store from outside: acknowledged samples are there, once, whatever happens to disk and process.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "tests kill programs, take the time, and say what did not run"
)]
#![expect(clippy::indexing_slicing, clippy::cast_possible_wrap, reason = "small and known")]

mod archive;
mod basics;
#[path = "../../examples/numbered/check.rs"]
mod check;
mod conforming;
mod faults;
mod followers;
mod kit;
mod limits;
mod meanwhile;
mod merging;
mod model;
#[path = "../../examples/numbered/numbers.rs"]
mod numbers;
mod reading;
mod retention;
mod senders;
mod stores;
