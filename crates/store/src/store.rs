//! The store as the server holds it.

use crate::answer::{Claim, CounterStart, LastValue, OriginInfo, SeriesInfo, Stats};
use crate::append::{Incoming, NotNow, Outcome};
use crate::ask;
use crate::block::Meter;
use crate::by_time::ByTime;
use crate::disk::{Disk, RealDisk};
use crate::error::{BlockError, FlushError, OpenError};
use crate::gaps::touches;
use crate::recovery::Recovery;
use crate::roll::WINDOWS_US;
use crate::scan::Scan;
use crate::select::Selector;
use crate::settings::{Clock, Settings};
use crate::shared::Shared;
use crate::source::Question;
use crate::tend::Tender;
use crate::view::View;
use crate::windows::WindowScan;
use model::{DeviceId, Gap, Metric, Timestamp};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

/// The embedded store of one data directory. Shared by reference between threads; dropping it writes
/// what is queued to the log and stops its threads. What lies in memory then lies in the log, too.
pub struct Store {
    shared: Arc<Shared>,
    tender: Arc<Tender>,
    threads: Vec<JoinHandle<()>>,
    /// Given back when all else is done.
    _lock: Box<dyn Send + Sync + fmt::Debug>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("dir", &self.shared.dir).finish_non_exhaustive()
    }
}

/// A moment of the store: every question asked of one snapshot sees the same samples, each exactly once,
/// whatever is appended, written or removed meanwhile. It holds the memory and files it needs, so keep
/// it no longer than a question.
#[derive(Clone, Debug)]
pub struct Snapshot {
    shared: Arc<Shared>,
    view: Arc<View>,
    visible: u64,
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
        crate::open::open(disk, dir, settings, clock)
    }

    pub(crate) fn new(
        shared: Arc<Shared>,
        tender: Arc<Tender>,
        threads: Vec<JoinHandle<()>>,
        lock: Box<dyn Send + Sync + fmt::Debug>,
    ) -> Self {
        Self { shared, tender, threads, _lock: lock }
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

impl Snapshot {
    fn question(selector: &Selector, from: Timestamp, to: Timestamp) -> Question {
        Question { selector: selector.clone(), from: from.0, to: to.0 }
    }

    /// The samples of a selection between two instants (bounds inclusive), series by series in the order
    /// of [`model::Series`], each in the order of time.
    ///
    /// Lazy: a chunk is read when it is asked for, and dropping the scan ends it. Reads from blocks only
    /// the rows that the selection and the interval need, as far as pages allow.
    pub fn scan(&self, selector: &Selector, from: Timestamp, to: Timestamp) -> Scan {
        let question = Self::question(selector, from, to);
        Scan::new(&self.shared, &self.view, self.visible, question)
    }

    /// The same samples in the order of time, in slices of at most `rows_max` rows (more only where one
    /// instant alone has more). Memory is about 80 bytes a row of a slice. Each slice reads anew the pages
    /// that its interval touches, so ask for as many rows as memory allows.
    pub fn scan_by_time(
        &self,
        selector: &Selector,
        from: Timestamp,
        to: Timestamp,
        rows_max: usize,
    ) -> ByTime {
        ByTime::new(self.clone(), selector, (from.0, to.0), rows_max)
    }

    /// First and last instant of all samples.
    pub fn extent(&self) -> Option<(Timestamp, Timestamp)> {
        ask::extent(&self.view).map(|(from, to)| (Timestamp(from), Timestamp(to)))
    }

    /// About how many rows [`Self::scan`] would give, from indexes alone, as if the samples of a series
    /// were spread evenly between the first and the last of a block.
    ///
    /// # Errors
    /// A block's index cannot be read.
    pub fn estimate_rows(
        &self,
        selector: &Selector,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<u64, BlockError> {
        ask::rows(&self.shared, &self.view, &Self::question(selector, from, to))
    }

    /// The series of a selection whose first and last samples in some block or in memory enclose a part
    /// of the interval, in the order of [`model::Series`]; from indexes alone.
    ///
    /// # Errors
    /// A block's index cannot be read.
    pub fn series(
        &self,
        selector: &Selector,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Vec<Arc<SeriesInfo>>, BlockError> {
        ask::series(&self.shared, &self.view, &Self::question(selector, from, to))
    }

    /// The windows of a selection that begin between two instants (bounds inclusive), each with all its
    /// samples, series by series in the order of [`model::Series`]. Read from rollups where there are
    /// any of this length ([`Store::WINDOWS_US`]), and made of samples elsewhere.
    pub fn windows(
        &self,
        selector: &Selector,
        from: Timestamp,
        to: Timestamp,
        window_us: i64,
    ) -> WindowScan {
        let question = Self::question(selector, from, to);
        let meter = Meter::below(&self.shared.meter);
        WindowScan::new(&self.shared, &self.view, self.visible, question, window_us.max(1), meter)
    }

    /// The newest sample of each series of a selection that is alive
    /// ([`Settings::series_idle_us`]), in the order of [`model::Series`]; from memory, and newer than the
    /// snapshot where something came since.
    pub fn last(&self, selector: &Selector) -> Vec<LastValue> {
        self.view.last(selector)
    }

    /// Since when the counters of a selection count: for each run of samples with one start that reaches
    /// into the interval, its first sample and the start; ordered by series, then time. The first sample
    /// of a run that began in an earlier block is the first of the oldest block that touches the interval.
    ///
    /// # Errors
    /// A block cannot be read.
    pub fn counter_starts(
        &self,
        selector: &Selector,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Vec<CounterStart>, BlockError> {
        let question = Self::question(selector, from, to);
        ask::counter_starts(self.scan(selector, from, to), &question)
    }
}
