//! A moment of the store, and everything that can be read of it.
//!
//! `by_time`: samples in the order of time; all others are methods of [`Snapshot`].

mod by_time;

pub use by_time::ByTime;

use crate::answer::{CounterStart, LastValue, SeriesInfo};
use crate::blocks::Meter;
use crate::files::errors::BlockError;
use crate::scan::by_series::Scan;
use crate::scan::indexes;
use crate::scan::rollup_scan::WindowScan;
use crate::scan::source::Question;
use crate::state::select::Selector;
use crate::state::shared::Shared;
use crate::state::view::View;
use model::Timestamp;
use std::sync::Arc;

/// A moment of the store: every question asked of one snapshot sees the same samples, each exactly once,
/// whatever is appended, written or removed meanwhile. It holds the memory and files it needs, so keep
/// it no longer than a question.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub(crate) shared: Arc<Shared>,
    pub(crate) view: Arc<View>,
    pub(crate) visible: u64,
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
        indexes::extent(&self.view).map(|(from, to)| (Timestamp(from), Timestamp(to)))
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
        indexes::rows(&self.shared, &self.view, &Self::question(selector, from, to))
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
        indexes::series(&self.shared, &self.view, &Self::question(selector, from, to))
    }

    /// The windows of a selection that begin between two instants (bounds inclusive), each with all its
    /// samples, series by series in the order of [`model::Series`]. Read from rollups where there are
    /// any of this length ([`crate::Store::WINDOWS_US`]), and made of samples elsewhere.
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
    /// ([`crate::Settings::series_idle_us`]), in the order of [`model::Series`]; from memory, and newer than the
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
        indexes::counter_starts(self.scan(selector, from, to), &question)
    }
}
