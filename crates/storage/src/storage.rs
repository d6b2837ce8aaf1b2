//! The traits of a store and of a view of it.

use crate::answer::{
    Chunk, Claim, CounterStart, LastValue, OriginInfo, SeriesInfo, Stats, TimeSlice, Windows,
};
use crate::append::{Incoming, Outcome};
use crate::error::StorageError;
use crate::followers::Followers;
use crate::select::{Selector, SeriesCondition};
use crate::shared_tables::{JobsPart, OtherPromotions, PromotedRow};
use model::{DeviceId, Gap, JobId, Metric, Rollup, Timestamp};
use std::collections::BTreeSet;
use std::fmt::{self, Debug};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The lengths of stored rollup windows, in microseconds.
pub const WINDOWS_US: [i64; 2] = [300 * Timestamp::SECOND, 3600 * Timestamp::SECOND];

/// Returns the time: an argument, so that tests own it.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Called with one outcome for each batch, in order.
pub type Done = Box<dyn FnOnce(Vec<Outcome>) + Send>;

/// An answer that is read part by part. It ends after an error; dropping it ends the reading.
pub struct Parts<T>(Box<dyn Iterator<Item = Result<T, StorageError>> + Send>);

impl<T> Parts<T> {
    /// The parts of an iterator.
    pub fn new<E: Into<StorageError>>(
        parts: impl Iterator<Item = Result<T, E>> + Send + 'static,
    ) -> Self {
        Self(Box::new(parts.map(|part| part.map_err(E::into))))
    }
}

impl<T> Iterator for Parts<T> {
    type Item = Result<T, StorageError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next()
    }
}

impl<T> Debug for Parts<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Parts")
    }
}

/// Whether a metric is a total. Queries use a total's growth and largest value, so its sum and integral are not stored.
pub fn is_total(metric: &str) -> bool {
    metric.ends_with("_total")
}

/// Removes sum and integral from a total's window, whether it comes from a file or from samples.
pub fn without_sums_of_totals(metric: &str, mut rollup: Rollup) -> Rollup {
    if is_total(metric) {
        (rollup.sum, rollup.integral) = (f64::NAN, f64::NAN);
    }
    rollup
}

/// The first and the last window that begin between two instants, both inclusive; the first is later if there is none.
pub const fn windows_between(from: i64, to: i64, window_us: i64) -> (i64, i64) {
    let first = from.div_euclid(window_us).saturating_mul(window_us);
    let first = if first < from { first.saturating_add(window_us) } else { first };
    (first, to.div_euclid(window_us).saturating_mul(window_us))
}

/// The estimated part of some rows between two instants, as if they were spread evenly over their span; at least one.
pub fn share_of_rows(rows: u64, (first, last): (i64, i64), (from, to): (i64, i64)) -> u64 {
    let whole = i128::from(last) - i128::from(first) + 1;
    let part = i128::from(last.min(to)) - i128::from(first.max(from)) + 1;
    let share = i128::from(rows) * part / whole.max(1);
    u64::try_from(share).unwrap_or(rows).clamp(1, rows.max(1))
}

/// A store of samples, shared between threads. Calls block. What is known of senders, metrics and gaps is in memory, so
/// these calls return at once.
pub trait Storage: Debug + Send + Sync {
    /// Stores batches without blocking: they are queued, or rejected temporarily if the queue is full.
    ///
    /// `done` receives one outcome for each batch, in order, once they are durable and can be queried, or are rejected.
    /// It runs on the store's own thread, so it must be quick, or on the caller's if nothing could be queued.
    fn append(&self, batches: Vec<Incoming>, done: Done);

    /// A consistent view: every query of it sees the same samples, each exactly once.
    fn snapshot(&self) -> Arc<dyn Snapshot>;

    /// The same for a reader who may leave: then its calls end with an error, as soon as the store can.
    fn snapshot_until(&self, has_left: Arc<AtomicBool>) -> Arc<dyn Snapshot> {
        drop(has_left);
        self.snapshot()
    }

    /// The meaning of every metric, ordered by name.
    fn catalogue(&self) -> Vec<Arc<Metric>>;

    /// Whether the program declares a metric of this name.
    fn declares(&self, metric: &str) -> bool;

    /// Gaps that touch the interval (bounds inclusive), of one device or of all, ordered by `from`.
    ///
    /// Missing batch numbers count as gaps until the batches arrive.
    fn gaps(&self, from: Timestamp, to: Timestamp, device: Option<&DeviceId>) -> Vec<Gap>;

    /// Every known sender, ordered by name.
    fn origins(&self) -> Vec<OriginInfo>;

    /// Devices with the same series from several origins, ordered by device.
    fn claims(&self) -> Vec<Claim>;

    /// Earlier samples are rejected: their rollups are final. `None`: nothing is settled yet.
    fn settled(&self) -> Option<Timestamp>;

    /// The store's statistics.
    fn stats(&self) -> Stats;

    /// The tables that the store shares with people and programs who use its database; `None`: there is no database.
    fn shared_tables(&self) -> Option<&dyn SharedTables> {
        None
    }

    /// The followers of the store; `None`: it supports none.
    fn followers(&self) -> Option<&dyn Followers> {
        None
    }

    /// Makes all accepted samples permanent in their final form, and waits for it.
    ///
    /// # Errors
    /// The store failed; nothing is lost, and it tries again.
    fn flush(&self) -> Result<(), StorageError>;
}

/// The shared tables. Calls block.
pub trait SharedTables: Send + Sync {
    /// Replaces jobs in the copy of the registry. Returns `false`, and changes nothing, if the step does not follow the
    /// copy's last one: the copy is that of another registry, or an earlier state of it.
    ///
    /// # Errors
    /// The database does not answer, or rejects a statement. The part can be copied again.
    fn copy_jobs(&self, part: &JobsPart) -> Result<bool, StorageError>;

    /// The greatest number of a local job, at most `most`, that has samples or is in the copy of the registry. An older
    /// registry must not give it to another user's job.
    ///
    /// # Errors
    /// The database does not answer, or rejects a statement.
    fn last_local_job(&self, most: i64) -> Result<Option<JobId>, StorageError>;

    /// Makes the server's own rows in the table of promotions equal to `own`, deletes the rows `ended` of other programs,
    /// and returns the remaining rows of other programs.
    ///
    /// # Errors
    /// The database does not answer, or rejects a statement.
    fn exchange_promotions(
        &self,
        own: &BTreeSet<PromotedRow>,
        ended: &BTreeSet<PromotedRow>,
    ) -> Result<OtherPromotions, StorageError>;
}

/// A consistent view of a store. It holds resources of the store, so keep it no longer than a query.
pub trait Snapshot: Debug + Send + Sync {
    /// The same view, limited to series that meet a condition. Reads test each series, and read no sample of the others.
    /// [`Self::last`] is not limited: it reads memory alone.
    fn limited_to(&self, condition: Arc<SeriesCondition>) -> Arc<dyn Snapshot>;

    /// The samples of a selection between two instants (bounds inclusive), series by series in the order of
    /// [`model::Series`], each ordered by time. Lazy: dropping the iterator ends the reading.
    fn scan(&self, selector: &Selector, from: Timestamp, to: Timestamp) -> Parts<Chunk>;

    /// The same samples ordered by time, in slices of at most `rows_max` rows (more only if one instant alone
    /// has more).
    fn scan_by_time(
        &self,
        selector: &Selector,
        from: Timestamp,
        to: Timestamp,
        rows_max: usize,
    ) -> Parts<TimeSlice>;

    /// The windows of a selection that begin between two instants (bounds inclusive), each with all its
    /// samples, series by series in the order of [`model::Series`]. Read from rollups of this length
    /// ([`WINDOWS_US`]) if there are any, and computed from samples elsewhere.
    fn windows(
        &self,
        selector: &Selector,
        from: Timestamp,
        to: Timestamp,
        window_us: i64,
    ) -> Parts<Windows>;

    /// The series of a selection that may have a sample within an interval, in the order of [`model::Series`].
    ///
    /// # Errors
    /// The store cannot answer.
    fn series(
        &self,
        selector: &Selector,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Vec<Arc<SeriesInfo>>, StorageError>;

    /// The newest sample of each live series of a selection, in the order of [`model::Series`].
    /// It comes from memory, and is newer than the snapshot if more arrived since.
    fn last(&self, selector: &Selector) -> Vec<LastValue>;

    /// The counter starts of a selection: for each run of samples with one start that overlaps the interval,
    /// its first sample and the start; ordered by series, then time.
    ///
    /// # Errors
    /// The store cannot answer.
    fn counter_starts(
        &self,
        selector: &Selector,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Vec<CounterStart>, StorageError>;

    /// First and last instant of all samples.
    fn extent(&self) -> Option<(Timestamp, Timestamp)>;

    /// Estimates the rows of [`Self::scan`].
    ///
    /// # Errors
    /// The store cannot answer.
    fn estimate_rows(
        &self,
        selector: &Selector,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<u64, StorageError>;
}
