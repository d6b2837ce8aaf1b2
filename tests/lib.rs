//! The whole-program tests are in `main.rs`; this crate has no code of its own.
