//! State that the store's threads and its callers share.

use crate::blocks::close_unused;
use crate::log::files::LogSizes;
use crate::settings::Settings;
use crate::state::flush_queue::FlushQueue;
use crate::state::maintenance_queue::MaintenanceQueue;
use crate::state::positions::Positions;
use crate::state::view::View;
use model::Timestamp;
use parking_lot::{Mutex, MutexGuard, RwLock};
use senders::{BatchQueue, Bookkeeping, Registry};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use storage::{Clock, Meter, Stats};

/// State that the store's threads and its callers share. Locks are taken in the order of the fields, and that of the
/// ledger after the positions. They are held during no file operation, except the lock of the positions.
pub(crate) struct Shared {
    pub(crate) dir: PathBuf,
    pub(crate) settings: Settings,
    pub(crate) clock: Clock,
    pub(crate) queue: BatchQueue,
    pub(crate) flushing: FlushQueue,
    pub(crate) tending: MaintenanceQueue,
    positions: Mutex<Positions>,
    books: Mutex<Bookkeeping>,
    view: RwLock<Arc<View>>,
    /// Batches at lower places can be queried.
    visible: AtomicU64,
    counts: Mutex<Counts>,
    pub(crate) meter: Arc<Meter>,
    pub(crate) log_sizes: Arc<LogSizes>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("dir", &self.dir).finish_non_exhaustive()
    }
}

/// Counters since the start of the process, and errors of the last tries.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) stats: Stats,
    pub(crate) log_error: Option<String>,
    pub(crate) flush_error: Option<String>,
    pub(crate) maintenance_error: Option<String>,
}

impl Shared {
    pub(crate) fn new(
        dir: PathBuf,
        settings: Settings,
        clock: Clock,
        (books, positions): (Bookkeeping, Positions),
        view: View,
        visible: u64,
        log_sizes: Arc<LogSizes>,
    ) -> Self {
        Self {
            dir,
            settings,
            clock,
            queue: BatchQueue::default(),
            flushing: FlushQueue::default(),
            tending: MaintenanceQueue::default(),
            positions: Mutex::new(positions),
            books: Mutex::new(books),
            view: RwLock::new(Arc::new(view)),
            visible: AtomicU64::new(visible),
            counts: Mutex::default(),
            meter: Arc::default(),
            log_sizes,
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// Stops accepting batches.
    pub(crate) fn close(&self) {
        self.queue.close();
        self.tending.close();
    }

    /// The followers' positions. While they are locked, no block is added, merged or deleted.
    pub(crate) fn positions(&self) -> MutexGuard<'_, Positions> {
        self.positions.lock()
    }

    pub(crate) fn books(&self) -> MutexGuard<'_, Bookkeeping> {
        self.books.lock()
    }

    /// Drops unused series, part by part: ingest waits for one part at most.
    pub(crate) fn sweep(&self) {
        (0..Registry::PARTS).for_each(|part| self.books().registry.sweep(part));
    }

    pub(crate) fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock()
    }

    /// The current view; batches before the place can be queried in it.
    pub(crate) fn view(&self) -> (Arc<View>, u64) {
        let view = self.view.read();
        (Arc::clone(&view), self.visible.load(Ordering::Acquire))
    }

    /// Makes the batches before a place visible.
    pub(crate) fn show(&self, place: u64) {
        self.visible.store(place, Ordering::Release);
    }

    /// Replaces the view by a changed one.
    pub(crate) fn turn<T>(&self, change: impl FnOnce(&mut View) -> T) -> T {
        let mut view = self.view.write();
        let mut new = View::clone(&view);
        let result = change(&mut new);
        *view = Arc::new(new);
        result
    }

    /// The store's statistics.
    pub(crate) fn stats(&self) -> Stats {
        let (queue_batches, queue_bytes) = self.queue.sizes();
        let (series, metrics, gaps, gaps_forgotten) = self.books().sizes();
        let (view, _) = self.view();
        let Counts { stats, log_error, flush_error, maintenance_error } = self.counts().clone();
        Stats {
            series,
            metrics,
            gaps,
            gaps_forgotten,
            head_samples: view.heads().map(|head| head.samples()).sum(),
            head_bytes: view.heads().map(|head| head.bytes()).sum(),
            blocks: view.blocks.len() as u64,
            block_bytes: view.blocks.iter().map(|block| block.note.bytes).sum(),
            block_samples: view.blocks.iter().map(|block| block.note.rows).sum(),
            archived_blocks: view.archived().count() as u64,
            archived_bytes: view.archived().map(|block| block.note.bytes).sum(),
            rollups: view.rollups.len() as u64,
            rollup_bytes: view.rollups.iter().map(|file| file.note.bytes).sum(),
            settled: Some(view.settled).filter(|settled| settled.0 > i64::MIN),
            samples_removed: view.samples_removed,
            queue_batches: queue_batches as u64,
            queue_bytes: queue_bytes as u64,
            log_bytes: self.log_sizes.bytes(),
            log_segments: self.log_sizes.segments(),
            last_failure: log_error.or(flush_error).or(maintenance_error),
            read: self.meter.counts(),
            ..stats
        }
    }

    /// Keeps the footers in memory bounded; called at the end of a scan.
    pub(crate) fn close_unused(&self) {
        let (view, _) = self.view();
        close_unused(view.blocks.iter().chain(&view.rollups));
    }
}
