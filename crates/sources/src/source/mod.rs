//! The parts of a source: declaration, options, sink of its samples, bounds of its values, errors.
//!
//! - `spec`: the declaration. `options`: its settings. `sink`: receives its samples. `value_bounds`: impossible
//!   values. `error`: absent, denied, broken.

pub(crate) mod error;
pub(crate) mod options;
pub(crate) mod sink;
pub(crate) mod spec;
pub(crate) mod value_bounds;
