//! Limits of everything on the wire, and their errors.

use model::{BatchError, LabelsError, MetricError, NameError};

/// Maximum number of metrics in a table.
pub const METRICS_MAX: usize = 4096;
/// Maximum number of series in a table.
pub const SERIES_MAX: usize = 65_536;
/// Maximum number of ticks in a batch.
pub const TICKS_MAX: usize = 65_536;
/// Maximum number of gaps in a batch.
pub const GAPS_MAX: usize = 1024;
/// Maximum number of job events in a batch.
pub const JOBS_MAX: usize = 4096;
/// Maximum length of the text of a job ID.
pub const DISPLAY_ID_BYTES_MAX: usize = 64;
/// Maximum number of OOM kills in a job event.
pub const OOM_KILLS_MAX: usize = 64;
/// Maximum length of a killed task's name: the kernel's names have 15 bytes, each printed as up to four.
pub const TASK_BYTES_MAX: usize = 64;
/// Maximum length of a job's `JOBMETER_MONITOR`.
pub const MONITOR_BYTES_MAX: usize = 1024;
/// Maximum length of an encoded table.
pub const TABLE_BYTES_MAX: usize = 8 << 20;
/// Maximum length of a decompressed payload.
pub const PAYLOAD_BYTES_MAX: usize = 16 << 20;
/// Maximum length of a help, reason or detail.
pub const TEXT_BYTES_MAX: usize = 500;
/// Maximum length of a source's name in a gap.
pub const GAP_SOURCE_BYTES_MAX: usize = 64;

/// A field that exceeds its limit or is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// The head is missing at the beginning of the payload, or occurs twice with different values.
    #[error(
        "the batch does not start with its origin, boot and number, or one of them is \
             duplicate"
    )]
    Head,
    /// `boot` is not 16 bytes.
    #[error("the boot ID has {0} bytes, but needs 16")]
    Boot(usize),
    /// Too many entries.
    #[error("the batch has {count} {what}; {max} at most")]
    Count {
        /// The kind of entries.
        what: &'static str,
        /// Their number.
        count: usize,
        /// The maximum.
        max: usize,
    },
    /// A text or block of bytes is too long.
    #[error("the {what} has {bytes} bytes; {max} at most")]
    Bytes {
        /// The field.
        what: &'static str,
        /// Its length.
        bytes: usize,
        /// The maximum.
        max: usize,
    },
    /// The columns of the table have different lengths.
    #[error("the table's column {column} has {length} entries for {want} series")]
    Column {
        /// The column.
        column: &'static str,
        /// Its length.
        length: usize,
        /// The length of `series_metric`.
        want: usize,
    },
    /// An index beyond the end of a list.
    #[error("the table refers to {what} {place}, but there are {length}")]
    Place {
        /// The list.
        what: &'static str,
        /// The index.
        place: u64,
        /// Entries of the list.
        length: usize,
    },
    /// An unknown number.
    #[error("this version knows no {what} {number}")]
    Word {
        /// Unit, kind, cause or status.
        what: &'static str,
        /// The number.
        number: u32,
    },
    /// A job without a cluster, or a cluster without a job.
    #[error("series {0} has a job ID without a cluster, or a cluster without a job ID")]
    HalfJob(usize),
    /// A job ID out of range.
    #[error("{0} is not a job ID; job IDs are 1 to 9223372036854775807")]
    Job(u64),
    /// A time out of range.
    #[error("tick {0} is outside the valid range of times")]
    Instant(usize),
    /// A header that is not base64.
    #[error("the header is not base64")]
    Base64,
    /// A setting without a value, or with a type that this version does not know.
    #[error("a setting has no value of a known type")]
    Untyped,
    /// More or fewer values than samples.
    #[error("the batch has {samples} samples and {values} values")]
    Values {
        /// Entries of `ref`.
        samples: usize,
        /// Entries of `step` and `real`.
        values: usize,
    },
    /// An invalid name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// Invalid labels.
    #[error(transparent)]
    Labels(#[from] LabelsError),
    /// An invalid metric.
    #[error(transparent)]
    Metric(#[from] MetricError),
    /// Inconsistent parts.
    #[error(transparent)]
    Batch(#[from] BatchError),
}

/// Fails if `count` exceeds `max`.
pub(crate) const fn count(what: &'static str, count: usize, max: usize) -> Result<(), LimitError> {
    if count > max { Err(LimitError::Count { what, count, max }) } else { Ok(()) }
}

/// Fails if `bytes` exceeds `max`.
pub(crate) const fn bytes(what: &'static str, bytes: usize, max: usize) -> Result<(), LimitError> {
    if bytes > max { Err(LimitError::Bytes { what, bytes, max }) } else { Ok(()) }
}
