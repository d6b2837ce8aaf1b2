//! Queries read archived blocks like all others, while the archive is available.

use crate::kit::*;
use crate::retention::{HOUR, assert_same, fill, open_at, rollups, settings};
use memdisk::MemDisk;
use model::Timestamp;
use std::path::Path;
use std::sync::Arc;
use storage::{RetentionLimits, Selector, Storage as _};
use store::{ArchiveSettings, Disk, Settings, Store};

/// Samples older than three hours are archived.
fn archiving(keep: RetentionLimits) -> Settings {
    Settings {
        keep_samples: RetentionLimits { age_us: 3 * HOUR, ..RetentionLimits::ALL },
        archive: Some(ArchiveSettings { dir: "/archive".into(), keep }),
        // Blocks of one hour are not merged.
        merge_blocks: 99,
        ..settings()
    }
}

/// Six hours; the first three are due for the archive.
fn filled(keep: RetentionLimits) -> (Arc<MemDisk>, TestClock, Store) {
    let disk = Arc::new(MemDisk::default());
    let shared: Arc<dyn Disk> = Arc::clone(&disk) as Arc<dyn Disk>;
    let clock = TestClock::new();
    clock.set(T0 + 6 * HOUR);
    let store = open_at(&shared, &clock, archiving(keep));
    fill(&store, &mut Sender::new("n1", 1));
    (disk, clock, store)
}

#[test]
fn old_blocks_move_and_answers_remain_the_same() {
    let (disk, clock, store) = filled(RetentionLimits::ALL);
    let (before, rows, whole) = (rollups(&store), all(&store), store.stats());
    store.maintain().unwrap();
    let check = |store: &Store| {
        assert!(all(store) == rows);
        assert_same(&rollups(store), &before, "archived");
        let stats = store.stats();
        assert_eq!((stats.blocks, stats.archived_blocks), (whole.blocks, 3));
        assert!(stats.archived_bytes > 0 && stats.archived_bytes < stats.block_bytes);
        assert_eq!(stats.samples_removed, 0);
    };
    check(&store);
    assert_eq!(disk.files("/data/blocks").len(), 3);
    assert_eq!(disk.files("/archive").len(), 1 + 3);
    let verified = store::verify(&*disk, Path::new("/data")).unwrap();
    assert!(verified.is_good() && verified.archived == 3, "{verified:?}");
    assert_eq!(verified.findings, []);
    drop(store);
    // Leftovers of a crash or of a failed deletion are reported, and stay.
    let stray = Path::new("/archive/000099.parquet.tmp");
    disk.create(stray).unwrap().sync().unwrap();
    let verified = store::verify(&*disk, Path::new("/data")).unwrap();
    let [found] = &*verified.findings else { panic!("{verified:?}") };
    assert!(verified.is_good() && found.path == stray && found.is_harmless, "{found:?}");
    let shared: Arc<dyn Disk> = Arc::clone(&disk) as Arc<dyn Disk>;
    let settings = archiving(RetentionLimits::ALL);
    let (store, recovery) =
        Store::open_on(shared, Path::new("/data"), settings, clock.clock()).unwrap();
    assert_eq!(recovery.archive_strays, [stray]);
    drop(store);
    let shared: Arc<dyn Disk> = Arc::new(disk.after_power_cut(0));
    check(&open_at(&shared, &clock, archiving(RetentionLimits::ALL)));
    // They are also found at their last location.
    check(&open_at(&shared, &clock, Settings { archive: None, ..archiving(RetentionLimits::ALL) }));
}

#[test]
fn while_the_archive_is_unavailable_queries_of_its_time_fail_and_all_else_continues() {
    let (disk, clock, store) = filled(RetentionLimits::ALL);
    let rows = all(&store);
    store.maintain().unwrap();
    drop(store);
    let files = disk.unmount("/archive");
    let shared: Arc<dyn Disk> = Arc::clone(&disk) as Arc<dyn Disk>;
    let (store, recovery) =
        Store::open_on(shared, Path::new("/data"), archiving(RetentionLimits::ALL), clock.clock())
            .unwrap();
    assert_eq!(recovery.archive_unavailable.as_deref(), Some(Path::new("/archive")));
    let recent = crate::kit::rows(&store, &Selector::default(), T0 + 4 * HOUR, i64::MAX);
    assert!(recent.len() > 100 && recent.iter().all(|row| rows.contains(row)));
    let old = store.scan(&Selector::default(), Timestamp(T0), Timestamp(T0 + HOUR)).next();
    let error = old.unwrap().unwrap_err().to_string();
    assert!(error.contains("/archive/") && error.contains("cannot read"), "{error}");
    // The next block is due, and stays; nothing is created in place of the archive.
    clock.set(T0 + 8 * HOUR);
    let mut sender = Sender::new("n2", 1);
    assert_eq!(
        append(&store, vec![sender.batch(&[(spec("n3", "b"), T0 + 8 * HOUR, 1.0)])]),
        [STORED]
    );
    let error = store.maintain().unwrap_err().to_string();
    assert!(error.contains("/archive/ARCHIVE") && error.contains("mounted"), "{error}");
    assert_eq!((store.stats().retain_errors, store.stats().archived_blocks), (1, 3));
    assert!(disk.files("/archive").is_empty());
    assert_eq!(store.stats().settled, Some(Timestamp(T0 + 6 * HOUR)), "it is settled all the same");
    let verified = store::verify(&*disk, Path::new("/data")).unwrap();
    assert_eq!(verified.findings.len(), 3, "{verified:?}");
    // It is available again.
    disk.mount(files);
    assert_eq!(all(&store).len(), rows.len() + 1);
    store.maintain().unwrap();
    assert_eq!(store.stats().archived_blocks, 5);
}

#[test]
fn blocks_beyond_the_limit_of_the_archive_are_deleted() {
    let (disk, _, store) = filled(RetentionLimits { bytes_max: 1, ..RetentionLimits::ALL });
    let (before, rows) = (rollups(&store), all(&store).len());
    store.maintain().unwrap();
    assert_same(&rollups(&store), &before, "let go");
    let stats = store.stats();
    assert_eq!((stats.blocks, stats.archived_blocks), (3, 0));
    assert_eq!(stats.samples_removed, (rows - all(&store).len()) as u64);
    assert!(!disk.files("/archive").into_keys().any(|path| path.extension().is_some()));
}

#[test]
fn an_archive_belongs_to_one_data_directory() {
    let (disk, clock, store) = filled(RetentionLimits::ALL);
    store.maintain().unwrap();
    drop(store);
    let shared: Arc<dyn Disk> = Arc::clone(&disk) as Arc<dyn Disk>;
    let open_in = |dir: &str, archive: &str| {
        clock.set(clock.now().0 + 1);
        let archive = Some(ArchiveSettings { dir: archive.into(), keep: RetentionLimits::ALL });
        let settings = Settings { archive, ..archiving(RetentionLimits::ALL) };
        Store::open_on(Arc::clone(&shared), Path::new(dir), settings, clock.clock())
    };
    let error = open_in("/other", "/archive").unwrap_err().to_string();
    assert!(
        error.contains("/archive/ARCHIVE") && error.contains("another data directory"),
        "{error}"
    );
    // A new archive belongs to its data directory before it has any block.
    drop(open_in("/third", "/empty").unwrap());
    let error = open_in("/fourth", "/empty").unwrap_err().to_string();
    assert!(error.contains("another data directory"), "{error}");
    // Without blocks, another archive may begin; with blocks, it counts as missing.
    drop(open_in("/third", "/elsewhere").unwrap());
    let (store, recovery) = open_in("/data", "/elsewhere2").unwrap();
    assert!(recovery.archive_unavailable.is_some());
    // A failed start leaves the manifest's location.
    drop(store);
    assert!(open_in("/data", "/empty").is_err());
    let verified = store::verify(&*disk, Path::new("/data")).unwrap();
    assert!(verified.is_good() && verified.archived == 3, "{verified:?}");
    let error = open_in("/fifth", "/data/blocks").unwrap_err().to_string();
    assert!(error.contains("it contains `"), "{error}");
}

/// A server with a copy of the data directory has blocks of the same names.
#[test]
fn a_file_in_the_archive_is_never_overwritten() {
    let (disk, _, store) = filled(RetentionLimits::ALL);
    let (first, _) = disk.files("/data/blocks").pop_first().unwrap();
    let theirs = Path::new("/archive").join(first.file_name().unwrap());
    let other: Arc<dyn Disk> = Arc::clone(&disk) as Arc<dyn Disk>;
    other.create(&theirs).unwrap().write(b"other samples").unwrap();
    let rows = all(&store);
    let error = store.maintain().unwrap_err().to_string();
    assert!(error.contains(theirs.to_str().unwrap()), "{error}");
    assert_eq!(disk.files("/archive")[&theirs], b"other samples");
    assert!(all(&store) == rows && store.stats().archived_blocks < 3);
}

/// On the real file system it must exist: no directory is created in place of a mount point.
#[test]
fn a_missing_archive_is_reported_at_startup() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let archive = |name: &str| Settings {
        archive: Some(ArchiveSettings { dir: at(name), keep: RetentionLimits::ALL }),
        ..archiving(RetentionLimits::ALL)
    };
    let clock = TestClock::new();
    let error = Store::open(&at("data"), archive("archive"), clock.clock()).unwrap_err();
    assert!(error.to_string().contains("create the folder first"), "{error}");
    assert!(!at("archive").try_exists().unwrap());
    std::fs::create_dir(at("archive")).unwrap();
    let store = Store::open(&at("data"), archive("archive"), clock.clock()).unwrap().0;
    let error = Store::open(&at("data2"), archive("archive"), clock.clock()).unwrap_err();
    assert!(error.to_string().contains("LOCK"), "one at a time: {error}");
    drop(store);
}
