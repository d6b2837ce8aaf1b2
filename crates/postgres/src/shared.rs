//! State that the store's threads and its callers share, and the limits of the store.

use crate::connection::Connector;
use crate::connection::read_pool::ReadPool;
use crate::series_book::SeriesBook;
use model::Timestamp;
use parking_lot::{Condvar, Mutex, MutexGuard};
use senders::{BatchQueue, Bookkeeping, Limits};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use storage::{Clock, Outcome, Stats};
use tokio::runtime::Handle;

const DAY_US: i64 = 24 * 3600 * Timestamp::SECOND;

/// The limits of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Most batches that wait for a transaction.
    pub queue_batches_max: usize,
    /// Most bytes of them.
    pub queue_bytes_max: usize,
    /// After this time rollups are written.
    pub settle_after_us: i64,
    /// Whether late samples are rejected then. Otherwise their rollups are computed again.
    pub rejects_late: bool,
    /// Length of the ranges that are settled at a time, a multiple of an hour.
    pub settle_step_us: i64,
    /// Older samples are deleted once they are settled, or moved if there is an archive.
    pub keep_samples_us: i64,
    /// Where older samples move.
    pub archive: Option<ArchiveSettings>,
    /// Older rollups are deleted, for each length of window ([`storage::WINDOWS_US`]).
    pub keep_rollups_us: [i64; 2],
    /// Longest time of a query's statement, in milliseconds; 0: unlimited.
    pub statement_time_max_ms: u32,
    /// Whether the store maintains itself; otherwise only [`crate::PostgresStore::maintain`] does.
    pub background_maintenance: bool,
    /// The file that records which batches were acknowledged.
    pub acknowledged: Option<PathBuf>,
    /// Limits of senders.
    pub senders: Limits,
}

/// A tablespace for old samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchiveSettings {
    /// Its name.
    pub tablespace: String,
    /// Older samples are deleted.
    pub keep_us: i64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            queue_batches_max: 16 << 10,
            queue_bytes_max: 64 << 20,
            settle_after_us: DAY_US / 2,
            rejects_late: false,
            settle_step_us: DAY_US,
            keep_samples_us: i64::MAX,
            archive: None,
            keep_rollups_us: [i64::MAX; 2],
            statement_time_max_ms: 0,
            background_maintenance: true,
            acknowledged: None,
            senders: Limits::default(),
        }
    }
}

/// State that the store's threads and its callers share. Locks are taken in the order of the fields.
pub(crate) struct Shared {
    pub(crate) connector: Arc<dyn Connector>,
    pub(crate) settings: Settings,
    pub(crate) clock: Clock,
    pub(crate) runtime: Handle,
    pub(crate) read_pool: Arc<ReadPool>,
    /// When the store was opened.
    pub(crate) opened: Timestamp,
    pub(crate) queue: BatchQueue,
    pub(crate) flushed: Flushes,
    pub(crate) closing: Closing,
    /// Held during a transaction of the writer.
    pub(crate) committing: Mutex<()>,
    /// Earlier windows come from rollups.
    pub(crate) settled: Mutex<Option<Timestamp>>,
    /// Earlier samples are late: settled, or being settled.
    pub(crate) settling: Mutex<i64>,
    pub(crate) books: Mutex<Bookkeeping>,
    pub(crate) series: Mutex<SeriesBook>,
    pub(crate) stats: Mutex<Stats>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Shared {
    pub(crate) fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// Earlier windows come from rollups.
    pub(crate) fn settled(&self) -> Option<Timestamp> {
        *self.settled.lock()
    }

    pub(crate) fn set_settled(&self, settled: Timestamp) {
        *self.settled.lock() = Some(settled);
    }

    pub(crate) fn books(&self) -> MutexGuard<'_, Bookkeeping> {
        self.books.lock()
    }

    pub(crate) fn series(&self) -> MutexGuard<'_, SeriesBook> {
        self.series.lock()
    }

    pub(crate) fn stats(&self) -> MutexGuard<'_, Stats> {
        self.stats.lock()
    }

    /// Counts outcomes of batches.
    pub(crate) fn count(&self, outcomes: &[Outcome]) {
        let mut stats = self.stats();
        outcomes.iter().for_each(|outcome| stats.count(outcome));
    }
}

/// Requests to write what is in memory alone, and their results.
#[derive(Debug, Default)]
pub(crate) struct Flushes {
    state: Mutex<FlushState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct FlushState {
    wanted: u64,
    done: u64,
    closed: bool,
    result: Option<String>,
}

impl Flushes {
    pub(crate) fn is_wanted(&self) -> bool {
        let state = self.state.lock();
        state.wanted > state.done
    }

    /// Ends all requests so far.
    pub(crate) fn done(&self, result: Result<(), String>) {
        let mut state = self.state.lock();
        (state.done, state.result) = (state.wanted, result.err());
        self.changed.notify_all();
    }

    /// No request is served from now on.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }

    pub(crate) fn wait(&self, wake: impl FnOnce()) -> Result<(), String> {
        let number = {
            let mut state = self.state.lock();
            state.wanted += 1;
            state.wanted
        };
        wake();
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, |state| state.done < number && !state.closed);
        match (state.done >= number, &state.result) {
            (true, None) => Ok(()),
            (true, Some(error)) => Err(error.clone()),
            (false, _) => Err("the store is closing".to_owned()),
        }
    }
}

/// Ends the waits of background threads.
#[derive(Debug, Default)]
pub(crate) struct Closing {
    closed: Mutex<bool>,
    changed: Condvar,
}

impl Closing {
    pub(crate) fn close(&self) {
        *self.closed.lock() = true;
        self.changed.notify_all();
    }

    pub(crate) fn is_closed(&self) -> bool {
        *self.closed.lock()
    }

    /// Waits; returns whether the store is closing.
    pub(crate) fn wait(&self, time: Duration) -> bool {
        let mut closed = self.closed.lock();
        self.changed.wait_while_for(&mut closed, |closed| !*closed, time);
        *closed
    }
}
