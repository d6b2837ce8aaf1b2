//! Queries during concurrent work: batches arrive, some late, blocks are written, merged, rolled up, settled
//! and deleted. Each query sees each sample once.

use crate::check;
use crate::kit::append;
use crate::numbers::{KEEP_US, Sender, sent_at, settings};
use model::Timestamp;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use storage::{Clock, Outcome, Selector, Storage as _};
use store::Store;

const BATCHES: u64 = 1600;

/// Queries until the end; returns the number of queries.
fn query_repeatedly(store: &Store, [sent, acked]: [&AtomicU64; 2], over: &AtomicBool) -> u64 {
    let mut questions = 0;
    while !over.load(Ordering::SeqCst) {
        let before = acked.load(Ordering::SeqCst);
        let snapshot = store.snapshot();
        let sent = sent.load(Ordering::SeqCst);
        let seen = check::moment(&snapshot, sent).unwrap();
        // Batches before `before` were acknowledged.
        assert!(seen.last.map_or(0, |last| last + 1) >= before, "{seen:?}, not {before}");
        std::thread::yield_now();
        let all = (Timestamp(i64::MIN), Timestamp(i64::MAX));
        let slices = snapshot.scan_by_time(&Selector::default(), all.0, all.1, 1000);
        let rows: usize = slices.map(|slice| slice.unwrap().times.len()).sum();
        assert_eq!(rows as u64, seen.samples, "by time");
        assert_eq!(check::moment(&snapshot, sent), Ok(seen), "the snapshot does not change");
        questions += 1;
    }
    questions
}

#[test]
fn queries_during_concurrent_work_see_each_sample_once() {
    let dir = tempfile::tempdir().unwrap();
    let now = Arc::new(AtomicI64::new(sent_at(0)));
    let clock: Clock = {
        let now = Arc::clone(&now);
        Arc::new(move || Timestamp(now.load(Ordering::SeqCst)))
    };
    let (store, _) = Store::open(dir.path(), settings(), clock).unwrap();
    let (sent, acked, over) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let questions = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| scope.spawn(|| query_repeatedly(&store, [&sent, &acked], &over)))
            .collect();
        let mut sender = Sender::default();
        for number in 0..BATCHES {
            sent.store(number, Ordering::SeqCst);
            now.store(sent_at(number), Ordering::SeqCst);
            let batch = sender.batch(number).unwrap();
            while let [Outcome::RejectedTemporarily(_)] = append(&store, vec![batch.clone()])[..] {
                std::thread::yield_now();
            }
            acked.store(number + 1, Ordering::SeqCst);
            // Blocks are small enough to be merged, and no faster than merging, however slow the disk is.
            if number % 50 == 49 {
                store.flush().unwrap();
            }
            while store.stats().blocks > 16 && !readers.iter().any(|reader| reader.is_finished()) {
                std::thread::yield_now();
            }
        }
        over.store(true, Ordering::SeqCst);
        readers.into_iter().map(|reader| reader.join().unwrap()).sum::<u64>()
    });
    let stats = store.stats();
    let settled = stats.settled.unwrap().0;
    assert!(questions > 10 && stats.merges > 4, "{questions} questions, {stats:?}");
    assert!(stats.samples_removed > 0 && settled > sent_at(BATCHES) - KEEP_US, "{stats:?}");
    check::whole(&store, Some(BATCHES - 1), BATCHES).unwrap();
}
