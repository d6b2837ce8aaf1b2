//! Runs the simulation with many seeds; each must end without lost or additional samples.
#![expect(clippy::print_stdout, reason = "a test reports what it did")]
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

use sim::{Report, run};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Default number of seeds of a run; the seeds are always the same.
const SEEDS: u64 = 200;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

/// Creates the folder of the spools, in memory if possible.
fn folder() -> tempfile::TempDir {
    let shared = Path::new("/dev/shm");
    let place = if shared.is_dir() { PathBuf::from(shared) } else { std::env::temp_dir() };
    tempfile::tempdir_in(place).unwrap()
}

fn one(seed: u64) -> Result<Report, String> {
    let folder = folder();
    run(seed, folder.path()).map_err(|e| format!("SEED={seed}: {e}"))
}

/// Sums the statistics of all reports.
fn sum(all: &[Report]) -> Report {
    let mut sum = Report::default();
    for report in all {
        sum.produced += report.produced;
        sum.stored += report.stored;
        sum.missing += report.missing;
        sum.gaps += report.gaps;
        sum.duplicates += report.duplicates;
        sum.deferred += report.deferred;
        sum.merges += report.merges;
        sum.slices += report.slices;
        sum.deaths += report.deaths;
        sum.faults += report.faults;
        sum.starts += report.starts;
        sum.disk_calls += report.disk_calls;
        sum.trace ^= report.trace;
    }
    sum
}

#[test]
fn a_seed_runs_the_same_way_each_time() {
    for seed in [3, 11] {
        assert_eq!(one(seed), one(seed));
    }
}

#[test]
fn every_sample_is_stored_once_or_reported_as_a_gap() {
    if let Some(seed) = number("SEED") {
        match one(seed) {
            Ok(report) => println!("SEED={seed}: {report:?}"),
            Err(why) => panic!("{why}"),
        }
        return;
    }
    let (first, count) = (number("FIRST").unwrap_or(0), number("SEEDS").unwrap_or(SEEDS));
    println!("seeds {first} to {}", first + count - 1);
    let (next, report) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    let failed = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = first + next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count {
                        return;
                    }
                    match one(seed) {
                        Ok(one) => report.lock().unwrap().push(one),
                        Err(why) => {
                            println!("{why}");
                            failed.lock().unwrap().push(seed);
                        }
                    }
                }
            });
        }
    });
    let all = sum(&report.into_inner().unwrap());
    println!("{all:#?}");
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "these seeds failed: {failed:?}");
    // A world without events would test nothing.
    for (what, happened) in [
        ("a sample missed", all.missing),
        ("a duplicate batch", all.duplicates),
        ("a batch deferred", all.deferred),
        ("a merge", all.merges),
        ("a delivery", all.slices),
        ("a death of the server", all.deaths),
        ("a restart", all.starts.saturating_sub(100 * count)),
    ] {
        assert!(happened > 0 || count < 20, "{what} did not occur in {count} seeds");
    }
}
