//! Counts what one query reads from blocks, over all its calls to the store.

use crate::answer::ReadCounts;
use crate::blocks::Meter;
use std::cell::RefCell;
use std::sync::Arc;

thread_local! {
    /// The query of this thread.
    static READER: RefCell<Option<Reads>> = const { RefCell::new(None) };
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
    pub(crate) fn add(bytes: u64, row_groups: u64, rows: u64) {
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
