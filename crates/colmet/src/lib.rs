//! Colmet's records, formats and names, without input or output.
//!
//! [`backends`] has a table for each backend: its columns, their types, and their equivalents here. All formats have the
//! same [`record::Record`]: the messages of Python nodes ([`frame`]), and the text of the collector ([`text`]). [`reference()`] prints all equivalents, those of FrUCToSA's sensors too.

pub mod backends;
pub mod equivalent;
pub mod formula;
pub mod frame;
mod fructosa;
pub mod record;
mod reference;
pub mod text;

pub use reference::{Section, programs, reference};
