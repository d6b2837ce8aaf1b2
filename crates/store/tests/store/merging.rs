//! Merging: adjacent blocks become one, and answers stay the same.

use crate::kit::*;
use memdisk::{Fault, MemDisk};
use model::Timestamp;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use storage::Storage as _;
use store::{Disk, Settings, Store};

/// One block of a counter and a gauge, from one tick to another.
fn block(store: &Store, sender: &mut Sender, ticks: std::ops::Range<i64>) {
    let mut samples = Vec::new();
    for tick in ticks {
        let counter = Spec { start: Some(T0 + tick / 100), ..spec("n1", "a_total") };
        samples.push((counter, T0 + tick * S, tick as f64 / 1000.0));
        samples.push((spec("n2", "b"), T0 + tick * S, tick as f64 + 0.123));
    }
    for batch in samples.chunks(20_000) {
        assert_eq!(append(store, vec![sender.batch(batch)]), [STORED]);
    }
    store.flush().unwrap();
}

fn files(dir: &Path) -> Vec<String> {
    let names = std::fs::read_dir(dir.join("blocks")).unwrap();
    let mut names: Vec<String> =
        names.map(|name| name.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn blocks_become_one_file_with_the_same_rows_and_starts() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path(), Settings { merge_blocks: 4, ..small() });
    let mut sender = Sender::new("n1", 1);
    // The last one is late: it lies between the rows of the others.
    for ticks in [0..70_000, 70_010..70_020, 200_000..200_500, 70_000..70_010] {
        block(&store, &mut sender, ticks);
    }
    let (rows, last) = (all(&store), store.snapshot().last(&Default::default()));
    let starts = |store: &Store| {
        let all = (Timestamp(i64::MIN), Timestamp(i64::MAX));
        store.snapshot().counter_starts(&Default::default(), all.0, all.1).unwrap()
    };
    let runs = starts(&store);
    assert_eq!(files(dir.path()).len(), 4);
    store.maintain().unwrap();
    let one = files(dir.path());
    assert_eq!(one.len(), 1, "{one:?}");
    let stats = store.stats();
    assert_eq!((stats.blocks, stats.merges, stats.merge_errors), (1, 1, 0));
    assert_eq!(stats.block_samples, rows.len() as u64);
    assert_eq!(all(&store), rows);
    assert_eq!(starts(&store), runs);
    assert_eq!(store.snapshot().last(&Default::default()), last);
    assert!(store::verify(&store::RealDisk, dir.path()).unwrap().is_good());
    drop(store);
    let (store, recovery) = open(dir.path(), small());
    assert_eq!(recovery.removed, Vec::<std::path::PathBuf>::new());
    assert_eq!(all(&store), rows);
    assert_eq!(files(dir.path()), one);
}

#[test]
fn steps_of_another_divisor_remain_the_same_values() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path(), small());
    let mut sender = Sender::new("n1", 1);
    for (tick, divisor) in [(0, 10), (1, 1000), (2, 7)] {
        let sample = (spec("n1", "b"), T0 + tick * S, (tick * 3 + 1) as f64 / f64::from(divisor));
        append(&store, vec![sender.batch_as(&[sample], |metric| metric.divisor = divisor)]);
        store.flush().unwrap();
    }
    let rows = all(&store);
    assert_eq!(rows.len(), 3);
    store.maintain().unwrap();
    assert_eq!(store.stats().merges, 1);
    assert_eq!(all(&store), rows);
    block(&store, &mut sender, 10..12);
    store.maintain().unwrap();
    let again = all(&store);
    assert!(rows.iter().all(|row| again.contains(row)));
}

#[test]
fn a_damaged_block_is_reported_and_skipped_and_the_others_are_merged() {
    let disk = Arc::new(MemDisk::default());
    let shared: Arc<dyn Disk> = Arc::clone(&disk) as Arc<dyn Disk>;
    let (store, _) = open_on(&shared, small()).unwrap();
    let mut sender = Sender::new("n1", 1);
    (0..5).for_each(|n| block(&store, &mut sender, n * 100..n * 100 + 100));
    let second = disk.files("/data/blocks").into_keys().nth(1).unwrap();
    disk.damage(&second, |bytes| (100..bytes.len() / 2).step_by(50).for_each(|at| bytes[at] ^= 1));
    let error = store.maintain().unwrap_err().to_string();
    assert!(error.contains("damaged") && error.contains(second.to_str().unwrap()), "{error}");
    let stats = store.stats();
    // The first waits for nothing, but alone; the last three become two, then one.
    assert_eq!((stats.merge_errors, stats.blocks), (1, 4), "{stats:?}");
    store.maintain().unwrap();
    assert_eq!(store.stats().merge_errors, 1);
    assert!(disk.files("/data/blocks").contains_key(&second));
}

#[test]
fn a_full_disk_fails_one_try_and_leaves_no_file() {
    let disk = Arc::new(MemDisk::default());
    let shared: Arc<dyn Disk> = Arc::clone(&disk) as Arc<dyn Disk>;
    let (store, _) = open_on(&shared, small()).unwrap();
    let mut sender = Sender::new("n1", 1);
    (0..2).for_each(|n| block(&store, &mut sender, n * 100..n * 100 + 100));
    let (rows, names) = (all(&store), disk.files("/data/blocks"));
    for n in 1.. {
        disk.plan().set(n, Fault::Full);
        let merged = store.maintain();
        disk.plan().clear();
        assert_eq!(all(&store), rows, "call {n}");
        let Err(error) = merged else { break };
        let left = disk.files("/data/blocks");
        assert!(left.keys().all(|path| !path.to_str().unwrap().ends_with(".tmp")), "call {n}");
        assert!(names.keys().all(|path| left.contains_key(path)), "call {n}");
        let error = error.to_string();
        // A file stays if a manifest may list it, or if its name may be unsynced.
        if !error.contains("MANIFEST") && !error.contains("cannot sync") {
            let rollups = disk.files("/data/rollups");
            assert_eq!((left.len(), rollups.len()), (names.len(), 0), "call {n}: {error}");
        }
    }
    assert_eq!(store.stats().merges, 1);
    assert_eq!(disk.files("/data/blocks").len(), 1);
}

#[test]
fn queries_meanwhile_see_each_sample_once() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path(), Settings { background_maintenance: true, ..small() });
    let written = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut sender = Sender::new("n1", 1);
            (0..60).for_each(|n| block(&store, &mut sender, n * 10..n * 10 + 10));
            written.store(true, Ordering::SeqCst);
        });
        let mut most = 0;
        while !written.load(Ordering::SeqCst) || store.stats().blocks > 6 {
            let rows = all(&store);
            let mut once = rows.clone();
            once.sort();
            once.dedup();
            assert_eq!(once.len(), rows.len());
            assert!(rows.len() >= most, "{} of {most}", rows.len());
            most = rows.len();
        }
    });
    assert_eq!(all(&store).len(), 1200);
    assert!(store.stats().merges > 10, "{:?}", store.stats());
}
