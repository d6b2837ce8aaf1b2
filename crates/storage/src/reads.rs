//! Counts what a store reads, in total and for one query over all its calls.

use crate::answer::ReadCounts;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

thread_local! {
    /// The query of this thread.
    static READER: RefCell<Option<Reads>> = const { RefCell::new(None) };
}

/// Counts reads; its parent counts them too.
#[derive(Debug, Default)]
pub struct Meter {
    bytes: AtomicU64,
    row_groups: AtomicU64,
    rows: AtomicU64,
    above: Option<Arc<Self>>,
}

impl Meter {
    /// A counter whose parent counts the same reads.
    pub fn below(above: &Arc<Self>) -> Arc<Self> {
        Arc::new(Self { above: Some(Arc::clone(above)), ..Self::default() })
    }

    /// The reads so far.
    pub fn counts(&self) -> ReadCounts {
        ReadCounts {
            bytes: self.bytes.load(Ordering::Relaxed),
            row_groups: self.row_groups.load(Ordering::Relaxed),
            rows: self.rows.load(Ordering::Relaxed),
        }
    }

    /// Counts reads, also for the query of this thread.
    pub fn add(&self, bytes: u64, row_groups: u64, rows: u64) {
        self.count(bytes, row_groups, rows);
        Reads::add(bytes, row_groups, rows);
    }

    fn count(&self, bytes: u64, row_groups: u64, rows: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.row_groups.fetch_add(row_groups, Ordering::Relaxed);
        self.rows.fetch_add(rows, Ordering::Relaxed);
        self.above.iter().for_each(|above| above.count(bytes, row_groups, rows));
    }
}

/// Counts block reads of one query, by all threads within [`Reads::during`].
/// A scan reads on the thread that requests the next chunk, and on no other.
#[derive(Clone, Debug, Default)]
pub struct Reads(Arc<Meter>);

/// Restores the thread's previous query.
struct PreviousReader(Option<Reads>);

impl Drop for PreviousReader {
    fn drop(&mut self) {
        READER.set(self.0.take());
    }
}

impl Reads {
    /// Runs `work` and counts this thread's reads meanwhile.
    pub fn during<T>(&self, work: impl FnOnce() -> T) -> T {
        let _before = PreviousReader(READER.replace(Some(self.clone())));
        work()
    }

    /// The query of this thread, so that another thread can read for it.
    pub fn of_this_thread() -> Option<Self> {
        READER.with_borrow(Clone::clone)
    }

    /// The reads so far.
    pub fn counts(&self) -> ReadCounts {
        self.0.counts()
    }

    /// Counts reads of this thread.
    fn add(bytes: u64, row_groups: u64, rows: u64) {
        READER.with_borrow(|reader| {
            reader.iter().for_each(|reads| reads.0.count(bytes, row_groups, rows));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_count_for_the_innermost_query() {
        let (outer, inner) = (Reads::default(), Reads::default());
        let (all, rows) = (Arc::new(Meter::default()), |reads: &Reads| reads.counts().rows);
        let scan = Meter::below(&all);
        scan.add(1, 1, 1);
        outer.during(|| {
            scan.add(10, 1, 10);
            inner.during(|| scan.add(100, 2, 100));
            std::thread::scope(|scope| scope.spawn(|| scan.add(500, 1, 500)).join().unwrap());
            scan.add(20, 1, 20);
        });
        assert_eq!((rows(&outer), rows(&inner)), (30, 100));
        assert_eq!(inner.counts(), ReadCounts { bytes: 100, row_groups: 2, rows: 100 });
        assert_eq!((all.counts().rows, scan.counts().rows), (631, 631));
        let panics = || outer.during(|| panic!("in the middle"));
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).unwrap_err();
        scan.add(1000, 1, 1000);
        assert_eq!(rows(&outer), 30, "a panicked query counts no more reads");
    }
}
