//! The nouns of the system: no I/O, no clock, no threads. Every other crate may use this one, and it
//! uses none.
//!
//! A *metric* is a quantity with a unit and a kind. A *series* is a metric of a device, possibly of one
//! job, possibly of one part of the device (its *labels*). A *sample* is the value of a series at a time. A
//! *batch* is the samples that one origin sealed together: the unit of spool, transfer, log and
//! acknowledgement. A *gap* records missing samples and their cause. Configuration and sources share the
//! types and the notation of *settings*: [`setting`].

mod batch;
mod gap;
mod increase;
mod job;
mod job_facts;
mod labels;
mod metric;
mod names;
mod node_list;
mod rollup;
mod series;
pub mod setting;
mod text;
mod time;

pub use batch::{
    Batch, BatchError, Boot, SAMPLES_PER_BATCH_MAX, SeriesEntry, SeriesTable, Tick, poll_instants,
};
pub use gap::{Cause, Gap};
pub use increase::{Increase, Point, increase, increases};
pub use job::{Allocation, Job, JobEvent, JobState, OomKill, REJECTED_REQUEST};
pub use job_facts::{FactColumn, FactKind, FactValue, JobFacts, Resources};
pub use labels::{JsonObjects, LABELS_BYTES_MAX, Labels, LabelsError, USER_LABEL, json_text};
pub use metric::{Kind, METRIC_NAME_BYTES_MAX, Metric, MetricError, Unit};
pub use names::{
    ClusterId, DeviceId, FOREIGN_BYTES_MAX, JobId, JobKey, NAME_BYTES_MAX, NameError, Origin, WORD,
    is_word,
};
pub use node_list::{HostsError, NODE_LIST_BYTES_MAX, NodeList, NodeListError, expand_hosts};
pub use rollup::{Rollup, RollupWindows, SEGMENT_MAX_US};
pub use series::Series;
pub use text::near::nearest;
pub use text::printable::{is_unprintable, printable};
pub use time::{TimeError, Timestamp};
