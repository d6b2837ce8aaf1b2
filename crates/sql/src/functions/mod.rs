//! What a statement may call, and how its texts, times and names are read.
//!
//! - `label_functions`, `to_char`, `string_limits`: functions. `instants`: times in texts. `headers`: names of columns. `guard`: ends a statement.
//! - `information`: `SHOW TABLES`, `DESCRIBE`.

pub(crate) mod guard;
pub(crate) mod headers;
pub(crate) mod information;
pub(crate) mod instants;
pub(crate) mod label_functions;
pub(crate) mod string_limits;
pub(crate) mod to_char;
