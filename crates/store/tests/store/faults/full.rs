//! A really full file system: a small tmpfs in its own mount namespace. The tests need root.

use super::killed::{AIMS, check_printed, write};
use crate::check;
use crate::kit::{Random, append};
use crate::numbers::{Sender, sent_at, settings};
use model::Timestamp;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};
use storage::{Clock, DeferReason, Outcome, RetentionLimits, Storage as _};
use store::{Settings, Store};

/// Mounts it, then resizes it as requested.
const SCRIPT: &str = "mount -t tmpfs -o size=$1 small \"$0\" && echo mounted && \
    while read -r size; do mount -o remount,size=$size \"$0\" && echo resized; done";

/// A small file system; dropping the value removes it.
struct Small {
    holder: Child,
    answers: BufReader<ChildStdout>,
    root: PathBuf,
    mounted_on: tempfile::TempDir,
}

impl Small {
    /// None if the test does not run as root, which it prints.
    fn mount(test: &str, size: &str) -> Option<Self> {
        if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
            println!("{test} needs root and did not run");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", SCRIPT]).arg(dir.path()).arg(size);
        let mut holder = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // Only the holder sees the mount; other processes reach it through the holder's root.
        let root = PathBuf::from(format!("/proc/{}/root", holder.id()));
        let root = root.join(dir.path().strip_prefix("/").unwrap());
        let answers = BufReader::new(holder.stdout.take().unwrap());
        let mut small = Self { holder, answers, root, mounted_on: dir };
        small.expect("mounted");
        Some(small)
    }

    fn expect(&mut self, word: &str) {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        assert_eq!(line.trim_end(), word);
    }

    fn resize(&mut self, size: &str) {
        let mut stdin = self.holder.stdin.as_ref().unwrap();
        writeln!(stdin, "{size}").unwrap();
        self.expect("resized");
    }

    fn data(&self) -> PathBuf {
        self.root.join("data")
    }

    /// Fills it except for this many pages of 4 KiB.
    fn fill(&self, free_pages: u64) {
        let mut ballast = File::create(self.root.join("ballast")).unwrap();
        let page = [1; 4096];
        while ballast.write_all(&page).is_ok() {}
        let pages = ballast.metadata().unwrap().len() / 4096;
        ballast.set_len(pages.saturating_sub(free_pages) * 4096).unwrap();
    }

    fn free_space(&self) {
        std::fs::remove_file(self.root.join("ballast")).unwrap();
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        self.holder.kill().ok();
        self.holder.wait().ok();
    }
}

/// A store without background maintenance; its clock is at a batch.
fn open(dir: &Path, number: u64, change: impl FnOnce(&mut Settings)) -> Store {
    let now = AtomicI64::new(sent_at(number));
    let clock: Clock = Arc::new(move || Timestamp(now.load(Ordering::SeqCst)));
    let mut settings = Settings { background_maintenance: false, ..settings() };
    change(&mut settings);
    Store::open(dir, settings, clock).unwrap().0
}

/// Appends batches, with a block after each `hours` of them.
fn fill_blocks(store: &Store, sender: &mut Sender, batches: std::ops::Range<u64>, hours: u64) {
    for number in batches {
        let outcome = append(store, vec![sender.batch(number).unwrap()]);
        assert!(matches!(outcome[..], [Outcome::Stored { .. }]), "{outcome:?}");
        if (number + 1).is_multiple_of(60 * hours) {
            store.flush().unwrap();
        }
    }
}

#[test]
fn a_full_file_system_stops_maintenance_until_there_is_space() {
    let name = "a_full_file_system_stops_maintenance_until_there_is_space";
    let Some(small) = Small::mount(name, "8m") else { return };
    let last = 8 * 60 - 1;
    let store = open(&small.data(), last, |_| ());
    fill_blocks(&store, &mut Sender::default(), 0..last + 1, 1);
    let before = check::whole(&store, Some(last), last + 1).unwrap();
    let (mut failed, mut unsure) = (0, false);
    for free_pages in 0.. {
        small.fill(free_pages);
        let maintained = store.maintain();
        assert_eq!(check::whole(&store, Some(last), last + 1), Ok(before), "{free_pages} free");
        let Err(error) = maintained else { break };
        failed += 1;
        let error = error.to_string();
        assert!(error.contains("No space left"), "{free_pages} free: {error}");
        // No unfinished file is left, except one that a manifest may list whose write failed.
        unsure |= error.contains("MANIFEST");
        check::files(&small.data(), unsure).unwrap();
    }
    assert!(failed > 3 && store.stats().merges > 3, "{failed} failed");
    check::files(&small.data(), false).unwrap();
}

#[test]
fn a_full_file_system_defers_batches_and_loses_nothing() {
    let name = "a_full_file_system_defers_batches_and_loses_nothing";
    let Some(mut small) = Small::mount(name, "2m") else { return };
    let store = open(&small.data(), 3000, |_| ());
    let mut sender = Sender::default();
    let (mut number, mut rejected, mut unwritten) = (0, 0, 0);
    for free_pages in 0..12 {
        small.fill(free_pages);
        // The log accepts what fits, and is truncated after it.
        loop {
            let outcome = append(&store, vec![sender.batch(number).unwrap()]);
            match &outcome[..] {
                [Outcome::Stored { .. }] => number += 1,
                [Outcome::RejectedTemporarily(why @ DeferReason::DiskFull(_))] if why.is_full() => {
                    break;
                }
                other => panic!("{other:?}"),
            }
        }
        rejected += 1;
        unwritten += u64::from(store.flush().is_err());
        check::whole(&store, number.checked_sub(1), number).unwrap();
        // The existing files are good; a block that no manifest lists yet is tried again.
        check::files(&small.data(), true).unwrap();
    }
    assert!(rejected == 12 && unwritten > 6 && number > 0, "{rejected} {unwritten} {number}");
    assert!(store.stats().last_failure.is_some());
    small.resize("4m");
    fill_blocks(&store, &mut sender, number..number + 60, 1);
    store.flush().unwrap();
    assert_eq!(store.stats().last_failure, None);
    check::whole(&store, Some(number + 59), number + 60).unwrap();
    check::files(&small.data(), false).unwrap();
    drop(store);
    let store = open(&small.data(), 3000, |_| ());
    check::whole(&store, Some(number + 59), number + 60).unwrap();
}

#[test]
fn old_samples_are_deleted_though_there_is_no_space_to_merge() {
    let name = "old_samples_are_deleted_though_there_is_no_space_to_merge";
    let Some(small) = Small::mount(name, "8m") else { return };
    // Ten blocks of four hours, each larger than a manifest.
    let large = |settings: &mut Settings| {
        (settings.head_samples_max, settings.head_age_us) = (u64::MAX, i64::MAX);
        settings.log_bytes_max = 1 << 30;
        settings.settle_step_us *= 8;
        settings.block_bytes_max = 1 << 20;
    };
    let last = 40 * 60 - 1;
    let store = open(&small.data(), last, |settings| {
        large(settings);
        (settings.merge_blocks, settings.keep_samples) = (99, RetentionLimits::ALL);
    });
    fill_blocks(&store, &mut Sender::default(), 0..last + 1, 4);
    store.maintain().unwrap();
    let stats = store.stats();
    assert!(stats.settled.is_some() && stats.blocks == 10, "{stats:?}");
    drop(store);
    let store = open(&small.data(), last, large);
    for free_pages in 0.. {
        small.fill(free_pages);
        let maintained = store.maintain();
        if store.stats().samples_removed > 0 {
            assert!(maintained.is_err(), "the first merge finds no space");
            break;
        }
    }
    assert_eq!(store.stats().merges, 0);
    small.free_space();
    store.maintain().unwrap();
    assert!(store.stats().merges > 0);
    check::files(&small.data(), false).unwrap();
}

#[test]
fn a_file_system_that_fills_repeatedly_loses_nothing_acknowledged() {
    let name = "a_file_system_that_fills_time_and_again_costs_nothing_acknowledged";
    let mut random = Random::seeded();
    // Whether a write meets the full file system is chance; the tests above show that each survives it.
    for _ in 0..20 {
        let Some(small) = Small::mount(name, "8m") else { return };
        if filled_time_and_again(&small, &mut random) > 0 {
            return;
        }
    }
    panic!("nothing ever met a full file system");
}

/// Fills it repeatedly while a program writes there; returns the number of failures.
fn filled_time_and_again(small: &Small, random: &mut Random) -> u64 {
    let printed = small.mounted_on.path().join("printed");
    let mut program = write(&small.data(), &printed, Some(6000), Stdio::piped());
    let mut fills = 0;
    let deadline = Instant::now() + Duration::from_secs(120);
    while program.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "the program does not end");
        AIMS[fills % AIMS.len()].wait(&small.data(), random);
        small.fill(random.below(8));
        std::thread::sleep(Duration::from_millis(random.below(20)));
        small.free_space();
        fills += 1;
        std::thread::sleep(Duration::from_millis(random.below(100)));
    }
    let mut errors = String::new();
    program.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert!(program.wait().unwrap().success(), "{errors}");
    let found = errors.lines().last().unwrap_or_default();
    println!("{fills} times full: {found}");
    let counts = found.split("failed: ").nth(1).unwrap().split(", ");
    let counts: Vec<u64> = counts.map(|n| n.split(' ').next().unwrap().parse().unwrap()).collect();
    assert_eq!(counts.len(), 4, "appends, blocks, merges and steps of retention: {found}");
    check_printed(&small.data(), &printed);
    counts.iter().sum()
}
