//! The parts of a source: declaration, options, sink of its samples, bounds of its values, errors.
//!
//! - `spec`: the declaration. `options`: its settings. `sink`: receives its samples. `sane`: impossible
//!   values. `error`: absent, denied, broken.

pub(crate) mod error;
pub(crate) mod options;
pub(crate) mod sane;
pub(crate) mod sink;
pub(crate) mod spec;
