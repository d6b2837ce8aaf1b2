//! What a source is: its declaration, its options, where its samples go, why it gave nothing.

pub(crate) mod error;
pub(crate) mod options;
pub(crate) mod sane;
pub(crate) mod sink;
pub(crate) mod spec;
