//! The cost of queries, and their results while blocks are written.

use crate::kit::*;
use model::Timestamp;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use storage::{Outcome, Selector, Storage as _};
use store::Settings;

const DEVICES: [&str; 12] =
    ["n01", "n02", "n03", "n04", "n05", "n06", "n07", "n08", "n09", "n10", "n11", "n12"];
const METRICS: [&str; 4] = ["a_total", "b_total", "c", "d"];

/// Every device's samples of an hour: one batch a minute, a tick every five seconds.
fn hour(sender: &mut Sender, hour: i64) -> Vec<storage::Incoming> {
    let minute = |minute: i64| {
        let mut samples = Vec::new();
        for tick in 0..12 {
            let at = T0 + ((hour * 60 + minute) * 12 + tick) * 5 * S;
            for device in DEVICES {
                for metric in METRICS {
                    let value = (at / S) as f64 * if metric == "d" { 0.1234567 } else { 1.0 };
                    samples.push((spec(device, metric), at, value));
                }
            }
        }
        samples
    };
    (0..60).map(|m| sender.batch(&minute(m))).collect()
}

#[test]
fn a_query_of_one_device_and_one_hour_reads_a_small_part() {
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings { row_group_rows: 8192, page_rows: 512, ..Settings::default() };
    let (store, _) = open(dir.path(), settings);
    let mut sender = Sender::new("n01", 1);
    for h in 0..6 {
        append(&store, hour(&mut sender, h));
        if h % 3 == 2 {
            store.flush().unwrap();
        }
    }
    let stats = store.stats();
    assert_eq!((stats.blocks, stats.block_samples), (2, 6 * 720 * 48));
    let (from, to) = (T0 + 3600 * S, T0 + 7200 * S - 1);
    let mut scan = store.scan(&of_device("n07"), Timestamp(from), Timestamp(to));
    let rows: usize = scan.by_ref().map(|chunk| chunk.unwrap().times.len()).sum();
    assert_eq!(rows, 720 * 4);
    let read = scan.read_counts();
    // Most of it is the footer of the one block that the hour touches.
    assert!(read.bytes * 8 < stats.block_bytes, "{read:?} of {} bytes", stats.block_bytes);
    let groups = stats.block_samples.div_ceil(8192);
    assert!(read.row_groups * 8 <= groups, "{read:?} of {groups} row groups");
    assert!(read.rows < 3 * rows as u64, "{read:?} for {rows} rows");
    assert!(store.stats().read.bytes >= read.bytes);
    // A second query finds footer and directory in memory.
    let mut again = store.scan(&of_device("n07"), Timestamp(from), Timestamp(to));
    assert_eq!(again.by_ref().map(|chunk| chunk.unwrap().times.len()).sum::<usize>(), rows);
    // A twelfth of the devices, a sixth of the time: a seventy-second part, rounded up to pages.
    let read = again.read_counts();
    assert!(read.bytes * 30 < stats.block_bytes, "{read:?} of {} bytes", stats.block_bytes);
    let none = store.scan(&of_device("n99"), Timestamp(from), Timestamp(to));
    assert_eq!(none.count(), 0);
}

#[test]
fn one_metric_of_all_devices_skips_the_pages_of_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings { row_group_rows: 8192, page_rows: 256, ..Settings::default() };
    let (store, _) = open(dir.path(), settings);
    append(&store, hour(&mut Sender::new("n01", 1), 0));
    store.flush().unwrap();
    let metrics = Some(BTreeSet::from([Arc::from("c")]));
    let selector = Selector { metrics, ..Selector::default() };
    let mut scan = store.scan(&selector, Timestamp(i64::MIN), Timestamp(i64::MAX));
    let series: BTreeSet<String> =
        scan.by_ref().map(|chunk| name(&chunk.unwrap().series.series)).collect();
    assert_eq!(series.len(), 12);
    assert_eq!(scan.read_counts().rows, 12 * 720);
}

#[test]
fn queries_during_flushes_see_each_sample_exactly_once() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path(), Settings { segment_bytes: 1 << 20, ..small() });
    let store = Arc::new(store);
    let acked = Arc::new(AtomicI64::new(0));
    let done = Arc::new(AtomicBool::new(false));
    let flushes = Arc::new(AtomicI64::new(0));
    let flusher = {
        let (store, done, flushes) = (Arc::clone(&store), Arc::clone(&done), Arc::clone(&flushes));
        std::thread::spawn(move || {
            while !done.load(Ordering::SeqCst) {
                store.flush().unwrap();
                flushes.fetch_add(1, Ordering::SeqCst);
            }
        })
    };
    let reader = {
        let (store, done, acked) = (Arc::clone(&store), Arc::clone(&done), Arc::clone(&acked));
        std::thread::spawn(move || {
            let mut questions = 0;
            while !done.load(Ordering::SeqCst) {
                let before = acked.load(Ordering::SeqCst);
                let snapshot = store.snapshot();
                let count = || {
                    let (from, to) = (Timestamp(i64::MIN), Timestamp(i64::MAX));
                    let mut ticks = Vec::new();
                    for chunk in snapshot.scan(&of_device("n1"), from, to) {
                        ticks.extend(chunk.unwrap().times);
                    }
                    ticks
                };
                let ticks = count();
                // Each tick once, without a hole, and all that had been acknowledged.
                let want: Vec<i64> = (0..ticks.len()).map(|n| T0 + n as i64 * S).collect();
                assert_eq!(ticks, want);
                assert!(ticks.len() as i64 >= before, "{} of {before}", ticks.len());
                std::thread::yield_now();
                assert_eq!(count(), ticks, "the snapshot does not change");
                questions += 1;
            }
            questions
        })
    };
    let mut sender = Sender::new("n1", 1);
    // As many as there are flushes, however slow the disk is.
    let few = || flushes.load(Ordering::SeqCst) < 4 && !flusher.is_finished();
    for tick in (0..).take_while(|tick| *tick < 400 || few()) {
        let outcome = append(&store, vec![sender.batch(&[(spec("n1", "c"), T0 + tick * S, 0.5)])]);
        assert!(matches!(outcome[..], [Outcome::Stored { .. }]));
        acked.store(tick + 1, Ordering::SeqCst);
    }
    done.store(true, Ordering::SeqCst);
    flusher.join().unwrap();
    let questions = reader.join().unwrap();
    assert!(questions > 3, "{questions} questions");
}

#[test]
fn a_snapshot_outlives_the_files_it_reads() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path(), small());
    let mut sender = Sender::new("n1", 1);
    append(&store, vec![sender.batch(&[(spec("n1", "c"), T0, 0.5)])]);
    let scan = store.scan(&Selector::default(), Timestamp(i64::MIN), Timestamp(i64::MAX));
    append(&store, vec![sender.batch(&[(spec("n1", "c"), T0 + S, 0.5)])]);
    store.flush().unwrap();
    drop(store);
    assert_eq!(scan.map(|chunk| chunk.unwrap().times.len()).sum::<usize>(), 1);
}

#[test]
fn long_series_come_in_chunks_of_bounded_rows() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path(), Settings { row_group_rows: 50_000, ..Settings::default() });
    let mut sender = Sender::new("n1", 1);
    // Two blocks that overlap in time, each longer than a chunk.
    for half in 0..2 {
        for part in 0..2 {
            let first = part * 50_000;
            let samples: Vec<_> = (first..first + 50_000)
                .map(|n| (spec("n1", "c"), T0 + (n * 2 + half) * S, n as f64))
                .collect();
            let mut batch = sender.batch(&samples);
            batch.received = Timestamp(T0 + 400_000 * S);
            append(&store, vec![batch]);
        }
        store.flush().unwrap();
    }
    let chunks: Vec<_> = store
        .scan(&Selector::default(), Timestamp(i64::MIN), Timestamp(i64::MAX))
        .map(|chunk| chunk.unwrap())
        .collect();
    assert_eq!(chunks.iter().map(|chunk| chunk.times.len()).sum::<usize>(), 200_000);
    assert!(chunks.len() == 4 && chunks.iter().all(|chunk| chunk.times.len() <= 65_536));
    let times: Vec<i64> = chunks.into_iter().flat_map(|chunk| chunk.times).collect();
    assert!(times.windows(2).all(|w| w[1] - w[0] == S));
}
