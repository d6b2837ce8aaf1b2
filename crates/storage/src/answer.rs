//! The store's answers: samples by series and by time, last values, starts, origins, statistics.

use crate::append::Outcome;
use model::{Boot, DeviceId, Kind, Origin, Rollup, Series, Timestamp, Unit};
use std::cmp::Ordering;
use std::sync::Arc;

/// A series with the meaning of its values.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeriesInfo {
    /// Its identity.
    pub series: Series,
    /// Unit of its values.
    pub unit: Unit,
    /// Gauge or counter.
    pub kind: Kind,
    /// Steps in one unit, as last reported. Answers give values in the unit, already divided.
    pub divisor: u32,
}

impl SeriesInfo {
    /// Whether two belong to one series. Live series are shared, so comparing addresses mostly suffices.
    pub fn same(a: &Arc<Self>, b: &Arc<Self>) -> bool {
        Arc::ptr_eq(a, b) || a.series == b.series
    }

    /// The order of two series.
    pub fn order(a: &Arc<Self>, b: &Arc<Self>) -> Ordering {
        if Arc::ptr_eq(a, b) { Ordering::Equal } else { a.series.cmp(&b.series) }
    }
}

/// Samples of one series, ordered by time.
///
/// A scan returns the chunks of a series one after another, and the series in the order of [`Series`]. A
/// batch sent several times is stored once.
/// If two batches contain a value for one series and instant, both are kept, in an order that does not
/// change. A reader that needs one takes the last.
#[derive(Clone, Debug, PartialEq)]
pub struct Chunk {
    /// The series; the same `Arc` for all its chunks in one scan.
    pub series: Arc<SeriesInfo>,
    /// Instants, in microseconds since 1970, ascending.
    pub times: Vec<i64>,
    /// Values, in the series' unit. As many as `times`. [`Self::NO_VALUE`]: the sample has none.
    pub values: Vec<f64>,
    /// Counter starts, run by run: the first row of the run, and the start that its samples carry, if any.
    /// The first run begins at row 0; neighbours differ.
    pub starts: Vec<(usize, Option<Timestamp>)>,
}

impl Chunk {
    /// Most rows of a chunk.
    pub const ROWS_MAX: usize = 64 << 10;

    /// Stands for SQL's NULL, which other programs write into a database: a NaN with bits that no computation returns.
    pub const NO_VALUE: f64 = f64::from_bits(0x7ff8_6e75_6c6c_0000);

    /// Whether a sample has a value.
    pub const fn has_value(value: f64) -> bool {
        value.to_bits() != Self::NO_VALUE.to_bits()
    }

    /// Instant, value and start of each sample.
    pub fn rows(&self) -> impl Iterator<Item = (Timestamp, f64, Option<Timestamp>)> {
        let mut runs = self.starts.iter().copied().peekable();
        let mut start = None;
        self.times.iter().zip(&self.values).enumerate().map(move |(row, (at, value))| {
            while let Some((_, next)) = runs.next_if(|(first, _)| *first <= row) {
                start = next;
            }
            (Timestamp(*at), *value, start)
        })
    }
}

/// Windows of one series, ordered by time.
#[derive(Clone, Debug, PartialEq)]
pub struct Windows {
    /// The series.
    pub series: Arc<SeriesInfo>,
    /// The start of each window, and its rollup. A metric with a name that ends in `_total` has neither `sum`
    /// nor `integral`: they are NaN.
    pub windows: Vec<(Timestamp, Rollup)>,
}

/// Samples of several series, ordered by time; samples of one instant are ordered by series.
#[derive(Clone, Debug, PartialEq)]
pub struct TimeSlice {
    /// The series of the rows, in the order of [`Series`]. Another slice of the same scan may have other series
    /// at the same positions, but always the same `Arc` for the same series.
    pub series: Vec<Arc<SeriesInfo>>,
    /// Each row's position in `series`.
    pub places: Vec<u32>,
    /// Each row's instant, in microseconds since 1970.
    pub times: Vec<i64>,
    /// Each row's value, in its series' unit.
    pub values: Vec<f64>,
    /// Each row's counter start, in microseconds since 1970; [`Self::NO_START`] if unknown.
    pub starts: Vec<i64>,
}

impl TimeSlice {
    /// In `starts`: the start is unknown.
    pub const NO_START: i64 = i64::MIN;
}

/// The newest sample of a series.
#[derive(Clone, Debug, PartialEq)]
pub struct LastValue {
    /// The series.
    pub series: Arc<SeriesInfo>,
    /// Its instant.
    pub at: Timestamp,
    /// The value, in the series' unit.
    pub value: f64,
    /// The counter's start, if known.
    pub start: Option<Timestamp>,
}

/// A counter start within the query's interval: a restart, or the first known start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterStart {
    /// The series.
    pub series: Arc<SeriesInfo>,
    /// The first sample with this start.
    pub at: Timestamp,
    /// The instant at which the counter was zero.
    pub start: Timestamp,
}

/// What the store knows about a sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginInfo {
    /// Its name.
    pub origin: Origin,
    /// Time of receipt of its last batch, by this machine's clock.
    pub received: Timestamp,
    /// The last instant of the newest batch (highest boot and number), by the sender's clock.
    pub sealed: Timestamp,
    /// How far the sender's clock was ahead of (or, negative, behind) this machine's clock, in microseconds,
    /// when its newest batch arrived: `sealed` minus the time of receipt. A delayed batch also makes it negative.
    pub clock_offset_us: i64,
    /// Batches received and stored since the directory was created.
    pub batches: u64,
    /// Samples stored since then.
    pub samples: u64,
    /// Samples rejected since then.
    pub samples_rejected: u64,
    /// The boots within the dedup window, newest last.
    pub boots: Vec<BootInfo>,
    /// The devices of its samples; at most [`Self::DEVICES_MAX`] are remembered.
    pub devices: Vec<DeviceId>,
}

impl OriginInfo {
    /// Most devices remembered for an origin.
    pub const DEVICES_MAX: usize = 4096;
}

/// What the store knows about one boot of a sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootInfo {
    /// Its ID.
    pub boot: Boot,
    /// Time of receipt of its last batch.
    pub received: Timestamp,
    /// The highest number seen.
    pub last_seq: u64,
    /// Numbers below it that are missing, counted from the first one seen.
    pub missing: u64,
    /// Its first and last instant, by the sender's clock; `None`: it sent no sample.
    pub instants: Option<(Timestamp, Timestamp)>,
}

/// Several origins send samples of the same series: two machines claim one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The device of the shared series.
    pub device: DeviceId,
    /// The origins, each with the time of receipt of its last batch.
    pub origins: Vec<(Origin, Timestamp)>,
    /// One of the series.
    pub example: Series,
}

/// The store's statistics, for `/metrics` and the health page.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// Live series in memory.
    pub series: u64,
    /// Metrics in the catalogue.
    pub metrics: u64,
    /// Samples in memory, not yet in a block.
    pub head_samples: u64,
    /// Their bytes.
    pub head_bytes: u64,
    /// Log segments on disk.
    pub log_segments: u64,
    /// Bytes of log on disk.
    pub log_bytes: u64,
    /// Blocks.
    pub blocks: u64,
    /// Size of the rollup files on disk.
    pub block_bytes: u64,
    /// Samples in them.
    pub block_samples: u64,
    /// Blocks in the archive.
    pub archived_blocks: u64,
    /// Their bytes.
    pub archived_bytes: u64,
    /// Batches that wait for the write to the log.
    pub queue_batches: u64,
    /// Their bytes.
    pub queue_bytes: u64,
    /// Batches stored since the start of this process.
    pub batches_stored: u64,
    /// Duplicate batches.
    pub batches_duplicate: u64,
    /// Batches rejected permanently.
    pub batches_rejected: u64,
    /// Batches rejected temporarily: queue full, log full, disk full, or the store is behind.
    pub batches_deferred: u64,
    /// Samples stored since the start of this process.
    pub samples_stored: u64,
    /// Samples rejected: impossible time, too many series, another unit.
    pub samples_rejected: u64,
    /// Group commits.
    pub commits: u64,
    /// Seconds spent in fdatasync.
    pub fsync_seconds: f64,
    /// The longest fdatasync, in seconds.
    pub fsync_seconds_max: f64,
    /// Failed appends to the log.
    pub log_errors: u64,
    /// Failed writes of blocks; the server tries again.
    pub flush_errors: u64,
    /// Merges of adjacent blocks into one.
    pub merges: u64,
    /// Bytes of the merged blocks.
    pub merged_bytes: u64,
    /// Failed merges. Each is tried again; an unreadable block after an hour.
    pub merge_errors: u64,
    /// Failed steps that settle rollups, archive a block or delete something; each is tried again.
    pub retain_errors: u64,
    /// Rollup files.
    pub rollups: u64,
    /// Their bytes.
    pub rollup_bytes: u64,
    /// Late samples before this instant are rejected, in microseconds since 1970; `None` while all are accepted.
    pub settled: Option<Timestamp>,
    /// Samples deleted by retention since the directory was created.
    pub samples_removed: u64,
    /// Rows of other programs in a database that no answer can show.
    pub rows_hidden: u64,
    /// The last error of log, block or merge, if the last try failed.
    pub last_failure: Option<String>,
    /// Gaps stored.
    pub gaps: u64,
    /// Gaps evicted because there were too many.
    pub gaps_forgotten: u64,
    /// What scans read from blocks since the start of this process.
    pub read: ReadCounts,
    /// Connections that queries opened to a database since the start of this process.
    pub read_connections_opened: u64,
    /// Connections that are open and without a query.
    pub read_connections_kept: u64,
    /// Queries that waited for a free connection.
    pub read_waits: u64,
}

impl Stats {
    /// Counts the outcome of a batch.
    pub const fn count(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Stored { .. } => self.batches_stored += 1,
            Outcome::Duplicate => self.batches_duplicate += 1,
            Outcome::RejectedPermanently(_) | Outcome::RejectedWhole { .. } => {
                self.batches_rejected += 1;
            }
            Outcome::RejectedTemporarily(_) => self.batches_deferred += 1,
        }
    }
}

/// Amounts read from blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadCounts {
    /// Bytes, metadata included.
    pub bytes: u64,
    /// Row groups with a relevant row.
    pub row_groups: u64,
    /// Rows decoded.
    pub rows: u64,
}
