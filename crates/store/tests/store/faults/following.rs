//! Followers on failing and damaged disks: each sample is delivered once, or is an output gap.

use crate::followers::*;
use crate::kit::*;
use conformance::Received;
use memdisk::{Fault, MemDisk};
use model::Timestamp;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use storage::{FollowError, FollowFrom, FollowSlice, Storage as _, StorageError};
use store::Store;

/// Sends, reads and confirms, writes blocks and merges, until the disk is dead. Returns what was confirmed, and the slice
/// with an unknown confirmation.
fn drive(store: &Store) -> (Received, Option<FollowSlice>) {
    let (mut sender, mut received, mut unknown) = (Sender::new("n1", 1), Received::default(), None);
    for tick in 0..14 {
        let batch = sender.batch(&samples(tick));
        append(store, vec![batch]);
        if tick % 2 == 0
            && unknown.is_none()
            && let Ok(Some(slice)) = of(store).next(NAME, 3)
        {
            if tick % 4 == 0 {
                store.flush().ok();
            }
            match of(store).confirm(NAME, slice.number) {
                Ok(()) => received.add(&slice, 3),
                Err(_) => unknown = Some(slice),
            }
        }
        if tick % 3 == 2 {
            store.flush().ok();
            store.maintain().ok();
        }
    }
    (received, unknown)
}

#[test]
fn a_process_that_dies_at_any_call_delivers_each_sample_once() {
    for n in 1.. {
        let disk = Arc::new(MemDisk::default());
        let store = on(&disk);
        of(&store).follow(NAME, FollowFrom::Now).unwrap();
        disk.plan().set(n, Fault::Dead);
        let before = disk.plan().calls();
        let (received, unknown) = drive(&store);
        let calls = disk.plan().calls() - before;
        drop(store);
        for torn in 0..=5 {
            let after = if torn == 5 { disk.after_kill() } else { disk.after_power_cut(torn) };
            let store = on(&Arc::new(after));
            let mut rest = received.clone();
            rest.take_all(of(&store), NAME, 3);
            let want = sorted(all(&store));
            let mut have = sorted_rows(&rest);
            if have != want {
                let slice =
                    unknown.as_ref().unwrap_or_else(|| panic!("dead from {n}, {torn}/4: {have:?}"));
                rest.add(slice, 3);
                have = sorted_rows(&rest);
            }
            assert_eq!(have, want, "dead from {n}, {torn}/4");
            assert_eq!(rest.lost, [], "dead from {n}");
        }
        if n > calls {
            assert!(calls > 100, "{calls}");
            return;
        }
    }
}

#[test]
fn a_call_that_fails_once_delivers_each_sample_once() {
    for n in 1.. {
        let disk = Arc::new(MemDisk::default());
        let store = on(&disk);
        of(&store).follow(NAME, FollowFrom::Now).unwrap();
        let (mut sender, mut received) = (Sender::new("n1", 1), Received::default());
        disk.plan().set(n, Fault::Once);
        let before = disk.plan().calls();
        for tick in 0..14 {
            let batch = sender.batch(&samples(tick));
            while append(&store, vec![batch.clone()]) != [STORED] {}
            if tick % 2 == 0
                && let Some(slice) =
                    of(&store).next(NAME, 3).or_else(|_| of(&store).next(NAME, 3)).unwrap()
            {
                if tick % 4 == 0 {
                    store.flush().or_else(|_| store.flush()).unwrap();
                }
                let confirmed = of(&store).confirm(NAME, slice.number);
                confirmed.or_else(|_| of(&store).confirm(NAME, slice.number)).unwrap();
                received.add(&slice, 3);
            }
            if tick % 3 == 2 {
                store.flush().or_else(|_| store.flush()).unwrap();
                store.maintain().or_else(|_| store.maintain()).unwrap();
            }
        }
        let done = n > disk.plan().calls() - before;
        disk.plan().clear();
        received.take(of(&store), NAME, 3);
        drop(store);
        let store = on(&Arc::new(disk.after_power_cut(0)));
        received.take_all(of(&store), NAME, 3);
        assert_eq!(sorted_rows(&received), sorted(all(&store)), "fault {n}");
        assert_eq!(received.lost, [], "fault {n}");
        if done {
            return;
        }
    }
}

#[test]
fn a_failed_confirmation_counts_as_either() {
    for n in 1..=6 {
        let disk = Arc::new(MemDisk::default());
        let (store, mut sender) = (on(&disk), Sender::new("n1", 1));
        of(&store).follow(NAME, FollowFrom::Now).unwrap();
        send(&store, &mut sender, 0..4);
        let slice = of(&store).next(NAME, 4).unwrap().unwrap();
        disk.plan().set(n, Fault::Once);
        let confirmed = of(&store).confirm(NAME, slice.number);
        disk.plan().clear();
        // A block is written while both positions are possible.
        let again = of(&store).next(NAME, 3).unwrap().unwrap();
        assert_eq!(
            confirmed.is_ok(),
            again.samples != slice.samples && again.samples.times[0] > T0 + S
        );
        store.flush().unwrap();
        store.maintain().unwrap();
        drop(store);
        let store = on(&Arc::new(disk.after_kill()));
        let mut rest = Received::default();
        rest.take_all(of(&store), NAME, 3);
        let whole = sorted(all(&store));
        let mut with = rest.clone();
        with.add(&slice, 4);
        assert!(sorted_rows(&rest) == whole || sorted_rows(&with) == whole, "fault {n}: {rest:?}");
    }
}

#[test]
fn a_damaged_block_is_an_output_gap_and_the_follower_continues() {
    for read in [0, 3] {
        let disk = Arc::new(MemDisk::default());
        let (store, mut sender) = (on(&disk), Sender::new("n1", 1));
        of(&store).follow(NAME, FollowFrom::Now).unwrap();
        send(&store, &mut sender, 0..60);
        store.flush().unwrap();
        send(&store, &mut sender, 60..90);
        let mut received = Received::default();
        (0..read).for_each(|_| assert!(received.take(of(&store), NAME, 20)));
        let before = received.samples.len();
        drop(store);
        let (path, bytes) = disk.files("/data/blocks").into_iter().next().unwrap();
        // The middle of the file has pages of rows.
        disk.damage(&path, |file| file[100..bytes.len() / 8].fill(0x55));
        let store = on(&disk);
        assert!(
            store
                .scan(&Default::default(), Timestamp(i64::MIN), Timestamp(i64::MAX))
                .any(|it| it.is_err())
        );
        received.take_all(of(&store), NAME, 20);
        let lost: u64 = received.lost.iter().map(|gap| gap.samples).sum();
        assert_eq!(received.samples.len() as u64 + lost, 180, "{:?}", received.lost);
        assert_eq!((received.lost.len(), received.samples.len()), (1, 60 + before));
        assert!(received.lost[0].why.contains("damaged"), "{:?}", received.lost);
        assert_eq!(received.lost[0].to, Timestamp(T0 + 59 * S));
        drop(store);
        // Confirmed: not reported again.
        assert_eq!(of(&on(&disk)).next(NAME, 20).unwrap(), None);
    }
}

fn is_rest(path: &PathBuf) -> bool {
    path != Path::new(POSITIONS)
}

/// The block still has the samples, among others that the follower has: those come again.
#[test]
fn a_damaged_rest_file_is_read_from_its_block() {
    let disk = Arc::new(MemDisk::default());
    let (store, mut sender) = (on(&disk), Sender::new("n1", 1));
    of(&store).follow(NAME, FollowFrom::Now).unwrap();
    send(&store, &mut sender, 0..10);
    let mut received = Received::default();
    received.take(of(&store), NAME, 6);
    store.flush().unwrap();
    send(&store, &mut sender, 10..12);
    let path = disk.files("/data/followers").into_keys().find(is_rest).unwrap();
    disk.damage(&path, |bytes| bytes.truncate(100));
    let mut rest = Received::default();
    rest.take(of(&store), NAME, 6);
    drop(store);
    let store = on(&disk);
    rest.take_all(of(&store), NAME, 6);
    assert_eq!((sorted_rows(&rest), rest.lost), (sorted(all(&store)), vec![]));
    // Nothing needs the file any more.
    store.maintain().unwrap();
    assert_eq!(disk.files("/data/followers").into_keys().filter(is_rest).count(), 0);
}

/// Neither writes nor reads in `followers/` work, at any time: samples are stored and read all the same, and once the folder
/// works again, the follower has everything, some samples twice.
#[test]
fn a_fault_of_the_folder_of_followers_stops_no_store() {
    let disk = Arc::new(MemDisk::default());
    let (store, mut sender) = (on(&disk), Sender::new("n1", 1));
    of(&store).follow(NAME, FollowFrom::Now).unwrap();
    send(&store, &mut sender, 0..10);
    let mut received = Received::default();
    received.take(of(&store), NAME, 6);
    let open = of(&store).next(NAME, 4).unwrap().unwrap();
    disk.reject(Some("/data/followers"));
    store.flush().unwrap();
    let why = store.stats().last_failure.unwrap();
    assert!(why.contains("/data/followers"), "{why}");
    assert!(matches!(of(&store).confirm(NAME, open.number), Err(FollowError::Void(_))));
    let slice = of(&store).next(NAME, 100).unwrap().unwrap();
    assert!(matches!(of(&store).confirm(NAME, slice.number), Err(FollowError::Store(_))));
    assert_eq!(of(&store).list().unwrap()[0].repeats, 1);
    drop(store);
    let store = on(&disk);
    assert!(of(&store).next(NAME, 6).is_err());
    send(&store, &mut sender, 10..20);
    store.flush().unwrap();
    store.maintain().unwrap();
    assert_eq!(all(&store).len(), 40);
    disk.reject(None);
    let mut rest = Received::default();
    rest.take_all(of(&store), NAME, 6);
    assert_eq!((sorted_rows(&rest), rest.lost), (sorted(all(&store)), vec![]));
    send(&store, &mut sender, 20..22);
    store.flush().unwrap();
    assert_eq!(store.stats().last_failure, None);
    drop(store);
    let mut rest = Received::default();
    rest.take_all(of(&on(&disk)), NAME, 6);
    assert_eq!(rest.samples.len(), 4);
}

#[test]
fn a_missing_folder_of_followers_is_created() {
    let dir = tempfile::tempdir().unwrap();
    let (store, mut sender) = (open(dir.path(), small()).0, Sender::new("n1", 1));
    of(&store).follow(NAME, FollowFrom::Now).unwrap();
    let folder = dir.path().join("followers");
    let mut received = Received::default();
    for round in 0..3 {
        send(&store, &mut sender, round * 10..round * 10 + 10);
        received.take(of(&store), NAME, 6);
        std::fs::remove_dir_all(&folder).unwrap();
        store.flush().unwrap();
        received.take_all(of(&store), NAME, 100);
    }
    assert_eq!(sorted_rows(&received), sorted(all(&store)));
    // The administrator's copy of damaged positions stays.
    let copy = folder.join("POSITIONS.bad");
    std::fs::rename(folder.join("POSITIONS"), &copy).unwrap();
    std::fs::write(folder.join("rest-0-0-0-0.parquet"), "").unwrap();
    drop(store);
    let (store, recovery) = open(dir.path(), small());
    assert!(copy.exists() && recovery.removed.len() == 1, "{recovery:?}");
    assert!(of(&store).list().unwrap().is_empty());
}

/// Positions that cannot be found are not absent: without them, outputs would begin as new ones. A missing rest file only makes its
/// follower begin at the block.
#[test]
fn a_backup_has_the_positions_or_fails() {
    let dir = tempfile::tempdir().unwrap();
    let (data, copy) = (dir.path().join("data"), dir.path().join("copy"));
    let (store, mut sender) = (open(&data, small()).0, Sender::new("n1", 1));
    std::fs::write(data.join("followers"), "").unwrap();
    store::backup(&data, &copy).unwrap_err();
    std::fs::remove_file(data.join("followers")).unwrap();
    of(&store).follow(NAME, FollowFrom::Now).unwrap();
    send(&store, &mut sender, 0..10);
    assert!(Received::default().take(of(&store), NAME, 6));
    store.flush().unwrap();
    let rests = std::fs::read_dir(data.join("followers")).unwrap().map(|file| file.unwrap().path());
    let rest = rests.into_iter().find(|path| !path.ends_with("POSITIONS")).unwrap();
    std::fs::remove_file(rest).unwrap();
    store::backup(&data, &copy).unwrap();
    let (restored, _) = open(&copy, small());
    let mut received = Received::default();
    received.take_all(of(&restored), NAME, 6);
    assert_eq!((sorted_rows(&received), received.lost), (sorted(all(&store)), vec![]));
}

/// A block is written at the second try; positions moved meanwhile, and any call failed: no file is left over, and each one
/// that a manifest may list is that which it lists.
#[test]
fn a_repeated_flush_leaves_no_rest_file_and_changes_none() {
    for n in 1.. {
        let disk = Arc::new(MemDisk::default());
        let (store, mut sender) = (on(&disk), Sender::new("n1", 1));
        of(&store).follow(NAME, FollowFrom::Now).unwrap();
        send(&store, &mut sender, 0..10);
        let mut received = Received::default();
        received.take(of(&store), NAME, 6);
        let before = disk.plan().calls();
        disk.plan().set(n, Fault::Once);
        let failed = store.flush().is_err();
        let is_over = n > disk.plan().calls() - before;
        disk.plan().clear();
        let slice = of(&store).next(NAME, 5).unwrap().unwrap();
        if failed {
            // The second try may fail too, at its manifest: the disk has that of the first one.
            for m in [1, 4, 8, 12, 16, 20, 24] {
                disk.plan().set(m, Fault::Dead);
                store.flush().ok();
                disk.plan().clear();
                let after = on(&Arc::new(disk.after_kill()));
                let mut rest = received.clone();
                rest.take_all(of(&after), NAME, 6);
                assert_eq!(sorted_rows(&rest), sorted(all(&after)), "fault {n}, dead from {m}");
                assert_eq!(rest.lost, [], "fault {n}, dead from {m}");
            }
        }
        of(&store).confirm(NAME, slice.number).unwrap();
        received.add(&slice, 5);
        store.flush().unwrap();
        let manifest = &disk.files("/data")[Path::new("/data/MANIFEST")];
        let manifest = String::from_utf8_lossy(manifest);
        for path in disk.files("/data/followers").into_keys().filter(is_rest) {
            let name = path.file_name().unwrap().to_string_lossy();
            assert!(manifest.contains(&*name), "fault {n}: {name} is left over");
        }
        received.take_all(of(&store), NAME, 6);
        assert_eq!(sorted_rows(&received), sorted(all(&store)), "fault {n}");
        if is_over {
            assert!(!failed && n > 20, "{n}");
            return;
        }
    }
}

/// After two failed confirmations the file has one of two positions, not of three.
#[test]
fn of_two_failed_confirmations_the_first_may_be_on_the_disk() {
    let disk = Arc::new(MemDisk::default());
    let (store, mut sender) = (on(&disk), Sender::new("n1", 1));
    of(&store).follow(NAME, FollowFrom::Now).unwrap();
    send(&store, &mut sender, 0..6);
    let first = of(&store).next(NAME, 4).unwrap().unwrap();
    // Everything but the last sync is done.
    let before = disk.plan().calls();
    disk.plan().set(6, Fault::Once);
    of(&store).confirm(NAME, first.number).unwrap_err();
    assert_eq!(disk.plan().calls() - before, 6);
    let second = of(&store).next(NAME, 2).unwrap().unwrap();
    disk.plan().set(1, Fault::Once);
    of(&store).confirm(NAME, second.number).unwrap_err();
    let third = of(&store).next(NAME, 6).unwrap().unwrap();
    assert_eq!(third.samples.times.len(), 6);
    store.flush().unwrap();
    let store = on(&Arc::new(disk.after_kill()));
    let mut received = Received::default();
    received.add(&first, 4);
    received.take_all(of(&store), NAME, 4);
    assert_eq!(sorted_rows(&received), sorted(all(&store)));
}

/// Appends a batch that is written, and neither synced nor cut off.
fn uncut(disk: &MemDisk, store: &Store, batch: storage::Incoming, n: u64) {
    disk.plan().set(n, Fault::Dead);
    assert_ne!(append(store, vec![batch]), [STORED]);
    disk.plan().clear();
}

/// A replay finds the first copy of each batch before the places of all that was stored since.
#[test]
fn after_several_uncut_appends_no_position_passes_the_first() {
    let disk = Arc::new(MemDisk::default());
    let (store, mut sender) = (on(&disk), Sender::new("n1", 1));
    of(&store).follow(NAME, FollowFrom::Now).unwrap();
    send(&store, &mut sender, 0..2);
    let mut received = Received::default();
    received.take_all(of(&store), NAME, 10);
    let [first, second, third] = [2, 3, 4].map(|tick| sender.batch(&samples(tick)));
    uncut(&disk, &store, first.clone(), 2);
    assert_eq!(append(&store, vec![second]), [STORED]);
    uncut(&disk, &store, third.clone(), 2);
    let is_waiting = |error| matches!(error, FollowError::Store(StorageError::Unavailable(_)));
    let slice = of(&store).next(NAME, 10).unwrap().unwrap();
    assert!(is_waiting(of(&store).confirm(NAME, slice.number).unwrap_err()));
    // A new follower would begin between the copies.
    assert!(is_waiting(of(&store).follow("new", FollowFrom::Now).unwrap_err()));
    let after = on(&Arc::new(disk.after_kill()));
    received.take_all(of(&after), NAME, 10);
    assert_eq!(sorted_rows(&received), sorted(all(&after)));
    assert_eq!(append(&store, vec![first, third]), [STORED, STORED]);
    store.flush().unwrap();
    of(&store).follow("new", FollowFrom::Now).unwrap();
    of(&store).confirm(NAME, slice.number).unwrap();
}

/// The log keeps a batch that was not acknowledged, and a second copy that was. Replay keeps the first one, at another place.
#[test]
fn after_an_append_that_cannot_be_cut_off_confirmations_wait_for_a_block() {
    for killed in [false, true] {
        let disk = Arc::new(MemDisk::default());
        let (store, mut sender) = (on(&disk), Sender::new("n1", 1));
        of(&store).follow(NAME, FollowFrom::Now).unwrap();
        send(&store, &mut sender, 0..2);
        let mut received = Received::default();
        assert!(received.take(of(&store), NAME, 10));
        // The record is written; it is neither synced nor cut off.
        disk.plan().set(2, Fault::Dead);
        let first = sender.batch(&samples(2));
        assert_ne!(append(&store, vec![first.clone()]), [STORED]);
        disk.plan().clear();
        let second = sender.batch(&samples(3));
        assert_eq!(append(&store, vec![second, first]), [STORED, STORED]);
        let slice = of(&store).next(NAME, 10).unwrap().unwrap();
        let error = of(&store).confirm(NAME, slice.number).unwrap_err();
        assert!(matches!(error, FollowError::Store(StorageError::Unavailable(_))), "{error:?}");
        if killed {
            drop(store);
            let store = on(&Arc::new(disk.after_kill()));
            received.take_all(of(&store), NAME, 2);
            assert_eq!(sorted_rows(&received), sorted(all(&store)));
            continue;
        }
        store.flush().unwrap();
        of(&store).confirm(NAME, slice.number).unwrap();
        received.add(&slice, 10);
        send(&store, &mut sender, 4..6);
        received.take_all(of(&store), NAME, 10);
        assert_eq!(sorted_rows(&received), sorted(all(&store)));
    }
}
