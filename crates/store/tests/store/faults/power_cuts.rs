//! Failing disks, killed processes, power cuts: nothing acknowledged is lost, nothing is invented, nothing is
//! duplicated.

use crate::kit::*;
use memdisk::{Fault, MemDisk};
use model::{Cause, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;
use storage::{DeferReason, Outcome, Storage as _};
use store::{Disk, Settings, Store};

/// One batch per tick, two series on a separate grid, so that a row identifies its batch.
fn samples(tick: i64) -> Vec<(Spec, i64, f64)> {
    let at = T0 + tick * S;
    let counter = Spec { start: Some(T0), ..spec("n1", "a_total") };
    vec![(counter, at, tick as f64), (spec("n2", "b"), at, tick as f64 + 0.25)]
}

/// Every row with its number of occurrences.
fn counted(store: &Store) -> BTreeMap<Row, usize> {
    let mut counted = BTreeMap::new();
    all(store).into_iter().for_each(|row| *counted.entry(row).or_default() += 1);
    counted
}

/// Opens after a crash and checks: all acknowledged samples are there, and nothing that was not sent.
fn check(disk: MemDisk, acked: &[i64], sent: &[i64], what: &str) -> Store {
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let (store, recovery) = open_on(&disk, small()).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_eq!(recovery.damaged, [], "{what}");
    let have = counted(&store);
    for tick in acked {
        for sample in samples(*tick) {
            assert_eq!(have.get(&row(&sample)), Some(&1), "{what}: tick {tick} was acknowledged");
        }
    }
    let possible: Vec<Row> = sent.iter().flat_map(|tick| samples(*tick)).map(|s| row(&s)).collect();
    for (row, count) in &have {
        assert!(possible.contains(row) && *count == 1, "{what}: {row:?} is there {count} times");
    }
    store
}

/// Sends ten batches, with a flush and a merge after every third, until the disk is dead.
fn drive(store: &Store, sender: &mut Sender) -> (Vec<i64>, Vec<i64>) {
    let (mut acked, mut sent) = (Vec::new(), Vec::new());
    for tick in 0..10 {
        sent.push(tick);
        if append(store, vec![sender.batch(&samples(tick))]) == [STORED] {
            acked.push(tick);
        }
        if tick % 3 == 2 {
            store.flush().ok();
            store.maintain().ok();
        }
    }
    (acked, sent)
}

#[test]
fn a_process_that_dies_at_any_call_loses_nothing_acknowledged() {
    for n in 1.. {
        let disk = Arc::new(MemDisk::default());
        let shared: Arc<dyn Disk> = Arc::clone(&disk) as Arc<dyn Disk>;
        let (store, _) = open_on(&shared, small()).unwrap();
        let mut sender = Sender::new("n1", 1);
        disk.plan().set(n, Fault::Dead);
        let before = disk.plan().calls();
        let (acked, sent) = drive(&store, &mut sender);
        let calls = disk.plan().calls() - before;
        drop(store);
        for torn in 0..=4 {
            let what = format!("dead from call {n}, power cut, {torn}/4 of the unsynced kept");
            drop(check(disk.after_power_cut(torn), &acked, &sent, &what));
        }
        let what = format!("dead from call {n}, killed");
        let store = check(disk.after_kill(), &acked, &sent, &what);
        // Unacknowledged batches are sent again, and appear once.
        let mut again = Sender::new("n1", 1);
        for tick in sent {
            let outcome = append(&store, vec![again.batch(&samples(tick))]);
            assert!([STORED, Outcome::Duplicate].contains(&outcome[0]), "{what}: {outcome:?}");
        }
        store.flush().unwrap();
        assert!(counted(&store).values().all(|count| *count == 1), "{what}");
        assert_eq!(counted(&store).len(), 20, "{what}");
        if n > calls {
            assert_eq!(acked.len(), 10);
            return;
        }
    }
}

#[test]
fn a_call_that_fails_once_loses_nothing_acknowledged_and_the_store_continues() {
    for n in 1.. {
        let disk = Arc::new(MemDisk::default());
        let shared: Arc<dyn Disk> = Arc::clone(&disk) as Arc<dyn Disk>;
        let (store, _) = open_on(&shared, small()).unwrap();
        let mut sender = Sender::new("n1", 1);
        disk.plan().set(n, Fault::Once);
        let before = disk.plan().calls();
        let mut rejected = 0;
        for tick in 0..10 {
            let batch = sender.batch(&samples(tick));
            while append(&store, vec![batch.clone()]) != [STORED] {
                rejected += 1;
                assert!(rejected < 3, "fault {n}");
            }
            if tick % 3 == 2 && store.flush().is_err() {
                store.flush().unwrap();
            }
            if tick % 3 == 2 && store.maintain().is_err() {
                store.maintain().unwrap();
            }
        }
        let done = n > disk.plan().calls() - before;
        disk.plan().clear();
        assert!(store.stats().merges + store.stats().merge_errors > 0, "fault {n}");
        assert_eq!(counted(&store).len(), 20, "fault {n}");
        assert!(counted(&store).values().all(|count| *count == 1), "fault {n}");
        drop(store);
        let ticks: Vec<i64> = (0..10).collect();
        drop(check(disk.after_power_cut(0), &ticks, &ticks, &format!("fault {n}")));
        if done {
            return;
        }
    }
}

#[test]
fn opening_can_die_at_any_call_and_be_tried_again() {
    let prepared = || {
        let disk = Arc::new(MemDisk::default());
        let shared: Arc<dyn Disk> = Arc::clone(&disk) as Arc<dyn Disk>;
        let (store, _) = open_on(&shared, small()).unwrap();
        let (acked, sent) = drive(&store, &mut Sender::new("n1", 1));
        assert_eq!(acked.len(), 10);
        drop(store);
        (disk.after_kill(), sent)
    };
    for n in 1.. {
        let (disk, sent) = prepared();
        let log = disk.files("/data/log").into_keys().next_back().unwrap();
        // A torn tail gives opening something to repair.
        disk.damage(&log, |bytes| bytes.extend_from_slice(b"JMR1 torn"));
        let disk = Arc::new(disk);
        let shared: Arc<dyn Disk> = Arc::clone(&disk) as Arc<dyn Disk>;
        disk.plan().set(n, Fault::Dead);
        let opened = open_on(&shared, small());
        let done = opened.is_ok();
        drop(opened);
        drop(check(disk.after_power_cut(2), &sent, &sent, &format!("opening dies at call {n}")));
        if done {
            return;
        }
    }
}

#[test]
fn a_full_disk_defers_batches_and_queries_continue() {
    let disk = Arc::new(MemDisk::default());
    let shared: Arc<dyn Disk> = Arc::clone(&disk) as Arc<dyn Disk>;
    let (store, _) = open_on(&shared, small()).unwrap();
    let mut sender = Sender::new("n1", 1);
    for tick in 0..3 {
        assert_eq!(append(&store, vec![sender.batch(&samples(tick))]), [STORED]);
    }
    disk.plan().set(1, Fault::Full);
    let batch = sender.batch(&samples(3));
    let outcome = append(&store, vec![batch.clone()]);
    assert!(
        matches!(&outcome[..], [Outcome::RejectedTemporarily(full @ DeferReason::DiskFull(_))] if full.is_full()),
        "{outcome:?}"
    );
    assert!(store.flush().is_err());
    assert_eq!(all(&store).len(), 6);
    assert!(store.stats().last_failure.is_some());
    disk.plan().clear();
    assert_eq!(append(&store, vec![batch]), [STORED]);
    store.flush().unwrap();
    assert_eq!(all(&store).len(), 8);
    assert_eq!(store.stats().last_failure, None);
}

#[test]
fn a_full_log_is_reported_and_takes_batches_after_a_block() {
    let disk = Arc::new(MemDisk::default());
    let shared: Arc<dyn Disk> = Arc::clone(&disk) as Arc<dyn Disk>;
    let settings = Settings { log_bytes_max: 2000, ..small() };
    let (store, _) = open_on(&shared, settings).unwrap();
    let mut sender = Sender::new("n1", 1);
    assert_eq!(append(&store, vec![sender.batch(&samples(0))]), [STORED]);
    // In one call, so that no block is written between two of them.
    let batches: Vec<_> = (1..100).map(|tick| sender.batch(&samples(tick))).collect();
    let outcomes = append(&store, batches.clone());
    let [Outcome::RejectedTemporarily(rejected), ..] = &outcomes[..] else {
        panic!("{outcomes:?}");
    };
    assert!(matches!(rejected, DeferReason::LogFull { bytes } if *bytes <= 2000), "{rejected:?}");
    store.flush().unwrap();
    assert_eq!(append(&store, vec![batches[0].clone()]), [STORED]);
}

/// A log of one segment with five batches, each with the next number of its own origin.
fn small_log() -> (MemDisk, std::path::PathBuf) {
    let disk = Arc::new(MemDisk::default());
    let shared: Arc<dyn Disk> = Arc::clone(&disk) as Arc<dyn Disk>;
    let (store, _) = open_on(&shared, Settings { segment_bytes: 1 << 20, ..small() }).unwrap();
    let mut sender = Sender::new("n1", 1);
    for tick in 0..5 {
        assert_eq!(append(&store, vec![sender.batch(&samples(tick))]), [STORED]);
    }
    drop(store);
    let log = disk.files("/data/log");
    assert_eq!(log.len(), 1);
    (disk.after_kill(), log.into_keys().next().unwrap())
}

fn ticks_of(store: &Store) -> Vec<i64> {
    let mut ticks: Vec<i64> = counted(store)
        .into_iter()
        .map(|((_, at, ..), count)| {
            assert_eq!(count, 1);
            (at - T0) / S
        })
        .collect();
    ticks.sort_unstable();
    ticks.dedup();
    ticks
}

#[test]
fn a_log_truncated_at_any_byte_keeps_the_records_before() {
    let (disk, path) = small_log();
    let bytes = disk.files("/data/log")[&path].clone();
    let starts: Vec<usize> = record_starts(&bytes);
    for cut in 0..=bytes.len() {
        let torn = disk.after_kill();
        torn.damage(&path, |bytes| bytes.truncate(cut));
        let torn: Arc<dyn Disk> = Arc::new(torn);
        let (store, recovery) = open_on(&torn, small()).unwrap();
        assert_eq!(recovery.damaged, [], "cut at {cut}");
        let whole = starts.iter().skip(1).chain([&bytes.len()]).filter(|end| **end <= cut).count();
        assert_eq!(ticks_of(&store), (0..5).take(whole).collect::<Vec<i64>>(), "cut at {cut}");
        let at_end = starts.contains(&cut) || cut == bytes.len() || cut <= 16;
        assert_eq!(recovery.cut.is_empty(), at_end, "cut at {cut}");
    }
}

#[test]
fn any_flipped_byte_costs_one_batch_and_becomes_a_gap() {
    let (disk, path) = small_log();
    let bytes = disk.files("/data/log")[&path].clone();
    let starts: Vec<usize> = record_starts(&bytes);
    let clock = TestClock::new();
    clock.set(T0 + 1000 * S);
    for at in 0..bytes.len() {
        let bad = Arc::new(disk.after_kill());
        bad.damage(&path, |bytes| bytes[at] ^= 1 << (at % 8));
        let shared: Arc<dyn Disk> = Arc::clone(&bad) as Arc<dyn Disk>;
        let dir = std::path::Path::new("/data");
        let (store, recovery) =
            Store::open_on(Arc::clone(&shared), dir, small(), clock.clock()).unwrap();
        let hit = starts.iter().filter(|start| **start <= at).count();
        let kept: Vec<i64> =
            (0..5).filter(|tick| *tick + 1 != i64::try_from(hit).unwrap()).collect();
        assert_eq!(ticks_of(&store), kept, "byte {at}");
        match hit {
            // A malformed header looks like a torn tail; its sender's next batch will show the missing number.
            5 if at < starts[4] + 28 => {
                assert_eq!((recovery.cut.len(), recovery.damaged.len()), (1, 0), "byte {at}");
            }
            // The header of the segment contains no batch.
            0 => assert_eq!(recovery.damaged.len(), 1, "byte {at}"),
            _ => assert_eq!(recovery.damaged[0].at, starts[hit - 1] as u64, "byte {at}"),
        }
        if let [damage] = &recovery.damaged[..] {
            assert!(bad.files("/data/quarantine").contains_key(&damage.path), "byte {at}");
        }
        let gaps = store.gaps(Timestamp(i64::MIN), Timestamp(i64::MAX), None);
        let found = match hit {
            0 => 0,
            // A gap for each device of the origin.
            1..5 => 2,
            // The origin is unknown; and a torn tail was never acknowledged.
            _ => usize::from(at >= starts[4] + 28),
        };
        assert_eq!(gaps.len(), found, "byte {at}");
        assert!(gaps.iter().all(|gap| gap.cause == Cause::LogDamaged), "byte {at}");
        // The same after another start, from the block and the manifest.
        drop(store);
        let (store, recovery) = Store::open_on(shared, dir, small(), clock.clock()).unwrap();
        assert_eq!((ticks_of(&store), recovery.damaged), (kept, vec![]), "byte {at}");
        assert_eq!(store.gaps(Timestamp(i64::MIN), Timestamp(i64::MAX), None), gaps, "byte {at}");
    }
}

/// Start of each record of a segment, from the lengths in their headers.
fn record_starts(bytes: &[u8]) -> Vec<usize> {
    let (mut starts, mut at) = (Vec::new(), 16);
    while at < bytes.len() {
        starts.push(at);
        let length = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().unwrap());
        at += 28 + usize::try_from(length).unwrap();
    }
    starts
}

#[test]
fn a_damaged_block_is_an_error_and_never_another_value() {
    let disk = Arc::new(MemDisk::default());
    let shared: Arc<dyn Disk> = Arc::clone(&disk) as Arc<dyn Disk>;
    let (store, _) = open_on(&shared, small()).unwrap();
    let mut sender = Sender::new("n1", 1);
    for tick in 0..30 {
        append(&store, vec![sender.batch(&samples(tick))]);
    }
    store.flush().unwrap();
    let want = all(&store);
    drop(store);
    let disk = disk.after_kill();
    let (path, bytes) = disk.files("/data/blocks").into_iter().next().unwrap();
    let mut found = 0;
    for at in (0..bytes.len()).step_by(3) {
        let bad = disk.after_kill();
        bad.damage(&path, |bytes| bytes[at] ^= 0x20);
        let bad: Arc<dyn Disk> = Arc::new(bad);
        let Ok((store, _)) = open_on(&bad, small()) else {
            found += 1;
            continue;
        };
        let scan = store.scan(&Default::default(), Timestamp(i64::MIN), Timestamp(i64::MAX));
        match scan.collect::<Result<Vec<_>, _>>() {
            Err(error) => {
                found += 1;
                assert!(error.to_string().contains("damaged"), "byte {at}: {error}");
            }
            // The columns that only other programs read.
            Ok(_) => assert_eq!(all(&store), want, "byte {at}"),
        }
    }
    assert!(found * 3 * 2 > bytes.len(), "{found} of {} bytes told", bytes.len() / 3);
}
