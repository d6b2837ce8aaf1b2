//! Files of a data directory: the disk and its errors, file locations, and the encoding of small values.
//!
//! - `disk`: every call that reads or writes a file, so that tests can let each fail. `errors`: the error types.
//! - `layout`: the directories of a data directory. `varint`: numbers in few bytes. `point`: the order of storing.

pub(crate) mod disk;
pub(crate) mod errors;
pub(crate) mod layout;
pub(crate) mod point;
pub(crate) mod varint;
