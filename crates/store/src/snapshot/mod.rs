//! A consistent view of the store, and everything that can be read from it.
//!
//! `interface`: the view as every reader uses it.

mod interface;

use crate::files::errors::BlockError;
use crate::scan::by_series::Scan;
use crate::scan::indexes;
use crate::scan::rollup_scan::WindowScan;
use crate::scan::source::ScanQuery;
use crate::state::shared::Shared;
use crate::state::view::View;
use model::Timestamp;
use std::sync::Arc;
use storage::{
    CounterStart, LastValue, Meter, Selector, SeriesCondition, SeriesFilter, SeriesInfo,
};

/// A consistent view of the store. Every query of one snapshot sees the same samples, each exactly once,
/// whatever is appended, written or removed meanwhile.
/// It holds memory and files, so keep it no longer than a query.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub(crate) shared: Arc<Shared>,
    pub(crate) view: Arc<View>,
    pub(crate) visible: u64,
    pub(crate) filter: Option<SeriesFilter>,
}

impl Snapshot {
    fn query(&self, selector: &Selector, from: Timestamp, to: Timestamp) -> ScanQuery {
        let (selector, filter) = (selector.clone(), self.filter.clone());
        ScanQuery { selector, filter, from: from.0, to: to.0 }
    }

    /// The same view, limited to series that meet a condition. Reads test each series once per source, and read no
    /// sample of the others. [`Self::last`] is not limited: it reads memory alone.
    #[must_use]
    pub fn limited_to(self, condition: Arc<SeriesCondition>) -> Self {
        Self { filter: Some(SeriesFilter(condition)), ..self }
    }

    /// The samples of a selection between two instants (bounds inclusive), series by series in the order of
    /// [`model::Series`], each ordered by time.
    ///
    /// Lazy: a chunk is read on request, and dropping the scan ends it. From blocks it reads only the rows
    /// that the selection and the interval need, as far as pages allow.
    pub fn scan(&self, selector: &Selector, from: Timestamp, to: Timestamp) -> Scan {
        let query = self.query(selector, from, to);
        Scan::new(&self.shared, &self.view, self.visible, query)
    }

    /// The same samples ordered by time, in slices of at most `rows_max` rows (more only if one instant alone
    /// has more).
    /// Memory is about 80 bytes per row of a slice. Each slice rereads the pages that its interval touches,
    /// so request as many rows as memory allows.
    pub fn scan_by_time(
        &self,
        selector: &Selector,
        from: Timestamp,
        to: Timestamp,
        rows_max: usize,
    ) -> storage::ByTime {
        storage::ByTime::new(Arc::new(self.clone()), selector, (from, to), rows_max)
    }

    /// First and last instant of all samples.
    pub fn extent(&self) -> Option<(Timestamp, Timestamp)> {
        indexes::extent(&self.view).map(|(from, to)| (Timestamp(from), Timestamp(to)))
    }

    /// Estimates the rows of [`Self::scan`], from indexes alone, as if the samples of a series were spread
    /// evenly between the first and the last of a block.
    ///
    /// # Errors
    /// A block's index cannot be read.
    pub fn estimate_rows(
        &self,
        selector: &Selector,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<u64, BlockError> {
        indexes::rows(&self.shared, &self.view, &self.query(selector, from, to))
    }

    /// The series of a selection with first and last samples, in some block or in memory, around a part of
    /// the interval.
    /// In the order of [`model::Series`], from indexes alone.
    ///
    /// # Errors
    /// A block's index cannot be read.
    pub fn series(
        &self,
        selector: &Selector,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Vec<Arc<SeriesInfo>>, BlockError> {
        indexes::series(&self.shared, &self.view, &self.query(selector, from, to))
    }

    /// The windows of a selection that begin between two instants (bounds inclusive), each with all its
    /// samples, series by series in the order of [`model::Series`]. Read from rollups of this length
    /// ([`storage::WINDOWS_US`]) if there are any, and computed from samples elsewhere.
    pub fn windows(
        &self,
        selector: &Selector,
        from: Timestamp,
        to: Timestamp,
        window_us: i64,
    ) -> WindowScan {
        let query = self.query(selector, from, to);
        let meter = Meter::below(&self.shared.meter);
        WindowScan::new(&self.shared, &self.view, self.visible, query, window_us.max(1), meter)
    }

    /// The newest sample of each live series of a selection ([`senders::Limits::series_idle_us`]), in the
    /// order of [`model::Series`].
    /// It comes from memory, and is newer than the snapshot if more arrived since.
    pub fn last(&self, selector: &Selector) -> Vec<LastValue> {
        self.view.last(selector)
    }

    /// The counter starts of a selection: for each run of samples with one start that overlaps the interval,
    /// its first sample and the start; ordered by series, then time. For a run that began in an earlier
    /// block, the first sample is that of the oldest block that touches the interval.
    ///
    /// # Errors
    /// A block cannot be read.
    pub fn counter_starts(
        &self,
        selector: &Selector,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Vec<CounterStart>, BlockError> {
        let query = self.query(selector, from, to);
        indexes::counter_starts(self.scan(selector, from, to), &query)
    }
}
