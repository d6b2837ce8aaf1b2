//! The interface of a store under check.

use model::{Batch, DeviceId, Gap, JobKey, Metric, Rollup, Series, Timestamp};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// A store under check. Every call waits until it is done; a call that fails panics.
pub trait Subject: Sized + Sync {
    /// The lengths of windows that the store keeps, in microseconds, each a multiple of the one before.
    const WINDOWS_US: [i64; 2] = [300 * Timestamp::SECOND, 3600 * Timestamp::SECOND];

    /// A new empty store with these limits, on this clock.
    fn open(rules: &Rules, clock: &Clock) -> Self;

    /// The same store after a restart of its process.
    #[must_use]
    fn reopen(self) -> Self;

    /// Appends batches, each with its time of receipt, in one call; returns one outcome for each.
    fn append(&self, batches: Vec<(Batch, Timestamp)>) -> Vec<Outcome>;

    /// Does all due maintenance at once: writes the samples in memory, merges, rolls up, settles, deletes.
    fn maintain(&self);

    /// The samples of a query, series by series in the order of [`Series`], each ordered by time.
    fn scan(&self, query: &Query) -> Vec<Sample>;

    /// The windows of a query that begin within its interval, ordered like samples. `sum` and `integral` are
    /// optional for metrics with a name that ends in `_total`; `resets` and `before_resets` are optional for others.
    fn windows(&self, query: &Query, window_us: i64) -> Vec<Window>;

    /// The newest sample of each live series of a query, whatever the query's interval.
    fn last(&self, query: &Query) -> Vec<Sample>;

    /// The counter starts of a query: the first sample of each run of one start.
    fn counter_starts(&self, query: &Query) -> Vec<(Series, Timestamp, Timestamp)>;

    /// The gaps that touch an interval, bounds inclusive, of one device or of all, ordered by `from`.
    fn gaps(&self, from: Timestamp, to: Timestamp, device: Option<&DeviceId>) -> Vec<Gap>;

    /// The meaning of every metric, ordered by name.
    fn metrics(&self) -> Vec<Metric>;

    /// Earlier late samples are rejected; `None` while all are accepted.
    fn settled(&self) -> Option<Timestamp>;

    /// Deleted samples since the store was created.
    fn samples_removed(&self) -> u64;
}

/// The limits of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// A boot without a batch for this time leaves the dedup window.
    pub dedup_window_us: i64,
    /// A missing number counts as a gap once the batch after it is this old.
    pub missing_grace_us: i64,
    /// How long late samples are accepted.
    pub late_max_us: i64,
    /// Length of the ranges that are settled at a time, a multiple of the longest window.
    pub settle_step_us: i64,
    /// Older samples are deleted once they are settled. A store may delete them late, together with adjacent
    /// ones, and never early.
    pub keep_samples_us: i64,
    /// The same for windows, of each length.
    pub keep_windows_us: [i64; 2],
    /// Most live series.
    pub series_max: usize,
    /// Most of them from one origin.
    pub series_per_origin_max: usize,
    /// A series without samples for this time is no longer live.
    pub series_idle_us: i64,
}

/// The limits of a store that keeps everything; missing batches are gaps at once.
impl Default for Rules {
    fn default() -> Self {
        const DAY: i64 = 24 * 3600 * Timestamp::SECOND;
        Self {
            dedup_window_us: 8 * DAY,
            missing_grace_us: 0,
            late_max_us: 7 * DAY,
            settle_step_us: DAY,
            keep_samples_us: i64::MAX,
            keep_windows_us: [i64::MAX; 2],
            series_max: 100_000,
            series_per_origin_max: 10_000,
            series_idle_us: DAY / 24,
        }
    }
}

/// A clock that stands still until it is moved.
#[derive(Clone, Debug)]
pub struct Clock(Arc<AtomicI64>);

impl Clock {
    /// A clock that shows this time, in microseconds since 1970.
    pub fn at(now: i64) -> Self {
        Self(Arc::new(AtomicI64::new(now)))
    }

    /// Moves it.
    pub fn set(&self, now: i64) {
        self.0.store(now, Ordering::SeqCst);
    }

    /// Its time.
    pub fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

/// The outcome of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Stored: it is durable and can be queried.
    Stored {
        /// Number of rejected samples.
        samples_rejected: u32,
        /// The reason; empty if none was rejected.
        reason: String,
    },
    /// A duplicate: it was stored before, and is stored once.
    Duplicate,
    /// Rejected permanently.
    RejectedPermanently(String),
    /// Rejected temporarily.
    RejectedTemporarily(String),
}

impl Outcome {
    /// Stored with all its samples.
    pub const STORED: Self = Self::Stored { samples_rejected: 0, reason: String::new() };
}

/// Selects samples. The default selects all of them.
#[derive(Clone, Debug)]
pub struct Query {
    /// Only of these devices.
    pub devices: Option<BTreeSet<DeviceId>>,
    /// Only of these metrics.
    pub metrics: Option<BTreeSet<Arc<str>>>,
    /// By job attribution.
    pub job: JobFilter,
    /// Only of series with this label and value.
    pub label: Option<(String, String)>,
    /// Start of the interval, inclusive.
    pub from: Timestamp,
    /// End of the interval, inclusive.
    pub to: Timestamp,
}

impl Default for Query {
    fn default() -> Self {
        let (from, to) = (Timestamp(i64::MIN), Timestamp(i64::MAX));
        Self { devices: None, metrics: None, job: JobFilter::Any, label: None, from, to }
    }
}

/// Selects by job attribution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobFilter {
    /// Any job, or none.
    Any,
    /// Not attributed to a job: the device as a whole.
    None,
    /// This one.
    Is(JobKey),
    /// This one or none.
    NoneOrIs(JobKey),
}

/// A sample as a store returns it.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Its series.
    pub series: Series,
    /// Its instant.
    pub at: Timestamp,
    /// The value, in the series' unit.
    pub value: f64,
    /// The counter's start, if known.
    pub start: Option<Timestamp>,
}

/// Compares bits, so that NaN equals itself.
impl PartialEq for Sample {
    fn eq(&self, other: &Self) -> bool {
        (&self.series, self.at, self.value.to_bits(), self.start)
            == (&other.series, other.at, other.value.to_bits(), other.start)
    }
}

/// A window as a store returns it.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    /// Its series.
    pub series: Series,
    /// Its start.
    pub start: Timestamp,
    /// The rollup of its samples.
    pub rollup: Rollup,
}
