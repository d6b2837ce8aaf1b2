//! Sources: resource use of this node and its jobs, one file for each family of counters.
//!
//! A source reads counters on request, gives each its meaning and base unit, and pushes samples into
//! a [`Sink`]. It knows neither the agent that calls it, nor the network, nor the store. To add one:
//! a file in `list/`, and its word in [`SOURCES`].

pub mod list;
mod reading;
mod source;
mod task_attribution;

pub use list::SOURCES;
pub use source::error::SourceError;
pub use source::options::{OptionError, Options};
pub use source::sink::{
    MetricRef, PartState, RingLimits, SERIES_PER_SOURCE_MAX, SampleWriter, Sink, SinkCounts,
    SinkPosition,
};
pub use source::spec::{Context, Every, IdleQueues, Open, RunSamples, Source, SourceSpec};
pub use source::value_bounds::ValueBounds;
