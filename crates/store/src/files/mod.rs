//! Files of a data folder: the disk and its errors, where each file is, and how small values are encoded.
//!
//! - `disk`: every call that reads or writes a file, so that tests can let each fail. `errors`: what can go wrong.
//! - `layout`: the directories of a data folder. `json`: the manifest's values as JSON. `varint`: numbers in few bytes. `lock`: a mutex after a panic.

pub(crate) mod disk;
pub(crate) mod errors;
pub(crate) mod json;
pub(crate) mod layout;
pub(crate) mod lock;
pub(crate) mod varint;
