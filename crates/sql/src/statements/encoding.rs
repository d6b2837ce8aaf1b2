//! The form of a result.

use crate::common::wire::WireStatement;
use query::Format;

/// The form of a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Encoding {
    /// JSON or CSV.
    pub format: Format,
    /// As PostgREST: JSON contains the labels as objects, else they are texts; and without ORDER BY the rows have the order
    /// of the table.
    pub like_postgrest: bool,
}

impl From<Format> for Encoding {
    fn from(format: Format) -> Self {
        Self { format, like_postgrest: false }
    }
}

/// The form of a result for its encoder.
#[derive(Clone, Copy, Debug)]
pub enum Form<'a> {
    /// Text.
    Text(Encoding),
    /// Messages of PostgreSQL's protocol.
    Wire(&'a WireStatement),
}
