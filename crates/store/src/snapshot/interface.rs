//! The view as every reader uses it: the interface of `storage`.

use super::Snapshot;
use crate::files::errors::BlockError;
use model::Timestamp;
use std::sync::Arc;
use storage::{
    Chunk, CounterStart, LastValue, Parts, Selector, SeriesCondition, SeriesInfo, StorageError,
    TimeSlice, Windows,
};

impl From<BlockError> for StorageError {
    fn from(error: BlockError) -> Self {
        Self::Failed(Box::new(error))
    }
}

impl storage::Snapshot for Snapshot {
    fn limited_to(&self, condition: Arc<SeriesCondition>) -> Arc<dyn storage::Snapshot> {
        Arc::new(self.clone().limited_to(condition))
    }

    fn scan(&self, selector: &Selector, from: Timestamp, to: Timestamp) -> Parts<Chunk> {
        Parts::new(self.scan(selector, from, to))
    }

    fn scan_by_time(
        &self,
        selector: &Selector,
        from: Timestamp,
        to: Timestamp,
        rows_max: usize,
    ) -> Parts<TimeSlice> {
        Parts::new(self.scan_by_time(selector, from, to, rows_max))
    }

    fn windows(
        &self,
        selector: &Selector,
        from: Timestamp,
        to: Timestamp,
        window_us: i64,
    ) -> Parts<Windows> {
        Parts::new(self.windows(selector, from, to, window_us))
    }

    fn series(
        &self,
        selector: &Selector,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Vec<Arc<SeriesInfo>>, StorageError> {
        Ok(self.series(selector, from, to)?)
    }

    fn last(&self, selector: &Selector) -> Vec<LastValue> {
        self.last(selector)
    }

    fn counter_starts(
        &self,
        selector: &Selector,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Vec<CounterStart>, StorageError> {
        Ok(self.counter_starts(selector, from, to)?)
    }

    fn extent(&self) -> Option<(Timestamp, Timestamp)> {
        self.extent()
    }

    fn estimate_rows(
        &self,
        selector: &Selector,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<u64, StorageError> {
        Ok(self.estimate_rows(selector, from, to)?)
    }
}
