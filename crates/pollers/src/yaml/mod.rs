//! YAML as PyYAML's safe loader reads it: YAML 1.1 with `yes`, `on`, octal numbers and merge keys.
//!
//! - `value`: a node of a document, with its line
//! - `scalar`: which type an unquoted scalar has
//! - `loader`: the events of the parser as one node
//!
//! `saphyr-parser` reads the syntax; types, tags, anchors and merge keys are decided here
//! (docs/decisions/0036-description-files.md).

mod loader;
mod scalar;
mod value;

pub use loader::{YamlError, load};
pub use value::{Node, Value};
