//! What a source is: its declaration, its options, where its samples go, why it gave nothing.
//!
//! - `spec`: the declaration. `options`: what can be set. `sink`: where samples go. `sane`: impossible values. `error`: absent, denied, broken.

pub(crate) mod error;
pub(crate) mod options;
pub(crate) mod sane;
pub(crate) mod sink;
pub(crate) mod spec;
