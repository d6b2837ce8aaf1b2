//! Verification of a directory: a good one is reported as good, and every flipped byte is detected.

use crate::kit::*;
use memdisk::MemDisk;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::{Disk, OpenError, Store, Verified};

const DIR: &str = "/data";

fn check(disk: &MemDisk) -> Verified {
    store::verify(disk, Path::new(DIR)).unwrap()
}

/// Two blocks, and batches after them in the log.
fn some() -> MemDisk {
    let disk = Arc::new(MemDisk::default());
    let shared = Arc::clone(&disk) as Arc<dyn Disk>;
    let mut sender = Sender::new("n1", 1);
    let (store, _) = open_on(&shared, small()).unwrap();
    for tick in 0..9 {
        let samples: Vec<_> = ["n1", "n2", "n3"]
            .iter()
            .flat_map(|device| [spec(device, "load_1m"), spec(device, "cpu_user_seconds_total")])
            .map(|spec| (spec, T0 + tick * S, tick as f64 / 7.0))
            .collect();
        append(&store, vec![sender.batch(&samples)]);
        if tick == 2 || tick == 5 {
            store.flush().unwrap();
        }
    }
    drop::<Store>(store);
    disk.after_kill()
}

#[test]
fn a_good_directory_is_reported_as_good_and_not_changed() {
    let disk = some();
    let before: Vec<_> = ["/data", "/data/log", "/data/blocks"].map(|dir| disk.files(dir)).into();
    let verified = check(&disk);
    assert!(verified.is_good(), "{verified:?}");
    assert_eq!((verified.blocks, verified.samples, verified.records), (2, 36, 3));
    let after: Vec<_> = ["/data", "/data/log", "/data/blocks"].map(|dir| disk.files(dir)).into();
    assert_eq!(before, after);
    let nothing = store::verify(&MemDisk::default(), Path::new(DIR));
    assert!(matches!(nothing, Err(OpenError::NotOurs { .. })), "{nothing:?}");
}

#[test]
fn every_flipped_byte_is_detected() {
    let disk = some();
    let files = |dir| disk.files(dir).into_iter();
    let all: Vec<(PathBuf, Vec<u8>)> =
        files("/data/blocks").chain(files("/data/log")).chain(files("/data")).collect();
    for (path, bytes) in all.iter().filter(|(path, _)| !path.ends_with("LOCK")) {
        for at in 0..bytes.len() {
            let bad = disk.after_kill();
            bad.damage(path, |bytes| bytes[at] ^= 1 << (at % 8));
            let seen = store::verify(&bad, Path::new(DIR));
            // The first four bytes of a block are Parquet's mark, which the store never reads.
            let unread = path.starts_with("/data/blocks") && at < 4;
            let good = seen.is_ok_and(|seen| seen.findings.is_empty());
            assert_eq!(good, unread, "{} byte {at}", path.display());
        }
    }
}

#[test]
fn findings_match_the_unreadable_samples() {
    let disk = some();
    let (path, bytes) = disk.files("/data/blocks").into_iter().next().unwrap();
    let (mut found, mut unused) = (0, 0);
    for at in (4..bytes.len()).step_by(13) {
        let bad = Arc::new(disk.after_kill());
        bad.damage(&path, |bytes| bytes[at] ^= 1);
        let verified = check(&bad);
        let [finding] = &verified.findings[..] else { panic!("{verified:?}") };
        let shared = Arc::clone(&bad) as Arc<dyn Disk>;
        // The footer is read at startup; with a damaged one the server does not start.
        let Ok((store, _)) = open_on(&shared, small()) else { continue };
        let scan = store.scan(&Default::default(), at_least(), at_most());
        let read =
            scan.map(|chunk| chunk.map(|chunk| chunk.times.len())).collect::<Result<Vec<_>, _>>();
        assert_eq!(
            read.is_err(),
            finding.cost.starts_with("up to"),
            "byte {at}: {finding:?}, {read:?}"
        );
        // Damage without a cost is no loss.
        assert_eq!(verified.is_good(), finding.cost.starts_with("nothing"), "{verified:?}");
        unused += u32::from(verified.is_good());
        found += 1;
    }
    assert!(found > 10 && unused > 0, "{found} {unused}");
}

fn at_least() -> model::Timestamp {
    model::Timestamp(i64::MIN)
}

fn at_most() -> model::Timestamp {
    model::Timestamp(i64::MAX)
}

#[test]
fn a_torn_tail_and_left_over_work_are_harmless() {
    let disk = some();
    let (path, bytes) = disk.files("/data/log").into_iter().next_back().unwrap();
    for cut in 1..40 {
        let torn = disk.after_kill();
        torn.damage(&path, |bytes| bytes.truncate(bytes.len() - cut));
        let verified = check(&torn);
        assert!(verified.is_good() && verified.records == 2, "{cut}: {verified:?}");
        assert_eq!(verified.findings.len(), 1, "{cut} of {}: {verified:?}", bytes.len());
    }
    let left = disk.after_kill();
    left.create(Path::new("/data/blocks/1-2.parquet.tmp")).unwrap().write(b"half").unwrap();
    let verified = check(&left);
    assert!(verified.is_good() && verified.findings.len() == 1, "{verified:?}");
}
