//! The store as the server uses it.

use crate::connection::{DatabaseError, connect};
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
use storage::{
    Claim, Clock, DeferReason, Done, Incoming, OriginInfo, Outcome, Stats, Storage, StorageError,
};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Semaphore;
use tokio_postgres::Config;

/// Connections that read at once.
const READERS_MAX: usize = 24;

/// The limits of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Most batches that wait for a transaction.
    pub queue_batches_max: usize,
    /// Most bytes of them.
    pub queue_bytes_max: usize,
    /// Limits of senders.
    pub senders: Limits,
}

impl Default for Settings {
    fn default() -> Self {
        Self { queue_batches_max: 16 << 10, queue_bytes_max: 64 << 20, senders: Limits::default() }
    }
}

/// State that the store's threads and its callers share. Locks are taken in the order of the fields.
pub(crate) struct Shared {
    pub(crate) config: Arc<Config>,
    pub(crate) settings: Settings,
    clock: Clock,
    pub(crate) runtime: Handle,
    pub(crate) readers: Arc<Semaphore>,
    /// When the store was opened.
    pub(crate) opened: Timestamp,
    pub(crate) queue: BatchQueue,
    pub(crate) flushed: Flushes,
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

/// The store on one database, shared by reference between threads. Dropping it stores the queued batches.
pub struct PostgresStore {
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
    /// Ends after the writer.
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
    pub fn open(config: Config, settings: Settings, clock: Clock) -> Result<Self, DatabaseError> {
        let failed = |error: std::io::Error| DatabaseError::Unreachable(error.to_string());
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.worker_threads(2).thread_name("postgres").enable_all().build();
        let runtime = runtime.map_err(failed)?;
        let opened = clock();
        let prepare = async {
            let client = connect(&config).await?;
            schema::prepare(&client).await?;
            if schema::may_lose_commits(&client).await? {
                log::warn!(
                    "synchronous_commit is off: a crash of the database may lose acknowledged samples"
                );
            }
            let (books, next_gap) = records::load(&client, &settings.senders, opened).await?;
            let series = SeriesBook::open(&client).await?;
            Ok::<_, DatabaseError>((client, books, next_gap, series))
        };
        let (client, books, next_gap, series) = runtime.block_on(prepare)?;
        let shared = Arc::new(Shared {
            config: Arc::new(config),
            settings,
            clock,
            runtime: runtime.handle().clone(),
            readers: Arc::new(Semaphore::new(READERS_MAX)),
            opened,
            queue: BatchQueue::default(),
            flushed: Flushes::default(),
            books: Mutex::new(books),
            series: Mutex::new(series),
            stats: Mutex::default(),
        });
        let writer = Writer::new(Arc::clone(&shared), runtime.handle().clone(), client, next_gap);
        let thread = std::thread::Builder::new().name("postgres-write".to_owned());
        let writer = thread.spawn(move || writer.run()).map_err(failed)?;
        Ok(Self { shared, writer: Some(writer), _runtime: runtime })
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
        None
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
        if let Some(writer) = self.writer.take() {
            // A thread that panicked has nothing more to write.
            writer.join().unwrap_or_default();
        }
    }
}
