//! Colmet's records, formats and names, without input or output.
//!
//! [`backends`] has a table for each backend: its columns, their types, and their equivalents here. All formats have the
//! same [`record::Record`]: the messages of Python nodes ([`frame`]), those of Rust nodes ([`msgpack`]), and the text of
//! the collector ([`text`]). [`names`] maps columns to metrics and back, and [`counter_names`] reads and writes the files
//! that name counters. [`fructosa`] has the equivalents of FrUCToSA's sensors. [`reference()`] prints all equivalents.

pub mod backends;
pub mod counter_names;
pub mod equivalent;
pub mod formula;
pub mod frame;
pub mod fructosa;
pub mod msgpack;
pub mod names;
pub mod record;
mod reference;
pub mod text;

pub use reference::{Section, programs, reference};
