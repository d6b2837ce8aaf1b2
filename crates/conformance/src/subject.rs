//! What a store has to offer to be checked.

use model::{Batch, DeviceId, Gap, JobKey, Metric, Rollup, Series, Timestamp};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// A store under check. Every call waits until what it asks for is done; a call that cannot be done panics.
pub trait Subject: Sized + Sync {
    /// The lengths of windows that the store keeps, in microseconds, each a multiple of the one before.
    const WINDOWS_US: [i64; 2] = [300 * Timestamp::SECOND, 3600 * Timestamp::SECOND];

    /// An empty store of its own, bound by these rules, that lives by this clock.
    fn open(rules: &Rules, clock: &Clock) -> Self;

    /// The same store after its process ended and began again.
    #[must_use]
    fn reopen(self) -> Self;

    /// Offers batches, each with when it was received, in one call; gives one outcome for each.
    fn append(&self, batches: Vec<(Batch, Timestamp)>) -> Vec<Outcome>;

    /// Does at once what the store does with age: writes out what is in memory, merges, rolls up,
    /// settles, forgets, lets go.
    fn keep_house(&self);

    /// The samples of a question, series by series in the order of [`Series`], each in the order of time.
    fn scan(&self, question: &Question) -> Vec<Sample>;

    /// The windows of a question that begin between its instants, ordered like samples. Of metrics whose
    /// name ends in `_total`, `sum` and `integral` need not be kept; of others, `resets` and
    /// `before_resets` need not.
    fn windows(&self, question: &Question, window_us: i64) -> Vec<Window>;

    /// The newest sample of each series of a question that is alive, whatever the question's instants.
    fn last(&self, question: &Question) -> Vec<Sample>;

    /// Since when the counters of a question count: the first sample of each run of one start.
    fn counter_starts(&self, question: &Question) -> Vec<(Series, Timestamp, Timestamp)>;

    /// The gaps that touch an interval, bounds inclusive, of one device or of all, ordered by `from`.
    fn gaps(&self, from: Timestamp, to: Timestamp, device: Option<&DeviceId>) -> Vec<Gap>;

    /// What every metric means, ordered by name.
    fn metrics(&self) -> Vec<Metric>;

    /// Before which late samples are refused; none while all are taken.
    fn settled(&self) -> Option<Timestamp>;

    /// Samples let go since the store was made.
    fn samples_removed(&self) -> u64;
}

/// What bounds a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// A boot without a batch for so long leaves the window in which duplicates are known.
    pub known_us: i64,
    /// A missing number counts as a gap when what came after it is so old.
    pub hole_grace_us: i64,
    /// Late samples are taken for so long.
    pub late_max_us: i64,
    /// Time is settled in stretches of so long, a multiple of the longest window.
    pub settle_step_us: i64,
    /// Samples that are older go, once they are settled. A store may let them go late, together with
    /// others that are written beside them, and never early.
    pub keep_samples_us: i64,
    /// The same of windows, of each length.
    pub keep_windows_us: [i64; 2],
    /// Most series alive.
    pub series_max: usize,
    /// Most of them of one origin.
    pub series_per_origin_max: usize,
    /// A series without samples for so long is alive no more.
    pub series_idle_us: i64,
}

/// The limits of a store that keeps everything; missing batches are gaps at once.
impl Default for Rules {
    fn default() -> Self {
        const DAY: i64 = 24 * 3600 * Timestamp::SECOND;
        Self {
            known_us: 8 * DAY,
            hole_grace_us: 0,
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
    /// A clock that shows this, in microseconds since 1970.
    pub fn at(now: i64) -> Self {
        Self(Arc::new(AtomicI64::new(now)))
    }

    /// Moves it.
    pub fn set(&self, now: i64) {
        self.0.store(now, Ordering::SeqCst);
    }

    /// What it shows.
    pub fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

/// What became of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is durable and can be queried.
    Stored {
        /// How many of its samples were refused.
        samples_refused: u32,
        /// Why; empty when none was.
        reason: String,
    },
    /// It was stored before, and is kept once.
    Duplicate,
    /// It never will be.
    RefusedForGood(String),
    /// Not now.
    RefusedForNow(String),
}

impl Outcome {
    /// Stored with all its samples.
    pub const STORED: Self = Self::Stored { samples_refused: 0, reason: String::new() };
}

/// Which samples are asked for. The default asks for all of them.
#[derive(Clone, Debug)]
pub struct Question {
    /// Only of these devices.
    pub devices: Option<BTreeSet<DeviceId>>,
    /// Only of these metrics.
    pub metrics: Option<BTreeSet<Arc<str>>>,
    /// Counted for which job.
    pub job: Which,
    /// Only of series that have this label with this value.
    pub label: Option<(String, String)>,
    /// From this instant on.
    pub from: Timestamp,
    /// Up to this instant, which belongs to it.
    pub to: Timestamp,
}

impl Default for Question {
    fn default() -> Self {
        let (from, to) = (Timestamp(i64::MIN), Timestamp(i64::MAX));
        Self { devices: None, metrics: None, job: Which::Any, label: None, from, to }
    }
}

/// For which job a series was counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// For any, or for none.
    Any,
    /// For none: the device as a whole.
    None,
    /// For this one.
    Is(JobKey),
    /// For this one or for none.
    NoneOrIs(JobKey),
}

/// A sample as a store tells it.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Of what.
    pub series: Series,
    /// When.
    pub at: Timestamp,
    /// The value, in the series' unit.
    pub value: f64,
    /// When the counter was zero, where it tells.
    pub start: Option<Timestamp>,
}

/// The same bits, so that what is no number is equal to itself.
impl PartialEq for Sample {
    fn eq(&self, other: &Self) -> bool {
        (&self.series, self.at, self.value.to_bits(), self.start)
            == (&other.series, other.at, other.value.to_bits(), other.start)
    }
}

/// A window as a store tells it.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    /// Of what.
    pub series: Series,
    /// Where it begins.
    pub start: Timestamp,
    /// What its samples come to.
    pub rollup: Rollup,
}
