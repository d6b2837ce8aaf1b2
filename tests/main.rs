//! Whole-program tests: one binary that runs the programs. Of jobmeter it links only `api`, `model` and `wire`, to send batches and to
//! request every operation.
//!
//! The programs are in the same build folder as this binary; `make test` builds them first.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "tests end at the first surprise, start programs, and take the time"
)]

mod attacks;
mod command;
mod common;
mod database;
mod node;
mod numbers;
mod repository;
mod schedulers;
mod server;
