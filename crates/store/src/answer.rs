//! What the store tells: samples by series and by time, last values, starts, origins, its own state.

use model::{Boot, DeviceId, Kind, Origin, Series, Timestamp, Unit};
use std::cmp::Ordering;
use std::sync::Arc;

/// A series, with what its values mean.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeriesInfo {
    /// Its identity.
    pub series: Series,
    /// Unit of its values.
    pub unit: Unit,
    /// How they move.
    pub kind: Kind,
    /// Steps in one unit, as last told; values are given in the unit, already divided.
    pub divisor: u32,
}

impl SeriesInfo {
    /// Whether two are of one series. Those alive are shared, so a look at the address mostly does.
    pub(crate) fn same(a: &Arc<Self>, b: &Arc<Self>) -> bool {
        Arc::ptr_eq(a, b) || a.series == b.series
    }

    /// The order of two series.
    pub(crate) fn order(a: &Arc<Self>, b: &Arc<Self>) -> Ordering {
        if Arc::ptr_eq(a, b) { Ordering::Equal } else { a.series.cmp(&b.series) }
    }
}

/// Samples of one series, in the order of time.
///
/// A scan gives the chunks of a series one after another, and the series in the order of [`Series`]. Each
/// batch is kept once however often it is sent. Two batches that tell a value for one series and instant
/// are both kept, one after the other, in an order that does not change; who needs one takes the last.
#[derive(Clone, Debug, PartialEq)]
pub struct Chunk {
    /// What the samples are of; the same `Arc` for all chunks of a series in one scan.
    pub series: Arc<SeriesInfo>,
    /// Instants, in microseconds since 1970, ascending.
    pub times: Vec<i64>,
    /// Values, in the series' unit. As many as `times`.
    pub values: Vec<f64>,
    /// When the counter was zero, run by run: the first row of the run, and the start its samples
    /// carry, if they carry one. The first run begins at row 0; neighbours differ.
    pub starts: Vec<(usize, Option<Timestamp>)>,
}

impl Chunk {
    /// Most rows of a chunk.
    pub const ROWS_MAX: usize = 64 << 10;

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

/// Samples of several series, in the order of time; those of one instant in the order of their series.
#[derive(Clone, Debug, PartialEq)]
pub struct TimeSlice {
    /// The series that the rows are of, in the order of [`Series`]. Another slice of the same walk may
    /// have other series at the same places, but always the same `Arc` for the same series.
    pub series: Vec<Arc<SeriesInfo>>,
    /// Each row's place in `series`.
    pub places: Vec<u32>,
    /// Each row's instant, in microseconds since 1970.
    pub times: Vec<i64>,
    /// Each row's value, in its series' unit.
    pub values: Vec<f64>,
    /// When each row's counter was zero, in microseconds since 1970; [`Self::NO_START`] where it does
    /// not tell.
    pub starts: Vec<i64>,
}

impl TimeSlice {
    /// In `starts`: no start is known.
    pub const NO_START: i64 = i64::MIN;
}

/// The newest sample of a series.
#[derive(Clone, Debug, PartialEq)]
pub struct LastValue {
    /// Of what.
    pub series: Arc<SeriesInfo>,
    /// When.
    pub at: Timestamp,
    /// The value, in the series' unit.
    pub value: f64,
    /// When the counter was zero, where it tells.
    pub start: Option<Timestamp>,
}

/// A counter that began anew, or told its start for the first time within the question's interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterStart {
    /// Of what.
    pub series: Arc<SeriesInfo>,
    /// The first sample with this start.
    pub at: Timestamp,
    /// When the counter was zero.
    pub start: Timestamp,
}

/// What is known of a sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginInfo {
    /// Who.
    pub origin: Origin,
    /// When its last batch was received, by this machine's clock.
    pub received: Timestamp,
    /// The last instant of the newest batch (highest boot and number), by the sender's clock.
    pub sealed: Timestamp,
    /// How much later (or, negative, earlier) the sender's clock said it was than ours, in
    /// microseconds, when its newest batch arrived: `sealed` minus the time of receipt. A batch that
    /// waited makes it negative too.
    pub clock_offset_us: i64,
    /// Batches received and stored since the directory was made.
    pub batches: u64,
    /// Samples stored since then.
    pub samples: u64,
    /// Samples refused since then.
    pub samples_refused: u64,
    /// The boots within the dedupe window, newest last.
    pub boots: Vec<BootInfo>,
    /// The devices it sent samples of; at most [`Self::DEVICES_MAX`] are remembered.
    pub devices: Vec<DeviceId>,
}

impl OriginInfo {
    /// Most devices remembered for an origin.
    pub const DEVICES_MAX: usize = 4096;
}

/// What is known of one start of a sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootInfo {
    /// Which.
    pub boot: Boot,
    /// When its last batch was received.
    pub received: Timestamp,
    /// The highest number seen.
    pub last_seq: u64,
    /// Numbers below it that have not been seen, since the first that was.
    pub missing: u64,
    /// Its first and last instant, by the sender's clock; `None`: it sent no sample.
    pub instants: Option<(Timestamp, Timestamp)>,
}

/// Several origins that send samples of the same series: two machines that claim one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The device whose series they share.
    pub device: DeviceId,
    /// Who, with the time of receipt of each one's last batch.
    pub origins: Vec<(Origin, Timestamp)>,
    /// One of the series.
    pub example: Series,
}

/// The store's own state, for `/metrics` and the health page.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// Series alive in memory.
    pub series: u64,
    /// Metrics in the catalogue.
    pub metrics: u64,
    /// Samples in memory, in no block yet.
    pub head_samples: u64,
    /// Bytes they take.
    pub head_bytes: u64,
    /// Log segments on disk.
    pub log_segments: u64,
    /// Bytes of log on disk.
    pub log_bytes: u64,
    /// Blocks.
    pub blocks: u64,
    /// Their bytes on disk.
    pub block_bytes: u64,
    /// Samples in them.
    pub block_samples: u64,
    /// Blocks that lie in the archive.
    pub archived_blocks: u64,
    /// Their bytes.
    pub archived_bytes: u64,
    /// Batches waiting for the log.
    pub queue_batches: u64,
    /// Bytes of them.
    pub queue_bytes: u64,
    /// Batches stored since the start of this process.
    pub batches_stored: u64,
    /// Batches that had been stored before.
    pub batches_duplicate: u64,
    /// Batches refused for good.
    pub batches_refused: u64,
    /// Batches refused for now: queue full, log full, disk full, or the store behind.
    pub batches_deferred: u64,
    /// Samples stored since the start of this process.
    pub samples_stored: u64,
    /// Samples refused: impossible time, too many series, another unit.
    pub samples_refused: u64,
    /// Group commits.
    pub commits: u64,
    /// Seconds spent in fdatasync.
    pub fsync_seconds: f64,
    /// The longest fdatasync, in seconds.
    pub fsync_seconds_max: f64,
    /// Appends to the log that failed.
    pub log_errors: u64,
    /// Blocks that could not be written; each is tried again.
    pub flush_errors: u64,
    /// Merges of neighbouring blocks into one.
    pub merges: u64,
    /// Bytes of the blocks that were merged.
    pub merged_bytes: u64,
    /// Merges that failed; each is tried again, a block that cannot be read after an hour.
    pub merge_errors: u64,
    /// Steps that settle rollups, move a block to the archive or let something go and failed; each is
    /// tried again.
    pub retain_errors: u64,
    /// Files of rollups.
    pub rollups: u64,
    /// Their bytes.
    pub rollup_bytes: u64,
    /// Late samples are refused before it, in microseconds since 1970; none while all are taken.
    pub settled: Option<Timestamp>,
    /// Samples let go since the directory was made.
    pub samples_removed: u64,
    /// The last error of log, block or merge, if the last try failed.
    pub trouble: Option<String>,
    /// Gaps kept.
    pub gaps: u64,
    /// Gaps forgotten because there were too many.
    pub gaps_forgotten: u64,
    /// What scans read from blocks since the start of this process.
    pub read: ReadCounts,
}

/// What was read from blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadCounts {
    /// Bytes, metadata included.
    pub bytes: u64,
    /// Row groups that had a row of interest.
    pub row_groups: u64,
    /// Rows decoded.
    pub rows: u64,
}
