//! Everything on the wire has a limit, and each limit its own error.

use model::{BatchError, LabelsError, MetricError, NameError};

/// Most metrics in a table.
pub const METRICS_MAX: usize = 4096;
/// Most series in a table.
pub const SERIES_MAX: usize = 65_536;
/// Most instants in a batch.
pub const TICKS_MAX: usize = 65_536;
/// Most gaps in a batch.
pub const GAPS_MAX: usize = 1024;
/// Most job events in a batch.
pub const JOBS_MAX: usize = 4096;
/// Longest spelling of a job's number.
pub const SPELLING_BYTES_MAX: usize = 64;
/// Most OOM kills in a job event.
pub const OOM_KILLS_MAX: usize = 64;
/// Longest name of a killed task: the kernel's have 15 bytes, each of which it may write as four.
pub const TASK_BYTES_MAX: usize = 64;
/// Longest value of a job's `JOBMETER_MONITOR`.
pub const MONITOR_BYTES_MAX: usize = 1024;
/// Longest table, encoded.
pub const TABLE_BYTES_MAX: usize = 8 << 20;
/// Longest payload, decompressed.
pub const PAYLOAD_BYTES_MAX: usize = 16 << 20;
/// Longest help, reason or detail.
pub const TEXT_BYTES_MAX: usize = 500;
/// Longest name of a source in a gap.
pub const GAP_SOURCE_BYTES_MAX: usize = 64;

/// A field beyond its limit, or nonsense in one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// Another origin, boot or number than the payload begins with, or none there.
    #[error("the batch does not begin with its origin, boot and number, or has two of one")]
    Head,
    /// `boot` is not 16 bytes.
    #[error("the boot has {0} bytes; 16 make one")]
    Boot(usize),
    /// Too many of something.
    #[error("the batch has {count} {what}; {max} at most")]
    Count {
        /// Of what.
        what: &'static str,
        /// How many.
        count: usize,
        /// How many may be.
        max: usize,
    },
    /// A text or block of bytes is too long.
    #[error("the {what} has {bytes} bytes; {max} at most")]
    Bytes {
        /// What.
        what: &'static str,
        /// How long.
        bytes: usize,
        /// How long it may be.
        max: usize,
    },
    /// The columns of the table have different lengths.
    #[error("the table's column {column} has {length} entries where {want} series are named")]
    Column {
        /// Which.
        column: &'static str,
        /// Its length.
        length: usize,
        /// The length of `series_metric`.
        want: usize,
    },
    /// A place in a list that is shorter.
    #[error("the table names {what} {place} of {length}")]
    Place {
        /// Which list.
        what: &'static str,
        /// The place.
        place: u64,
        /// Entries of the list.
        length: usize,
    },
    /// A number that stands for nothing.
    #[error("{number} is no {what} that this version knows")]
    Word {
        /// Unit, kind, cause or status.
        what: &'static str,
        /// The number.
        number: u32,
    },
    /// A job without a cluster, or a cluster without a job.
    #[error("series {0} has a job number without a cluster, or a cluster without a job number")]
    HalfJob(usize),
    /// A number of a job that is out of range.
    #[error("{0} is no job number: 1 to 9223372036854775807")]
    Job(u64),
    /// An instant out of range.
    #[error("tick {0} lies outside the range of instants")]
    Instant(usize),
    /// More or fewer values than samples.
    #[error("the batch has {samples} samples and {values} values")]
    Values {
        /// Entries of `ref`.
        samples: usize,
        /// Entries of `step` and `real`.
        values: usize,
    },
    /// A bad name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// Bad labels.
    #[error(transparent)]
    Labels(#[from] LabelsError),
    /// A bad metric.
    #[error(transparent)]
    Metric(#[from] MetricError),
    /// Parts that disagree.
    #[error(transparent)]
    Batch(#[from] BatchError),
}

/// Fails when there are more than `max`.
pub(crate) const fn count(what: &'static str, count: usize, max: usize) -> Result<(), LimitError> {
    if count > max { Err(LimitError::Count { what, count, max }) } else { Ok(()) }
}

/// Fails when it is longer than `max`.
pub(crate) const fn bytes(what: &'static str, bytes: usize, max: usize) -> Result<(), LimitError> {
    if bytes > max { Err(LimitError::Bytes { what, bytes, max }) } else { Ok(()) }
}
