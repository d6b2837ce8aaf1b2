//! Sources: what this node and its jobs use, one file for each family of counters.
//!
//! A source reads counters when told to, gives each its meaning and base unit, and pushes samples into
//! a [`Sink`]. It knows neither the agent that calls it, nor the network, nor the store. To add one:
//! a file in this folder, and its word in [`SOURCES`].

mod error;
mod exits;
mod file;
pub mod list;
pub mod mapping;
mod options;
mod parts;
mod sane;
mod sink;
mod spec;
mod table;
mod values;
mod wrapping;

pub use error::SourceError;
pub use list::SOURCES;
pub use options::{OptionError, Options};
pub use sane::Sane;
pub use sink::{Keep, Mark, Of, PartState, SERIES_PER_SOURCE_MAX, Sink, SinkCounts};
pub use spec::{Context, Every, Open, Quiet, Source, SourceSpec};
