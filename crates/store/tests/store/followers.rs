//! Followers of the embedded store: faults of disk and files, archive, backup, concurrent work.

use crate::kit::*;
use crate::retention::{HOUR, fill, open_at, settings};
use conformance::Received;
use memdisk::{Fault, MemDisk};
use model::Timestamp;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use storage::{FollowError, FollowFrom, Followers, RetentionLimits, Storage as _};
use store::{ArchiveSettings, Disk, Settings, Store};

pub(crate) const NAME: &str = "graphite";
pub(crate) const POSITIONS: &str = "/data/followers/POSITIONS";

pub(crate) fn on(disk: &Arc<MemDisk>) -> Store {
    open_on(&(Arc::clone(disk) as Arc<dyn Disk>), small()).unwrap().0
}

pub(crate) fn of(store: &Store) -> &dyn Followers {
    store.followers().unwrap()
}

/// Two batches of a tick, from two senders.
pub(crate) fn samples(tick: i64) -> Vec<(Spec, i64, f64)> {
    let at = T0 + tick * S;
    let counter = Spec { start: Some(T0), ..spec("n1", "a_total") };
    vec![(counter, at, tick as f64), (spec("n2", "b"), at, tick as f64 + 0.25)]
}

pub(crate) fn send(store: &Store, sender: &mut Sender, ticks: std::ops::Range<i64>) {
    for tick in ticks {
        assert_eq!(append(store, vec![sender.batch(&samples(tick))]), [STORED]);
    }
}

pub(crate) fn sorted_rows(received: &Received) -> Vec<Row> {
    let row = |sample: &conformance::Sample| {
        let (start, bits) = (sample.start.map(|start| start.0), sample.value.to_bits());
        (name(&sample.series), sample.at.0, bits, start)
    };
    let mut rows: Vec<Row> = received.samples.iter().map(row).collect();
    rows.sort();
    rows
}

pub(crate) fn sorted(mut rows: Vec<Row>) -> Vec<Row> {
    rows.sort();
    rows
}

#[test]
fn unreadable_positions_stop_followers_alone_and_no_position_is_assumed() {
    let disk = Arc::new(MemDisk::default());
    let (store, mut sender) = (on(&disk), Sender::new("n1", 1));
    of(&store).follow(NAME, FollowFrom::Now).unwrap();
    send(&store, &mut sender, 0..10);
    let mut received = Received::default();
    received.take(of(&store), NAME, 6);
    drop(store);
    let good = disk.files("/data/followers")[Path::new(POSITIONS)].clone();
    disk.damage(Path::new(POSITIONS), |bytes| bytes[30] ^= 1);
    let store = on(&disk);
    let errors = [
        of(&store).follow(NAME, FollowFrom::Now).unwrap_err(),
        of(&store).next(NAME, 6).unwrap_err(),
        of(&store).confirm(NAME, 1).unwrap_err(),
        of(&store).remove(NAME).unwrap_err(),
        of(&store).list().unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(error, FollowError::Store(_)), "{error:?}");
        assert!(error.to_string().contains("POSITIONS: its checksum differs"), "{error}");
    }
    let verified = store::verify(&*disk, Path::new("/data")).unwrap();
    assert!(verified.findings.iter().any(|it| it.path == Path::new(POSITIONS)), "{verified:?}");
    // All else works.
    send(&store, &mut sender, 10..20);
    store.flush().unwrap();
    store.maintain().unwrap();
    assert_eq!(all(&store).len(), 40);
    drop(store);
    disk.damage(Path::new(POSITIONS), |bytes| bytes.clone_from(&good));
    let store = on(&disk);
    let mut rest = Received::default();
    rest.take_all(of(&store), NAME, 6);
    // The block without a rest file is delivered as a whole: nothing is lost.
    assert_eq!(sorted_rows(&rest), sorted(all(&store)));
    drop(store);
    disk.damage(Path::new(POSITIONS), |bytes| bytes.clear());
    assert!(of(&on(&disk)).next(NAME, 6).is_err(), "an empty file");
}

/// While the positions cannot be read, nothing that they need is deleted or merged. Once their file is restored, followers
/// continue without a restart.
#[test]
fn restored_positions_find_all_that_they_need() {
    let disk = Arc::new(MemDisk::default());
    let (store, mut sender) = (on(&disk), Sender::new("n1", 1));
    of(&store).follow(NAME, FollowFrom::Now).unwrap();
    of(&store).follow("other", FollowFrom::Now).unwrap();
    let mut received = [Received::default(), Received::default()];
    send(&store, &mut sender, 0..10);
    received[0].take(of(&store), NAME, 7);
    store.flush().unwrap();
    send(&store, &mut sender, 10..20);
    while received[1].samples.len() < 24 {
        assert!(received[1].take(of(&store), "other", 6));
    }
    store.flush().unwrap();
    let rests = disk.files("/data/followers").len();
    assert_eq!(rests, 3, "two rest files");
    drop(store);
    let good = disk.files("/data/followers")[Path::new(POSITIONS)].clone();
    for _ in 0..2 {
        disk.damage(Path::new(POSITIONS), |bytes| bytes[30] ^= 1);
        let store = on(&disk);
        for round in 2..20 {
            send(&store, &mut sender, round * 10..round * 10 + 3);
            store.flush().unwrap();
            store.maintain().unwrap();
        }
        assert_eq!(disk.files("/data/followers").len(), rests);
        // Blocks written since then are merged: no position is in them.
        assert!(store.stats().blocks <= 2 + 7 * 2, "{}", store.stats().blocks);
        assert!(of(&store).next(NAME, 5).is_err());
        disk.damage(Path::new(POSITIONS), |bytes| bytes.clone_from(&good));
        let slice = of(&store).next(NAME, 5).unwrap().unwrap();
        assert!(!slice.samples.times.is_empty());
        sender = Sender::new("n1", 2);
    }
    let store = on(&disk);
    for (received, name) in received.iter_mut().zip([NAME, "other"]) {
        received.take_all(of(&store), name, 6);
        assert_eq!(sorted_rows(received), sorted(all(&store)), "{name}");
    }
    assert!(of(&store).list().unwrap().iter().all(|one| one.repeats == 0));
}

#[test]
fn without_followers_there_is_no_file_and_merging_is_as_before() {
    let disk = Arc::new(MemDisk::default());
    let (store, mut sender) = (on(&disk), Sender::new("n1", 1));
    for round in 0..8 {
        send(&store, &mut sender, round * 3..round * 3 + 3);
        store.flush().unwrap();
    }
    store.maintain().unwrap();
    assert_eq!(store.stats().blocks, 1);
    assert!(disk.files("/data/followers").is_empty());
    let manifest = &disk.files("/data")[Path::new("/data/MANIFEST")];
    assert!(!String::from_utf8_lossy(manifest).contains("rests"));
}

#[test]
fn a_merge_never_spans_a_position_and_the_number_of_files_is_bounded() {
    let disk = Arc::new(MemDisk::default());
    let (store, mut sender) = (on(&disk), Sender::new("n1", 1));
    let mut received = Vec::new();
    for round in 0..64 {
        if round % 16 == 7 {
            // It stops here.
            let name = format!("f{round}");
            of(&store).follow(&name, FollowFrom::Now).unwrap();
            received.push((name, round));
        }
        send(&store, &mut sender, round * 3..round * 3 + 3);
        if round % 16 == 7 {
            let mut one = Received::default();
            one.take(of(&store), &received.last().unwrap().0, 4);
        }
        store.flush().unwrap();
        store.maintain().unwrap();
        // At most one block of each level in each section.
        assert!(store.stats().blocks <= 7 * (2 * received.len() as u64 + 1), "{round}");
    }
    assert!(store.stats().blocks > 4);
    for (name, round) in &received {
        let mut rest = Received::default();
        rest.take_all(of(&store), name, 50);
        let want =
            all(&store).into_iter().filter(|row| row.1 >= T0 + (round * 3 + 2) * S).collect();
        assert_eq!(sorted_rows(&rest), sorted(want), "{name}");
        assert_eq!(rest.lost, []);
    }
    store.maintain().unwrap();
    assert!(store.stats().blocks <= 7, "{:?}", store.stats());
    assert_eq!(disk.files("/data/followers").len(), 1, "positions alone");
}

#[test]
fn archived_blocks_are_delivered_and_an_unavailable_archive_is_waited_for() {
    let disk = Arc::new(MemDisk::default());
    let shared: Arc<dyn Disk> = Arc::clone(&disk) as Arc<dyn Disk>;
    let clock = TestClock::new();
    clock.set(T0 + 6 * HOUR);
    let archiving = Settings {
        keep_samples: RetentionLimits { age_us: 3 * HOUR, ..RetentionLimits::ALL },
        archive: Some(ArchiveSettings { dir: "/archive".into(), keep: RetentionLimits::ALL }),
        merge_blocks: 99,
        ..settings()
    };
    let store = open_at(&shared, &clock, archiving.clone());
    of(&store).follow(NAME, FollowFrom::Now).unwrap();
    fill(&store, &mut Sender::new("n1", 1));
    let rows = all(&store);
    let mut received = Received::default();
    received.take(of(&store), NAME, 50);
    store.maintain().unwrap();
    assert_eq!(store.stats().archived_blocks, 3);
    received.take(of(&store), NAME, 50);
    drop(store);
    let files = disk.unmount("/archive");
    let store = open_at(&shared, &clock, archiving.clone());
    for _ in 0..2 {
        let error = of(&store).next(NAME, 50).unwrap_err();
        assert!(matches!(error, FollowError::Store(_)), "{error:?}");
    }
    disk.mount(files);
    received.take_all(of(&store), NAME, 50);
    assert_eq!((sorted_rows(&received), received.lost), (sorted(rows), vec![]));
}

#[test]
fn a_backup_has_the_positions_and_an_output_loses_nothing_after_a_restore() {
    for (read, flushes) in [(0, true), (2, true), (2, false), (9, true)] {
        let dir = tempfile::tempdir().unwrap();
        let (data, copy) = (dir.path().join("data"), dir.path().join("copy"));
        let (store, mut sender) = (open(&data, small()).0, Sender::new("n1", 1));
        of(&store).follow(NAME, FollowFrom::Now).unwrap();
        send(&store, &mut sender, 0..30);
        let mut received = Received::default();
        for _ in 0..read {
            received.take(of(&store), NAME, 6);
        }
        if flushes {
            store.flush().unwrap();
        }
        send(&store, &mut sender, 30..35);
        store::backup(&data, &copy).unwrap();
        let (restored, recovery) = open(&copy, small());
        assert!(recovery.damaged.is_empty());
        received.take_all(of(&restored), NAME, 6);
        assert_eq!(sorted_rows(&received), sorted(all(&restored)), "{read} {flushes}");
        assert!(store::verify(&store::RealDisk, &copy).unwrap().is_good());
    }
}

#[test]
fn a_position_beyond_the_log_is_its_end() {
    let disk = Arc::new(MemDisk::default());
    let (store, mut sender) = (on(&disk), Sender::new("n1", 1));
    of(&store).follow(NAME, FollowFrom::Now).unwrap();
    send(&store, &mut sender, 0..3);
    let early = disk.after_kill();
    for tick in 3..20 {
        send(&store, &mut sender, tick..tick + 1);
        store.flush().unwrap();
    }
    Received::default().take_all(of(&store), NAME, 100);
    let late = disk.files("/data/followers")[Path::new(POSITIONS)].clone();
    early.damage(Path::new(POSITIONS), |bytes| bytes.clone_from(&late));
    let early = Arc::new(early);
    for restart in 0..2 {
        let store = on(&early);
        let mut received = Received::default();
        received.take_all(of(&store), NAME, 100);
        let from = 100 + restart;
        assert_eq!(received.samples.len(), if restart == 0 { 0 } else { 2 });
        let mut sender = Sender::new("n1", 2 + u8::try_from(restart).unwrap());
        send(&store, &mut sender, from..from + 1);
    }
}

/// A boot leaves the window: the store itself finds the gap of its missing batch.
#[test]
fn a_gap_that_the_store_finds_is_delivered_once_whenever_it_is_killed() {
    const DAY: i64 = 86_400 * S;
    for killed_at in 0..4 {
        let (mut disk, clock) = (Arc::new(MemDisk::default()), TestClock::new());
        let opened = |disk: &Arc<MemDisk>| {
            open_at(
                &(Arc::clone(disk) as Arc<dyn Disk>),
                &clock,
                Settings { head_age_us: i64::MAX, ..small() },
            )
        };
        let mut store = opened(&disk);
        of(&store).follow(NAME, FollowFrom::Now).unwrap();
        let mut sender = Sender::new("n1", 1);
        send(&store, &mut sender, 0..1);
        sender.batch(&samples(1));
        send(&store, &mut sender, 2..3);
        store.flush().unwrap();
        clock.set(T0 + 9 * DAY);
        let mut received = Received::default();
        let mut other = Sender::new("n2", 1);
        for step in 0..4 {
            let late = vec![(spec("n2", "b"), T0 + 9 * DAY + step * S, 1.0)];
            let mut batch = other.batch(&late);
            batch.received = clock.now();
            assert_eq!(append(&store, vec![batch]), [STORED]);
            // The log's writer looks for idle boots after a commit.
            store.flush().unwrap();
            received.take_all(of(&store), NAME, 10);
            if step == killed_at {
                disk = Arc::new(disk.after_kill());
                drop(store);
                store = opened(&disk);
            }
        }
        received.take_all(of(&store), NAME, 10);
        let gaps = store.gaps(Timestamp(T0), Timestamp(T0 + DAY), None);
        assert_eq!(received.gaps, gaps, "killed at {killed_at}");
        assert_eq!(gaps.len(), 2, "one for each device: {gaps:?}");
        assert_eq!(sorted_rows(&received), sorted(all(&store)));
    }
}

/// Small slices of a large block decode its rows about once, also within an instant with many rows; the slices of all
/// followers are as small as requested.
#[test]
fn small_slices_of_a_block_read_its_pages_once() {
    let disk: Arc<dyn Disk> = Arc::new(MemDisk::default());
    let settings = Settings { row_group_rows: 1 << 14, page_rows: 1 << 10, ..small() };
    let (store, _) = open_on(&disk, settings).unwrap();
    let names: Vec<String> =
        (0..storage::FOLLOWERS_MAX).map(|number| format!("f{number}")).collect();
    names.iter().for_each(|name| of(&store).follow(name, FollowFrom::Now).unwrap());
    let one = |cpu: u32| Spec { cpu: Some(cpu), ..spec("n1", "load_1m") };
    let crowd = (0..3000).map(|cpu| (one(cpu), T0 + 5 * S, 1.0));
    let ticks = (0..40).flat_map(|tick| (0..100).map(move |cpu| (cpu, T0 + tick * S)));
    let ticks = ticks.map(|(cpu, at)| (one(cpu), at, 2.0));
    let mut sender = Sender::new("n1", 1);
    let batches = [crowd.collect::<Vec<_>>(), ticks.collect()].map(|batch| sender.batch(&batch));
    assert_eq!(append(&store, batches.into()), [STORED, STORED]);
    store.flush().unwrap();
    let before = store.stats().read.rows;
    let mut received = Received::default();
    let mut turns = (1..=7).cycle();
    while received.take(of(&store), &names[0], turns.next().unwrap()) {}
    assert_eq!(sorted_rows(&received), sorted(all(&store)));
    let read = store.stats().read.rows - before - 7000;
    assert!(read < 4 * 7000, "{read} rows are decoded");
    for name in &names[1..] {
        let mut received = Received::default();
        (0..5).for_each(|_| assert!(received.take(of(&store), name, 1)));
        assert_eq!(received.samples.len(), 5);
    }
}

/// Late samples of a batch are rejected, as a settlement came between its receipt and its decision. A replay keeps them.
#[test]
fn a_position_within_a_batch_holds_when_a_replay_keeps_more_of_it() {
    let (disk, clock) = (Arc::new(MemDisk::default()), TestClock::new());
    clock.set(T0 + 6 * HOUR);
    let shared = Arc::clone(&disk) as Arc<dyn Disk>;
    let store = open_at(&shared, &clock, settings());
    fill(&store, &mut Sender::new("n1", 1));
    store.maintain().unwrap();
    let settled = store.settled().unwrap().0;
    of(&store).follow(NAME, FollowFrom::Now).unwrap();
    let tick = |at: i64| (spec("n2", "b"), at, 1.0);
    let late = [settled - 3 * S, settled + S, settled - 2 * S, settled + 2 * S];
    let kept = [settled - S, settled + 3 * S, settled + 4 * S, settled + 5 * S];
    let mut sender = Sender::new("n2", 1);
    let batch = sender.batch(&late.into_iter().chain(kept).map(tick).collect::<Vec<_>>());
    let batch = storage::Incoming { received: clock.now().plus(-S), ..batch };
    let outcome = append(&store, vec![batch]);
    assert!(
        matches!(outcome[..], [storage::Outcome::Stored { samples_rejected: 3, .. }]),
        "{outcome:?}"
    );
    let mut received = Received::default();
    assert!(received.take(of(&store), NAME, 2));
    drop(store);
    let store = open_at(&shared, &clock, settings());
    received.take_all(of(&store), NAME, 2);
    let accepted = received.samples.iter().map(|sample| sample.at.0).filter(|at| *at >= settled);
    let want: Vec<i64> = (1..=5).map(|second| settled + second * S).collect();
    assert_eq!(accepted.collect::<Vec<_>>(), want, "{received:?}");
}

/// The gap is in memory, and no manifest has it: a replay would find it again, at another place.
#[test]
fn a_gap_that_the_store_finds_waits_for_the_manifest() {
    const DAY: i64 = 86_400 * S;
    let (disk, clock) = (Arc::new(MemDisk::default()), TestClock::new());
    let settings = Settings { head_age_us: i64::MAX, ..small() };
    let store = open_at(&(Arc::clone(&disk) as Arc<dyn Disk>), &clock, settings);
    of(&store).follow(NAME, FollowFrom::Now).unwrap();
    let mut sender = Sender::new("n1", 1);
    send(&store, &mut sender, 0..1);
    sender.batch(&samples(1));
    send(&store, &mut sender, 2..3);
    clock.set(T0 + 9 * DAY);
    let mut other = Sender::new("n2", 1);
    let later = |step| vec![(spec("n2", "b"), T0 + 9 * DAY + step * S, 1.0)];
    for step in 0..2 {
        let mut batch = other.batch(&later(step));
        batch.received = clock.now();
        assert_eq!(append(&store, vec![batch]), [STORED]);
    }
    // Blocks cannot be written now.
    disk.plan().set(1, Fault::Full);
    assert!(store.flush().is_err());
    disk.plan().clear();
    let mut received = Received::default();
    let slice = of(&store).next(NAME, 100).unwrap().unwrap();
    received.add(&slice, 100);
    of(&store).confirm(NAME, slice.number).unwrap();
    assert_eq!(received.gaps, []);
    store.flush().unwrap();
    received.take_all(of(&store), NAME, 10);
    assert_eq!(received.gaps.len(), 2);
    assert_eq!(sorted_rows(&received), sorted(all(&store)));
}

#[test]
fn followers_during_concurrent_work_receive_each_sample_once() {
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings { background_maintenance: true, head_samples_max: 60, ..small() };
    let (store, _) = open(dir.path(), settings);
    let over = AtomicBool::new(false);
    let names = ["fast", "slow", "idle"];
    names.iter().for_each(|name| of(&store).follow(name, FollowFrom::Now).unwrap());
    let received = std::thread::scope(|scope| {
        let readers: Vec<_> = names[..2]
            .iter()
            .map(|name| {
                let (store, over) = (&store, &over);
                scope.spawn(move || {
                    let mut received = Received::default();
                    while !over.load(Ordering::SeqCst) {
                        if !received.take(of(store), name, if *name == "fast" { 100 } else { 3 }) {
                            std::thread::yield_now();
                        }
                    }
                    received
                })
            })
            .collect();
        let mut sender = Sender::new("n1", 1);
        for tick in 0..600 {
            send(&store, &mut sender, tick..tick + 1);
            if tick % 50 == 49 {
                store.flush().unwrap();
            }
        }
        over.store(true, Ordering::SeqCst);
        readers.into_iter().map(|reader| reader.join().unwrap()).collect::<Vec<_>>()
    });
    let rows = sorted(all(&store));
    assert_eq!(rows.len(), 1200);
    for (name, mut received) in names.iter().zip(received.into_iter().chain([Received::default()]))
    {
        received.take_all(of(&store), name, 100);
        assert_eq!((sorted_rows(&received), received.lost), (rows.clone(), vec![]), "{name}");
    }
}
