//! The interface of a view.

use crate::reading::view::View;
use crate::reading::window_scan::WindowScan;
use model::{Kind, Timestamp};
use std::sync::Arc;
use storage::{
    ByTime, Chunk, CounterStart, LastValue, Parts, Selector, SeriesCondition, SeriesInfo,
    StorageError, TimeSlice, Windows,
};

impl storage::Snapshot for View {
    fn limited_to(&self, condition: Arc<SeriesCondition>) -> Arc<dyn storage::Snapshot> {
        Arc::new(self.limited(condition))
    }

    fn scan(&self, selector: &Selector, from: Timestamp, to: Timestamp) -> Parts<Chunk> {
        Parts::new(self.chunks(selector, (from.0, to.0)))
    }

    fn scan_by_time(
        &self,
        selector: &Selector,
        from: Timestamp,
        to: Timestamp,
        rows_max: usize,
    ) -> Parts<TimeSlice> {
        Parts::new(ByTime::new(Arc::new(self.clone()), selector, (from, to), rows_max))
    }

    fn windows(
        &self,
        selector: &Selector,
        from: Timestamp,
        to: Timestamp,
        window_us: i64,
    ) -> Parts<Windows> {
        Parts::new(WindowScan::new(self.clone(), selector, (from, to), window_us.max(1)))
    }

    fn series(
        &self,
        selector: &Selector,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Vec<Arc<SeriesInfo>>, StorageError> {
        let targets = self.targets(selector, (from.0, to.0))?.into_iter();
        Ok(targets.map(|target| target.info).collect())
    }

    fn last(&self, selector: &Selector) -> Vec<LastValue> {
        let since = self.shared.now().plus(-self.shared.settings.senders.series_idle_us);
        // The caller's thread may have a view already.
        let latest = Self::quick(&self.shared).latest(selector, since);
        let books = self.shared.books();
        let value = latest.into_iter().filter_map(|one| {
            let (at, value) = one.sample?;
            let series = books.registry.series_info(one.series, one.divisor);
            Some(LastValue { series, at: Timestamp(at), value, start: one.start })
        });
        value.collect()
    }

    fn counter_starts(
        &self,
        selector: &Selector,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Vec<CounterStart>, StorageError> {
        let mut found: Vec<CounterStart> = Vec::new();
        for chunk in self.chunks(selector, (from.0, to.0)) {
            let chunk = chunk?;
            if chunk.series.kind != Kind::Counter {
                continue;
            }
            for (row, start) in &chunk.starts {
                let at = chunk.times.get(*row).copied().map(Timestamp);
                let Some((at, start)) = at.zip(*start) else { continue };
                let is_known = found.last().is_some_and(|last| {
                    Arc::ptr_eq(&last.series, &chunk.series) && last.start == start
                });
                if !is_known {
                    found.push(CounterStart { series: Arc::clone(&chunk.series), at, start });
                }
            }
        }
        Ok(found)
    }

    fn extent(&self) -> Option<(Timestamp, Timestamp)> {
        let span = self.span().unwrap_or_else(|error| {
            log::warn!("the extent of samples without rows of other programs: {error}");
            self.shared.series().extent()
        });
        span.map(|(from, to)| (Timestamp(from), Timestamp(to)))
    }

    fn estimate_rows(
        &self,
        selector: &Selector,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<u64, StorageError> {
        self.find_others(selector, (from.0, to.0))?;
        let book = self.shared.series();
        let rows = book.select(selector).filter(|(series, _)| self.shows(series, (from, to)));
        Ok(rows.map(|(_, stored)| stored.rows_between(from.0, to.0)).sum())
    }
}
