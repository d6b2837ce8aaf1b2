//! The store as the server uses it.

use crate::data_dir::open::{Opened, open};
use crate::data_dir::recovery::Recovery;
use crate::files::disk::{Disk, RealDisk};
use crate::files::errors::{BlockError, FlushError, OpenError};
use crate::following::Following;
use crate::maintenance::compactor::Compactor;
use crate::scan::by_series::Scan;
use crate::settings::Settings;
use crate::snapshot::Snapshot;
use crate::state::shared::Shared;
use model::{DeviceId, Gap, Metric, Timestamp};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use storage::{
    Claim, Clock, DeferReason, Done, Followers, Incoming, OriginInfo, Outcome, Selector, Stats,
    Storage, StorageError,
};

/// The embedded store of one data directory, shared by reference between threads.
/// Dropping it writes the queued batches to the log and stops its threads; samples in memory are then in the log, too.
pub struct Store {
    shared: Arc<Shared>,
    compactor: Arc<Compactor>,
    following: Following,
    threads: Vec<JoinHandle<()>>,
    /// Released last.
    _lock: Box<dyn Send + Sync + fmt::Debug>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("dir", &self.shared.dir).finish_non_exhaustive()
    }
}

impl Store {
    /// Opens a data directory of the machine's file system, creating it if necessary.
    ///
    /// # Errors
    /// Another server uses it, a newer program wrote it, its manifest or a block is damaged, or the disk fails.
    pub fn open(
        dir: &Path,
        settings: Settings,
        clock: Clock,
    ) -> Result<(Self, Recovery), OpenError> {
        Self::open_on(Arc::new(RealDisk), dir, settings, clock)
    }

    /// As [`Self::open`], on another [`Disk`].
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_on(
        disk: Arc<dyn Disk>,
        dir: &Path,
        settings: Settings,
        clock: Clock,
    ) -> Result<(Self, Recovery), OpenError> {
        let (opened, recovery) = open(disk, dir, settings, clock)?;
        let Opened { shared, compactor, ledger, threads, lock } = opened;
        let following = Following::new(Arc::clone(&shared), ledger);
        Ok((Self { shared, compactor, following, threads, _lock: lock }, recovery))
    }

    /// Stores batches without blocking: they are queued, or rejected temporarily if the queue is full.
    ///
    /// `done` receives one outcome for each batch, in order, once they are synced and can be queried, or are rejected.
    /// It runs on the store's own thread, so it must be quick, or on the caller's if nothing could be queued.
    pub fn append(&self, batches: Vec<Incoming>, done: impl FnOnce(Vec<Outcome>) + Send + 'static) {
        let count = batches.len();
        let Settings { queue_batches_max, queue_bytes_max, .. } = self.shared.settings;
        let limits = (queue_batches_max, queue_bytes_max);
        if let Err((done, closing)) = self.shared.queue.add(batches, Box::new(done), limits) {
            let why = if closing { DeferReason::Closing } else { DeferReason::QueueFull };
            self.shared.counts().stats.batches_deferred += count as u64;
            done(vec![Outcome::RejectedTemporarily(why); count]);
        }
    }

    /// The current view of the store.
    pub fn snapshot(&self) -> Snapshot {
        let (view, visible) = self.shared.view();
        Snapshot { shared: Arc::clone(&self.shared), view, visible, filter: None }
    }

    /// [`Snapshot::scan`] of the current view.
    pub fn scan(&self, selector: &Selector, from: Timestamp, to: Timestamp) -> Scan {
        self.snapshot().scan(selector, from, to)
    }

    /// Writes the samples in memory to a block now, and waits for it.
    ///
    /// # Errors
    /// The block cannot be written; the samples stay in memory and in the log, and the store tries again.
    pub fn flush(&self) -> Result<(), FlushError> {
        self.shared.flushing.wait(|| self.shared.queue.wake()).map_err(FlushError)
    }

    /// Does all due maintenance of blocks now. The store does so by itself if
    /// [`Settings::background_maintenance`] is set.
    ///
    /// # Errors
    /// The disk fails, or a block cannot be read: then it is skipped for an hour.
    pub fn maintain(&self) -> Result<(), BlockError> {
        self.compactor.maintain()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.shared.close();
        for thread in self.threads.drain(..) {
            // A thread that panicked has nothing more to write.
            thread.join().unwrap_or_default();
        }
    }
}

impl Storage for Store {
    fn append(&self, batches: Vec<Incoming>, done: Done) {
        self.append(batches, done);
    }

    fn snapshot(&self) -> Arc<dyn storage::Snapshot> {
        Arc::new(self.snapshot())
    }

    fn catalogue(&self) -> Vec<Arc<Metric>> {
        self.shared.books().registry.catalogue()
    }

    fn declares(&self, metric: &str) -> bool {
        self.shared.settings.senders.declared.has(metric)
    }

    fn gaps(&self, from: Timestamp, to: Timestamp, device: Option<&DeviceId>) -> Vec<Gap> {
        let now = self.shared.now();
        self.shared.books().gaps_between((from, to), device, now, &self.shared.settings.senders)
    }

    fn origins(&self) -> Vec<OriginInfo> {
        self.shared.books().origins.infos()
    }

    fn claims(&self) -> Vec<Claim> {
        let books = self.shared.books();
        books.registry.claims(&books.origins, self.shared.settings.senders.series_idle_us)
    }

    fn settled(&self) -> Option<Timestamp> {
        Some(self.shared.books().settled).filter(|settled| settled.0 > i64::MIN)
    }

    fn stats(&self) -> Stats {
        self.shared.stats()
    }

    fn followers(&self) -> Option<&dyn Followers> {
        Some(&self.following)
    }

    fn flush(&self) -> Result<(), StorageError> {
        self.flush().map_err(|error| StorageError::Failed(Box::new(error)))
    }
}
