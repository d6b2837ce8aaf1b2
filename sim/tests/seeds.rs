//! Seeds, as many as wanted: each is a world, and each must end well.
#![expect(clippy::print_stdout, reason = "a test tells what it did")]
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

use sim::{Told, run};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Seeds of a run that asks for no number of them: always the same ones.
const SEEDS: u64 = 200;

fn asked(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// Spools lie in memory where that can be.
fn folder() -> tempfile::TempDir {
    let shared = Path::new("/dev/shm");
    let place = if shared.is_dir() { PathBuf::from(shared) } else { std::env::temp_dir() };
    tempfile::tempdir_in(place).unwrap()
}

fn one(seed: u64) -> Result<Told, String> {
    let folder = folder();
    run(seed, folder.path()).map_err(|e| format!("SEED={seed}: {e}"))
}

/// What happened in all of them.
fn sum(all: &[Told]) -> Told {
    let mut sum = Told::default();
    for told in all {
        sum.produced += told.produced;
        sum.stored += told.stored;
        sum.missing += told.missing;
        sum.gaps += told.gaps;
        sum.duplicates += told.duplicates;
        sum.deferred += told.deferred;
        sum.merges += told.merges;
        sum.deaths += told.deaths;
        sum.faults += told.faults;
        sum.starts += told.starts;
        sum.disk_calls += told.disk_calls;
        sum.trace ^= told.trace;
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
fn what_was_produced_is_stored_once_or_told_as_a_gap() {
    if let Some(seed) = asked("SEED") {
        match one(seed) {
            Ok(told) => println!("SEED={seed}: {told:?}"),
            Err(why) => panic!("{why}"),
        }
        return;
    }
    let (first, count) = (asked("FIRST").unwrap_or(0), asked("SEEDS").unwrap_or(SEEDS));
    println!("seeds {first} to {}", first + count - 1);
    let (next, told) = (AtomicU64::new(0), Mutex::new(Vec::new()));
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
                        Ok(one) => told.lock().unwrap().push(one),
                        Err(why) => {
                            println!("{why}");
                            failed.lock().unwrap().push(seed);
                        }
                    }
                }
            });
        }
    });
    let all = sum(&told.into_inner().unwrap());
    println!("{all:#?}");
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "these seeds failed: {failed:?}");
    // A world in which nothing happens proves nothing.
    for (what, happened) in [
        ("a sample missed", all.missing),
        ("a batch known", all.duplicates),
        ("a batch deferred", all.deferred),
        ("a merge", all.merges),
        ("a death of the server", all.deaths),
        ("a start again", all.starts.saturating_sub(100 * count)),
    ] {
        assert!(happened > 0 || count < 20, "{what} did not come in {count} seeds");
    }
}
