//! Whole-program tests live in `main.rs`; this crate has no code of its own.
