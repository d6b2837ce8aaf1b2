//! The store as the server uses it.

use crate::connection::read_pool::{ReadPool, close_idle};
use crate::connection::{Connector, DatabaseError, connect};
use crate::exchange::{Exchange, jobs_copy, promoted_metrics};
use crate::other_rows;
use crate::reading::view::View;
use crate::records;
use crate::schema;
use crate::series_book::SeriesBook;
use crate::shared::{Closing, Flushes, Settings, Shared};
use crate::writing::acknowledged::Lacking;
use crate::writing::maintenance;
use crate::writing::partitions::create_ahead;
use crate::writing::writer::{GapRows, Writer};
use model::{DeviceId, Gap, JobId, Metric, Timestamp};
use parking_lot::Mutex;
use senders::BatchQueue;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;
use std::time::Duration;
use storage::{
    Claim, Clock, DeferReason, Done, Incoming, JobsPart, OriginInfo, OtherPromotions, Outcome,
    PromotedRow, SharedTables, Stats, Storage, StorageError,
};
use tokio::runtime::{Builder, Runtime};

/// Interval of maintenance.
const MAINTENANCE_EVERY: Duration = Duration::from_secs(60);

/// The store on one database, shared by reference between threads. Dropping it stores the queued batches.
pub struct PostgresStore {
    shared: Arc<Shared>,
    exchange: Exchange,
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
            let session = schema::own_session(&client).await?;
            if schema::may_lose_commits(&client).await? {
                log::warn!(
                    "synchronous_commit is off: a crash of the database may lose acknowledged samples"
                );
            }
            create_ahead(&client, opened).await?;
            let records = records::load(&client, &settings.senders, opened).await?;
            other_rows::record(&client).await?;
            let series = SeriesBook::open(&client, settings.senders.series_max).await?;
            let state = schema::state(&client).await?;
            Ok::<_, DatabaseError>(((client, session), records, series, state))
        };
        let (connection, records, series, state) = runtime.block_on(prepare)?;
        let (mut books, gap_rows, next_gap) = records.into_books(&settings.senders);
        if settings.rejects_late {
            books.settled = state.settled.unwrap_or(books.settled);
        }
        let record = settings.acknowledged.clone().zip(state.database_id);
        let lacking = Lacking::of_backup(&mut books, record.as_ref(), opened);
        let read_pool = Arc::new(ReadPool::new(Arc::clone(&connector)));
        runtime.spawn(close_idle(Arc::downgrade(&read_pool)));
        let shared = Arc::new(Shared {
            connector,
            settings,
            clock,
            runtime: runtime.handle().clone(),
            read_pool,
            opened,
            queue: BatchQueue::default(),
            flushed: Flushes::default(),
            closing: Closing::default(),
            committing: Mutex::default(),
            settled: Mutex::new(state.settled),
            settling: Mutex::new(state.settling_us),
            books: Mutex::new(books),
            series: Mutex::new(series),
            stats: Mutex::new(Stats { samples_removed: state.samples_removed, ..Stats::default() }),
        });
        let gap_rows = GapRows { count: gap_rows, next: next_gap };
        let writer = Writer::new(Arc::clone(&shared), connection, (gap_rows, lacking), record);
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
        Ok(Self {
            exchange: Exchange::new(Arc::clone(&shared)),
            shared,
            threads,
            _runtime: runtime,
        })
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

    fn snapshot_until(&self, has_left: Arc<AtomicBool>) -> Arc<dyn storage::Snapshot> {
        Arc::new(View::until(&self.shared, has_left))
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
        self.shared.settled().filter(|_| self.shared.settings.rejects_late)
    }

    fn stats(&self) -> Stats {
        let (batches, bytes) = self.shared.queue.sizes();
        let (series, metrics, gaps, gaps_forgotten) = self.shared.books().sizes();
        let pool = self.shared.read_pool.counts();
        Stats {
            series,
            metrics,
            gaps,
            gaps_forgotten,
            queue_batches: batches as u64,
            queue_bytes: bytes as u64,
            read_connections_opened: pool.opened,
            read_connections_kept: pool.kept,
            read_waits: pool.waits,
            ..self.shared.stats().clone()
        }
    }

    fn shared_tables(&self) -> Option<&dyn SharedTables> {
        Some(self)
    }

    fn flush(&self) -> Result<(), StorageError> {
        self.shared.flushed.wait(|| self.shared.queue.wake()).map_err(StorageError::Unavailable)
    }
}

impl SharedTables for PostgresStore {
    fn copy_jobs(&self, part: &JobsPart) -> Result<bool, StorageError> {
        self.exchange.run(async |transaction| jobs_copy::copy(transaction, part).await)
    }

    fn last_local_job(&self, most: i64) -> Result<Option<JobId>, StorageError> {
        self.exchange.run(async |transaction| jobs_copy::last_local(transaction, most).await)
    }

    fn exchange_promotions(
        &self,
        own: &BTreeSet<PromotedRow>,
        ended: &BTreeSet<PromotedRow>,
    ) -> Result<OtherPromotions, StorageError> {
        self.exchange
            .run(async |transaction| promoted_metrics::exchange(transaction, own, ended).await)
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
