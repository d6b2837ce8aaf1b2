//! Final rollups and deleted samples: windows stay the same.

use crate::kit::*;
use memdisk::{Fault, MemDisk};
use model::{Rollup, Timestamp};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use storage::{Outcome, RetentionLimits, Selector, Storage as _, Windows};
use store::{ArchiveSettings, Disk, Settings, Store};

pub(crate) const HOUR: i64 = 3600 * S;

/// Late samples are accepted for two hours; an hour is settled at once.
pub(crate) fn settings() -> Settings {
    Settings {
        settle_after_us: 2 * HOUR,
        settle_step_us: HOUR,
        merge_blocks: 3,
        head_age_us: i64::MAX,
        ..small()
    }
}

pub(crate) fn open_at(disk: &Arc<dyn Disk>, clock: &TestClock, settings: Settings) -> Store {
    Store::open_on(Arc::clone(disk), Path::new("/data"), settings, clock.clock()).unwrap().0
}

/// Ten minutes of a counter and a gauge, a sample a minute, from the minute `from` on.
fn minutes(sender: &mut Sender, from: i64) -> storage::Incoming {
    let mut samples = Vec::new();
    for minute in from..from + 10 {
        let at = T0 + minute * 60 * S;
        let counter = Spec { start: Some(T0), ..spec("n1", "a_total") };
        samples.push((counter, at, minute as f64));
        samples.push((spec("n2", "b"), at, (minute % 7) as f64 + 0.25));
    }
    sender.batch(&samples)
}

/// Six hours in blocks of an hour each; ten minutes of the third hour arrive after the fourth.
pub(crate) fn fill(store: &Store, sender: &mut Sender) {
    let mut late = None;
    for batch in 0..36 {
        let incoming = minutes(sender, batch * 10);
        if batch == 14 {
            late = Some(incoming);
            continue;
        }
        assert_eq!(append(store, vec![incoming]), [STORED]);
        if batch == 25 {
            assert_eq!(append(store, vec![late.take().unwrap()]), [STORED]);
        }
        if batch % 6 == 5 {
            store.flush().unwrap();
        }
    }
}

pub(crate) type Rollups = BTreeMap<(i64, String, Timestamp), Rollup>;

pub(crate) fn rollups(store: &Store) -> Rollups {
    let (snapshot, mut all) = (store.snapshot(), Rollups::new());
    let (from, to) = (Timestamp(i64::MIN), Timestamp(i64::MAX));
    for window_us in storage::WINDOWS_US {
        for found in snapshot.windows(&Selector::default(), from, to, window_us) {
            let Windows { series, windows } = found.unwrap();
            let name = name(&series.series);
            for (start, rollup) in windows {
                let twice = all.insert((window_us, name.clone(), start), rollup);
                assert!(twice.is_none(), "{name} {start} is found twice");
            }
        }
    }
    all
}

pub(crate) fn assert_same(have: &Rollups, want: &Rollups, what: &str) {
    assert!(have.keys().eq(want.keys()), "{what}");
    let near =
        |a: f64, b: f64| a.is_nan() && b.is_nan() || (a - b).abs() <= 1e-9 * a.abs().max(1.0);
    for ((key, have), want) in have.iter().zip(want.values()) {
        let exact = |one: &Rollup| (one.count, one.first, one.last, one.min, one.max, one.resets);
        assert_eq!(exact(have), exact(want), "{what}: {key:?}");
        assert!(near(have.sum, want.sum) && near(have.integral, want.integral), "{what}: {key:?}");
        assert!(near(have.seconds, want.seconds), "{what}: {key:?}");
    }
}

#[test]
fn settled_times_and_rejections_survive_replay() {
    let disk = Arc::new(MemDisk::default());
    let shared: Arc<dyn Disk> = Arc::clone(&disk) as Arc<dyn Disk>;
    let clock = TestClock::new();
    clock.set(T0 + 6 * HOUR);
    let store = open_at(&shared, &clock, settings());
    let mut sender = Sender::new("n1", 1);
    fill(&store, &mut sender);
    let before = rollups(&store);
    assert_eq!(before.len(), 2 * (6 * 12 + 6));
    store.maintain().unwrap();
    assert_same(&rollups(&store), &before, "settled");
    assert_eq!(store.stats().settled, Some(Timestamp(T0 + 4 * HOUR)));
    let late = storage::Incoming { received: clock.now(), ..minutes(&mut sender, 235) };
    let late = append(&store, vec![late]);
    assert!(matches!(late[..], [Outcome::Stored { samples_rejected: 10, .. }]), "{late:?}");
    let (rows, after) = (all(&store), rollups(&store));
    // Inserted rows are stored whole or not at all.
    let inserted = minutes(&mut Sender::new("push/rows", 1), 235);
    let inserted = append(&store, vec![storage::Incoming { received: clock.now(), ..inserted }]);
    let is_final = |why: &str| why.contains("is final");
    assert!(matches!(&inserted[..], [Outcome::RejectedWhole { why, .. }] if is_final(why)));
    assert!(all(&store) == rows);
    drop(store);
    let shared: Arc<dyn Disk> = Arc::new(disk.after_power_cut(0));
    let store = open_at(&shared, &clock, settings());
    assert!(all(&store) == rows, "rejected samples do not return");
    assert_same(&rollups(&store), &after, "after a crash");
}

#[test]
fn old_or_excess_samples_are_deleted_and_their_windows_remain() {
    for (keep, left) in [
        (RetentionLimits { age_us: 3 * HOUR, ..RetentionLimits::ALL }, 3),
        (RetentionLimits { bytes_max: 1, ..RetentionLimits::ALL }, 1),
    ] {
        let disk = Arc::new(MemDisk::default());
        let shared: Arc<dyn Disk> = Arc::clone(&disk) as Arc<dyn Disk>;
        let clock = TestClock::new();
        clock.set(T0 + 6 * HOUR);
        // Blocks of one hour are not merged, so that they are deleted hour by hour.
        let settings = Settings { keep_samples: keep, merge_blocks: 99, ..settings() };
        let store = open_at(&shared, &clock, settings.clone());
        let mut sender = Sender::new("n1", 1);
        fill(&store, &mut sender);
        let (before, samples) = (rollups(&store), all(&store).len());
        store.maintain().unwrap();
        assert_same(&rollups(&store), &before, "after samples were deleted");
        let stats = store.stats();
        let names: Vec<_> = disk.files("/data/blocks").into_keys().collect();
        assert_eq!(stats.blocks, left, "{keep:?} {names:?} {stats:?}");
        assert_eq!(stats.samples_removed, samples as u64 - all(&store).len() as u64);
        assert_eq!(disk.files("/data/blocks").len() as u64, left);
        assert!(store::verify(&*disk, Path::new("/data")).unwrap().is_good());
        drop(store);
        let shared: Arc<dyn Disk> = Arc::new(disk.after_kill());
        let store = open_at(&shared, &clock, settings);
        assert_same(&rollups(&store), &before, "after a start");
        assert_eq!(store.stats().samples_removed, stats.samples_removed);
        assert_eq!(store.stats().settled, stats.settled);
    }
}

/// One hour is settled at a time, and the files stay few.
#[test]
fn final_rollup_files_are_joined() {
    let disk = Arc::new(MemDisk::default());
    let shared: Arc<dyn Disk> = Arc::clone(&disk) as Arc<dyn Disk>;
    let clock = TestClock::new();
    let store = open_at(&shared, &clock, settings());
    let mut sender = Sender::new("n1", 1);
    for batch in 0..200 {
        clock.set(T0 + (batch + 1) * HOUR / 6);
        assert_eq!(append(&store, vec![minutes(&mut sender, batch * 10)]), [STORED]);
        if batch % 6 == 5 {
            store.flush().unwrap();
            store.maintain().unwrap();
            let files = disk.files("/data/rollups").into_keys();
            let names = files.map(|path| path.file_name().unwrap().to_string_lossy().into_owned());
            let settled = names.filter(|name| name.starts_with("settled-")).count();
            // Two of each level of three, and as many of the other length.
            assert!(settled <= 2 * 2 * 4, "{settled} files after {} hours", batch / 6 + 1);
        }
    }
    let whole = open_at(&(Arc::new(MemDisk::default()) as Arc<dyn Disk>), &clock, settings());
    let mut sender = Sender::new("n1", 1);
    for batch in 0..200 {
        assert_eq!(append(&whole, vec![minutes(&mut sender, batch * 10)]), [STORED]);
    }
    assert_same(&rollups(&store), &rollups(&whole), "from joined files");
    assert!(store::verify(&*disk, Path::new("/data")).unwrap().is_good());
}

/// Whatever call fails or is the last: windows stay the same, no sample is duplicated.
#[test]
fn a_process_that_dies_while_it_settles_loses_no_window() {
    let keep_samples = RetentionLimits { age_us: 3 * HOUR, ..RetentionLimits::ALL };
    sweep(&Settings { keep_samples, ..settings() });
}

/// And where samples move to an archive, none is lost.
#[test]
fn a_process_that_dies_while_it_archives_loses_no_sample() {
    let keep_samples = RetentionLimits { age_us: 3 * HOUR, ..RetentionLimits::ALL };
    let archive = Some(ArchiveSettings { dir: "/archive".into(), keep: RetentionLimits::ALL });
    sweep(&Settings { keep_samples, archive, ..settings() });
}

fn sweep(settings: &Settings) {
    let clock = TestClock::new();
    clock.set(T0 + 6 * HOUR);
    let filled = Arc::new(MemDisk::default());
    let shared: Arc<dyn Disk> = Arc::clone(&filled) as Arc<dyn Disk>;
    let store = open_at(&shared, &clock, settings.clone());
    fill(&store, &mut Sender::new("n1", 1));
    let (before, rows) = (rollups(&store), all(&store));
    drop(store);
    let (mut failed, mut archived) = (0, 0);
    for (first, fault) in (1..).zip([Fault::Once, Fault::Dead, Fault::Full]) {
        for n in (first..).step_by(stride()) {
            let disk = Arc::new(filled.after_kill());
            let shared: Arc<dyn Disk> = Arc::clone(&disk) as Arc<dyn Disk>;
            let store = open_at(&shared, &clock, settings.clone());
            disk.plan().set(n, fault);
            let calls = disk.plan().calls();
            let maintained = store.maintain();
            let done = n > disk.plan().calls() - calls;
            disk.plan().clear();
            let what = format!("{fault:?} at call {n}");
            if fault != Fault::Dead {
                assert_same(&rollups(&store), &before, &what);
            }
            failed += usize::from(maintained.is_err());
            drop(store);
            let left = if n % 2 == 0 { disk.after_kill() } else { disk.after_power_cut(0) };
            let shared: Arc<dyn Disk> = Arc::new(left);
            let store = open_at(&shared, &clock, settings.clone());
            assert_same(&rollups(&store), &before, &what);
            // A fault while a block was read skips it for an hour.
            store.maintain().unwrap();
            assert_same(&rollups(&store), &before, &what);
            assert_eq!(store.stats().settled, Some(Timestamp(T0 + 4 * HOUR)), "{what}");
            if settings.archive.is_some() {
                assert!(all(&store) == rows, "{what}");
                archived += usize::from(store.stats().archived_blocks > 0);
            }
            if done {
                break;
            }
        }
    }
    // After a failed merge, a block may contain samples too young for the archive.
    assert!(settings.archive.is_none() || archived > 20, "{archived}");
    // A file that cannot be removed is not a failure.
    assert!(failed > 20, "{failed}");
}

/// Step between tested calls; `make soak` lets every one of them fail.
fn stride() -> usize {
    std::env::var("STRIDE").map_or(7, |stride| stride.parse().unwrap())
}
