//! Samples per second that one core ingests, from frames to blocks; and the cost of queries.
//!
//! `cargo bench -p store --bench ingest [-- DIR] [--merging]`: the directory (by default a temporary one) should be on
//! the relevant disk. Prints a line for each measurement. With `--merging` it measures only merges.
//! Rates are samples per second of processor time of all threads, so that other load on the machine does not
//! count; the wall clock is printed beside.
//! The bench `http` measures the whole server program.

#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "a bench times, and may fail")]

mod agents;
mod measure;

use agents::{Agent, T0};
use measure::{Timed, cpu_seconds, open, print_line, send};
use model::{DeviceId, Timestamp};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Instant;
use storage::{Selector, Storage as _};
use store::{Settings, Store};

/// A series number of each kind of dataset A's values.
const KINDS: [(u64, &str); 4] =
    [(0, "bursty counters"), (4, "gauges of one decimal"), (7, "plateaus"), (9, "walks")];

/// Most ticks of a frame with ten series.
const TICKS_MAX: i64 = 5400;

fn main() {
    let temporary = tempfile::tempdir().unwrap();
    let given = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let dir = given.map_or_else(|| temporary.path().to_owned(), Into::into);
    if !std::env::args().any(|arg| arg == "--merging") {
        ingest(&dir, "1000 origins, batches of 500 samples", 1000, 500, 1, 40);
        ingest(&dir, "100 origins, batches of 64000 samples", 100, 500, 128, 3);
        dataset_a(&dir);
        layouts(&dir);
    }
    merges(&dir);
}

fn merges(dir: &Path) {
    let every = |series| Vec::from_iter(0..series);
    merging(dir, "dataset A in 8 blocks", 100, &every(10), 450);
    for (kind, what) in KINDS {
        let series = Vec::from_iter((0..10).map(|n| n * 10 + kind));
        merging(dir, &format!("dataset A's {what} alone in 8 blocks"), 100, &series, 450);
    }
    merging(dir, "a day of 4 nodes of dataset A in 8 blocks", 4, &every(10), 10_800);
    merging(dir, "500 000 series in 8 blocks", 1000, &every(500), 8);
}

fn ingest(dir: &Path, what: &str, origins: u64, series: u64, ticks: i64, rounds: usize) {
    print_line(what);
    let mut agents: Vec<Agent> = (0..origins).map(|n| Agent::new(n, series)).collect();
    let mut frames = Vec::new();
    for _ in 0..rounds {
        frames.extend(agents.iter_mut().map(|agent| agent.frame(ticks)));
    }
    let frame_bytes: usize = frames.iter().map(Vec::len).sum();
    let place = dir.join(format!("ingest-{origins}"));
    let settings = Settings { head_age_us: i64::MAX, ..Settings::default() };
    let a_request = if ticks == 1 { 20 } else { 1 };

    let store = open(&place, settings.clone());
    let all = Timed::start();
    let samples = send(&store, &frames, a_request);
    all.rate(samples, "frames to log and memory");
    let block = Timed::start();
    let in_memory = store.stats().head_samples;
    store.flush().unwrap();
    block.rate(in_memory, "memory to block");
    all.rate(samples, "all of it");
    let stats = store.stats();
    let per = |bytes: f64| bytes / samples as f64;
    print_line(&format!(
        "  {} samples, {} blocks; bytes a sample: {:.2} in frames, {:.2} in blocks; fsync mean {:.2} ms, \
         most {:.2} ms",
        samples,
        stats.blocks,
        per(frame_bytes as f64),
        per(stats.block_bytes as f64),
        stats.fsync_seconds / stats.commits as f64 * 1e3,
        stats.fsync_seconds_max * 1e3,
    ));
    drop(store);
    std::fs::remove_dir_all(&place).unwrap();

    let settings = Settings { head_samples_max: u64::MAX, ..settings };
    let store = open(&place, settings.clone());
    let part = frames.get(..frames.len() / 4).unwrap();
    let samples = send(&store, part, a_request);
    drop(store);
    let replay = Timed::start();
    drop(open(&place, settings));
    replay.rate(samples, "log read again");
    std::fs::remove_dir_all(&place).unwrap();
}

/// Dataset A: 100 nodes of 10 metrics, a sample a second, an hour.
fn send_dataset_a(store: &Store) {
    let mut agents: Vec<Agent> = (0..100).map(|n| Agent::new(n, 10)).collect();
    for _ in 0..60 {
        let frames: Vec<Vec<u8>> = agents.iter_mut().map(|agent| agent.frame(60)).collect();
        send(store, &frames, 20);
    }
}

/// Costs and benefits of page and row group sizes.
fn layouts(dir: &Path) {
    for (page_rows, row_group_rows) in [
        (1 << 10, 256 << 10),
        (2 << 10, 256 << 10),
        (4 << 10, 256 << 10),
        (8 << 10, 256 << 10),
        (16 << 10, 256 << 10),
        (4 << 10, 64 << 10),
        (4 << 10, 1 << 20),
    ] {
        print_line(&format!(
            "dataset A in pages of {page_rows} rows, row groups of {row_group_rows}"
        ));
        let place = dir.join("layout");
        let age = i64::MAX;
        let settings =
            Settings { page_rows, row_group_rows, head_age_us: age, ..Settings::default() };
        let store = open(&place, settings);
        send_dataset_a(&store);
        let block = Timed::start();
        store.flush().unwrap();
        block.rate(3_600_000, "memory to block");
        let bytes = store.stats().block_bytes as f64 / 3.6e6;
        print_line(&format!("  {bytes:.3} bytes a sample"));
        query(&store, "from a block");
        drop(store);
        std::fs::remove_dir_all(&place).unwrap();
    }
}

fn dataset_a(dir: &Path) {
    print_line("dataset A: 100 nodes x 10 metrics x 3600 s");
    let place = dir.join("dataset-a");
    let store = open(&place, Settings { head_age_us: i64::MAX, ..Settings::default() });
    send_dataset_a(&store);
    for round in ["from memory", "from a block"] {
        query(&store, round);
        store.flush().unwrap();
    }
    let stats = store.stats();
    let bytes = stats.block_bytes as f64 / stats.block_samples as f64;
    print_line(&format!("  {bytes:.2} bytes a sample in the block"));
    drop(store);
    let started = Instant::now();
    let store = open(&place, Settings::default());
    let opened = started.elapsed().as_secs_f64() * 1e3;
    print_line(&format!("  opened in {opened:.1} ms"));
    query(&store, "from a block, opened again");
    drop(store);
    std::fs::remove_dir_all(&place).unwrap();
}

/// Eight blocks become one.
fn merging(dir: &Path, what: &str, origins: u64, series: &[u64], ticks: i64) {
    print_line(what);
    let place = dir.join("merging");
    let age = i64::MAX;
    let store = open(
        &place,
        Settings { head_age_us: age, background_maintenance: false, ..Settings::default() },
    );
    let agent = |n| Agent::of(n, series, Timestamp(T0), Timestamp::SECOND);
    let mut agents: Vec<Agent> = (0..origins).map(agent).collect();
    let mut blocks = 0.0;
    for _ in 0..8 {
        for _ in 0..(ticks / TICKS_MAX).max(1) {
            let ticks = ticks.min(TICKS_MAX);
            let frames: Vec<Vec<u8>> = agents.iter_mut().map(|agent| agent.frame(ticks)).collect();
            send(&store, &frames, 1);
        }
        let before = cpu_seconds();
        store.flush().unwrap();
        blocks += cpu_seconds() - before;
    }
    let before = store.stats();
    assert_eq!(before.blocks, 8);
    let written = before.block_samples as f64 / 1e6;
    let rate = written / blocks;
    print_line(&format!(
        "  memory to blocks: {rate:.2} M samples/s of processor time ({blocks:.2} s)"
    ));
    let merge = Timed::start();
    store.maintain().unwrap();
    merge.rate(before.block_samples, "eight blocks to one");
    let after = store.stats();
    assert_eq!((after.blocks, after.block_samples), (1, before.block_samples));
    let per = |bytes: u64| bytes as f64 / before.block_samples as f64;
    let rollups = per(after.rollup_bytes);
    let (before, after) = (per(before.block_bytes), per(after.block_bytes));
    print_line(&format!(
        "  {before:.3} bytes a sample before, {after:.3} after, {rollups:.3} in rollups"
    ));
    drop(store);
    std::fs::remove_dir_all(&place).unwrap();
}

fn query(store: &Store, round: &str) {
    for (nodes, what) in [(1, "one node"), (10, "ten nodes")] {
        let names = (0..nodes).map(|n| DeviceId::new(&format!("node-{:04}", n * 7)).unwrap());
        let devices: BTreeSet<DeviceId> = names.collect();
        let selector = Selector { devices: Some(devices), ..Selector::default() };
        for (seconds, span) in [(3600, "an hour"), (300, "five minutes")] {
            let (from, to) = (Timestamp(T0), Timestamp(T0 + seconds * 1_000_000 - 1));
            let (mut times, mut rows, mut bytes) = (Vec::new(), 0, 0);
            for _ in 0..9 {
                let started = Instant::now();
                let before = store.stats().read.bytes;
                let slices = store.snapshot().scan_by_time(&selector, from, to, 256 << 10);
                rows = slices.map(|slice| slice.unwrap().times.len()).sum();
                bytes = store.stats().read.bytes - before;
                times.push(started.elapsed().as_secs_f64() * 1e3);
            }
            times.sort_by(f64::total_cmp);
            let middle = times.get(times.len() / 2).unwrap();
            print_line(&format!(
                "  {what}, {span}, in the order of time, {round}: {rows} rows, {bytes} bytes read, \
                 median {middle:.2} ms"
            ));
        }
    }
}
