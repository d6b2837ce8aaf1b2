//! The store as the server holds it.

use crate::answer::{Claim, OriginInfo, Stats};
use crate::data_dir::open::{Opened, open};
use crate::data_dir::recovery::Recovery;
use crate::files::disk::{Disk, RealDisk};
use crate::files::errors::{BlockError, FlushError, OpenError};
use crate::head::append::{Incoming, NotNow, Outcome};
use crate::maintenance::compactor::Compactor;
use crate::scan::by_series::Scan;
use crate::scan::rollup_points::WINDOWS_US;
use crate::senders::gaps::touches;
use crate::settings::{Clock, Settings};
use crate::snapshot::Snapshot;
use crate::state::select::Selector;
use crate::state::shared::Shared;
use model::{DeviceId, Gap, Metric, Timestamp};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

/// The embedded store of one data directory. Shared by reference between threads; dropping it writes
/// what is queued to the log and stops its threads. What lies in memory then lies in the log, too.
pub struct Store {
    shared: Arc<Shared>,
    tender: Arc<Compactor>,
    threads: Vec<JoinHandle<()>>,
    /// Given back when all else is done.
    _lock: Box<dyn Send + Sync + fmt::Debug>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("dir", &self.shared.dir).finish_non_exhaustive()
    }
}

impl Store {
    /// The lengths of windows that are kept as rollups, in microseconds.
    pub const WINDOWS_US: [i64; 2] = WINDOWS_US;

    /// Opens a data directory of the machine's file system, making it if need be.
    ///
    /// # Errors
    /// Another server has it, a newer program wrote it, its manifest or a block is damaged, or the disk
    /// fails.
    pub fn open(
        dir: &Path,
        settings: Settings,
        clock: Clock,
    ) -> Result<(Self, Recovery), OpenError> {
        Self::open_on(Arc::new(RealDisk), dir, settings, clock)
    }

    /// The same on another [`Disk`].
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
        let Opened { shared, tender, threads, lock } = opened;
        Ok((Self { shared, tender, threads, _lock: lock }, recovery))
    }

    /// Stores batches. Never blocks: they are queued, or refused for now when the queue is full.
    ///
    /// `done` gets one outcome for each batch, in their order, once they are on the disk and can be
    /// queried, or are refused; on the store's own thread, so it must be quick, or on the caller's, when
    /// nothing could be queued.
    pub fn append(&self, batches: Vec<Incoming>, done: impl FnOnce(Vec<Outcome>) + Send + 'static) {
        let count = batches.len();
        if let Err((done, closing)) = self.shared.enqueue(batches, Box::new(done)) {
            let why = if closing { NotNow::Closing } else { NotNow::QueueFull };
            self.shared.counts().stats.batches_deferred += count as u64;
            done(vec![Outcome::RefusedForNow(why); count]);
        }
    }

    /// The store as it is at this moment.
    pub fn snapshot(&self) -> Snapshot {
        let (view, visible) = self.shared.view();
        Snapshot { shared: Arc::clone(&self.shared), view, visible }
    }

    /// [`Snapshot::scan`] of this moment.
    pub fn scan(&self, selector: &Selector, from: Timestamp, to: Timestamp) -> Scan {
        self.snapshot().scan(selector, from, to)
    }

    /// What every metric means, ordered by name.
    pub fn catalogue(&self) -> Vec<Arc<Metric>> {
        self.shared.books().registry.catalogue()
    }

    /// Gaps that touch the interval (bounds inclusive), of one device or of all, ordered by `from`.
    ///
    /// Batches whose numbers are missing count as gaps while they are; they are no more once the batches
    /// come.
    pub fn gaps(&self, from: Timestamp, to: Timestamp, device: Option<&DeviceId>) -> Vec<Gap> {
        let now = self.shared.now();
        let books = self.shared.books();
        let grace = self.shared.settings.hole_grace_us;
        let missing = books.origins.missing(now, grace, books.gaps.all());
        let told = books.gaps.all().filter(|gap| touches(gap, from, to)).cloned();
        let all = told.chain(missing.into_iter().filter(|gap| touches(gap, from, to)));
        let mut gaps: Vec<Gap> = match device {
            Some(device) => all.filter_map(|gap| books.origins.concerning(gap, device)).collect(),
            None => all.collect(),
        };
        drop(books);
        gaps.sort_by(|a, b| (a.from, a.to, &a.device).cmp(&(b.from, b.to, &b.device)));
        gaps
    }

    /// Every known sender, ordered by name.
    pub fn origins(&self) -> Vec<OriginInfo> {
        self.shared.books().origins.infos()
    }

    /// Devices of which several origins send the same series, ordered by device.
    pub fn claims(&self) -> Vec<Claim> {
        let books = self.shared.books();
        books.registry.claims(&books.origins, self.shared.settings.series_idle_us)
    }

    /// The store's own state.
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }

    /// Writes what is in memory to a block now, and waits for it.
    ///
    /// # Errors
    /// The block cannot be written; the samples stay in memory and in the log, and it is tried again.
    pub fn flush(&self) -> Result<(), FlushError> {
        self.shared.flushing.wait(|| self.shared.wake()).map_err(FlushError)
    }

    /// Does what is due for the blocks now: neighbours are merged. The store does so by itself where
    /// [`Settings::tends`] says so.
    ///
    /// # Errors
    /// The disk fails, or a block cannot be read: then that one is left alone for an hour.
    pub fn tend(&self) -> Result<(), BlockError> {
        self.tender.tend()
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
