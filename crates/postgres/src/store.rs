//! The store as the server uses it.

use crate::connection::{Connector, DatabaseError, connect};
use crate::maintenance;
use crate::records;
use crate::schema;
use crate::series_book::SeriesBook;
use crate::snapshot::View;
use crate::writer::Writer;
use model::{DeviceId, Gap, Metric, Timestamp};
use parking_lot::{Condvar, Mutex, MutexGuard};
use senders::{BatchQueue, Bookkeeping, Limits};
use std::fmt;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use storage::{
    Claim, Clock, DeferReason, Done, Incoming, OriginInfo, Outcome, Stats, Storage, StorageError,
};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Semaphore;

const DAY_US: i64 = 24 * 3600 * Timestamp::SECOND;
/// Interval of maintenance.
const MAINTENANCE_EVERY: Duration = Duration::from_secs(60);
/// Connections that read at once.
const READERS_MAX: usize = 24;

/// The limits of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Most batches that wait for a transaction.
    pub queue_batches_max: usize,
    /// Most bytes of them.
    pub queue_bytes_max: usize,
    /// How long late samples are accepted; then the rollups of their time become final.
    pub settle_after_us: i64,
    /// Length of the ranges that are settled at a time, a multiple of an hour.
    pub settle_step_us: i64,
    /// Older samples are deleted once they are settled.
    pub keep_samples_us: i64,
    /// Older rollups are deleted, for each length of window ([`storage::WINDOWS_US`]).
    pub keep_rollups_us: [i64; 2],
    /// Whether the store maintains itself; otherwise only [`PostgresStore::maintain`] does.
    pub background_maintenance: bool,
    /// Limits of senders.
    pub senders: Limits,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            queue_batches_max: 16 << 10,
            queue_bytes_max: 64 << 20,
            settle_after_us: 7 * DAY_US,
            settle_step_us: DAY_US,
            keep_samples_us: i64::MAX,
            keep_rollups_us: [i64::MAX; 2],
            background_maintenance: true,
            senders: Limits::default(),
        }
    }
}

/// State that the store's threads and its callers share. Locks are taken in the order of the fields.
pub(crate) struct Shared {
    pub(crate) connector: Arc<dyn Connector>,
    pub(crate) settings: Settings,
    clock: Clock,
    pub(crate) runtime: Handle,
    pub(crate) readers: Arc<Semaphore>,
    /// When the store was opened.
    pub(crate) opened: Timestamp,
    pub(crate) queue: BatchQueue,
    pub(crate) flushed: Flushes,
    pub(crate) closing: Closing,
    /// Held during a transaction of the writer.
    pub(crate) committing: Mutex<()>,
    /// Earlier windows come from rollups.
    settled: Mutex<Option<Timestamp>>,
    books: Mutex<Bookkeeping>,
    series: Mutex<SeriesBook>,
    stats: Mutex<Stats>,
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

    /// Earlier samples are rejected, and their windows come from rollups.
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

    fn wait(&self, wake: impl FnOnce()) -> Result<(), String> {
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
    fn close(&self) {
        *self.closed.lock() = true;
        self.changed.notify_all();
    }

    /// Waits; returns whether the store is closing.
    fn wait(&self, time: Duration) -> bool {
        let mut closed = self.closed.lock();
        self.changed.wait_while_for(&mut closed, |closed| !*closed, time);
        *closed
    }
}

/// The store on one database, shared by reference between threads. Dropping it stores the queued batches.
pub struct PostgresStore {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// Ends after the threads.
    _runtime: Runtime,
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").finish_non_exhaustive()
    }
}

impl PostgresStore {
    /// Opens the store of a database, and creates its tables if necessary. Waits for the database.
    ///
    /// # Errors
    /// The database does not answer, rejects a statement, or another server uses it.
    pub fn open(
        connector: Arc<dyn Connector>,
        settings: Settings,
        clock: Clock,
    ) -> Result<Self, DatabaseError> {
        let failed = |error: std::io::Error| DatabaseError::Unreachable(error.to_string());
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.worker_threads(2).thread_name("postgres").enable_all().build();
        let runtime = runtime.map_err(failed)?;
        let opened = clock();
        let prepare = async {
            let client = connect(&*connector).await?;
            schema::prepare(&client).await?;
            if schema::may_lose_commits(&client).await? {
                log::warn!(
                    "synchronous_commit is off: a crash of the database may lose acknowledged samples"
                );
            }
            let (books, next_gap) = records::load(&client, &settings.senders, opened).await?;
            let series = SeriesBook::open(&client).await?;
            let state = schema::state(&client).await?;
            Ok::<_, DatabaseError>((client, books, next_gap, series, state))
        };
        let (client, mut books, next_gap, series, state) = runtime.block_on(prepare)?;
        books.settled = state.0.unwrap_or(books.settled);
        let shared = Arc::new(Shared {
            connector,
            settings,
            clock,
            runtime: runtime.handle().clone(),
            readers: Arc::new(Semaphore::new(READERS_MAX)),
            opened,
            queue: BatchQueue::default(),
            flushed: Flushes::default(),
            closing: Closing::default(),
            committing: Mutex::default(),
            settled: Mutex::new(state.0),
            books: Mutex::new(books),
            series: Mutex::new(series),
            stats: Mutex::new(Stats { samples_removed: state.1, ..Stats::default() }),
        });
        let writer = Writer::new(Arc::clone(&shared), runtime.handle().clone(), client, next_gap);
        let thread = std::thread::Builder::new().name("postgres-write".to_owned());
        let mut threads = vec![thread.spawn(move || writer.run()).map_err(failed)?];
        let maintained = shared.settings.background_maintenance.then(|| Arc::clone(&shared));
        if let Some(shared) = maintained {
            let thread = std::thread::Builder::new().name("postgres-maintain".to_owned());
            let run = move || {
                while !shared.closing.wait(MAINTENANCE_EVERY) {
                    if let Err(error) = maintenance::maintain(&shared) {
                        log::warn!("maintenance of the database: {error}");
                        shared.stats().retain_errors += 1;
                    }
                }
            };
            threads.push(thread.spawn(run).map_err(failed)?);
        }
        Ok(Self { shared, threads, _runtime: runtime })
    }

    /// Does all due maintenance now.
    ///
    /// # Errors
    /// The database does not answer, or rejects a statement; it is tried again.
    pub fn maintain(&self) -> Result<(), StorageError> {
        maintenance::maintain(&self.shared)
    }
}

impl Storage for PostgresStore {
    fn append(&self, batches: Vec<Incoming>, done: Done) {
        let count = batches.len();
        let Settings { queue_batches_max, queue_bytes_max, .. } = self.shared.settings;
        let added = self.shared.queue.add(batches, done, (queue_batches_max, queue_bytes_max));
        if let Err((done, closing)) = added {
            let why = if closing { DeferReason::Closing } else { DeferReason::QueueFull };
            let outcomes = vec![Outcome::RejectedTemporarily(why); count];
            self.shared.count(&outcomes);
            done(outcomes);
        }
    }

    fn snapshot(&self) -> Arc<dyn storage::Snapshot> {
        Arc::new(View::new(&self.shared))
    }

    fn catalogue(&self) -> Vec<Arc<Metric>> {
        self.shared.books().registry.catalogue()
    }

    fn declares(&self, metric: &str) -> bool {
        self.shared.settings.senders.declared.has(metric)
    }

    fn gaps(&self, from: Timestamp, to: Timestamp, device: Option<&DeviceId>) -> Vec<Gap> {
        let (now, limits) = (self.shared.now(), &self.shared.settings.senders);
        self.shared.books().gaps_between((from, to), device, now, limits)
    }

    fn origins(&self) -> Vec<OriginInfo> {
        self.shared.books().origins.infos()
    }

    fn claims(&self) -> Vec<Claim> {
        let books = self.shared.books();
        books.registry.claims(&books.origins, self.shared.settings.senders.series_idle_us)
    }

    fn settled(&self) -> Option<Timestamp> {
        self.shared.settled()
    }

    fn stats(&self) -> Stats {
        let (batches, bytes) = self.shared.queue.sizes();
        let (series, metrics, gaps, gaps_forgotten) = self.shared.books().sizes();
        Stats {
            series,
            metrics,
            gaps,
            gaps_forgotten,
            queue_batches: batches as u64,
            queue_bytes: bytes as u64,
            ..self.shared.stats().clone()
        }
    }

    fn flush(&self) -> Result<(), StorageError> {
        self.shared.flushed.wait(|| self.shared.queue.wake()).map_err(StorageError::Unavailable)
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        self.shared.queue.close();
        self.shared.closing.close();
        for thread in self.threads.drain(..) {
            // A thread that panicked has nothing more to write.
            thread.join().unwrap_or_default();
        }
    }
}
