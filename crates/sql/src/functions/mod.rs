//! What a statement may call, and how its texts, times and names are read.

pub(crate) mod guard;
pub(crate) mod headers;
pub(crate) mod information;
pub(crate) mod instants;
pub(crate) mod label_functions;
pub(crate) mod string_limits;
pub(crate) mod to_char;
