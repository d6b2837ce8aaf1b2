//! Disk usage of dataset B in a server's store: one hour of one agent with 20 jobs and all sources at a period
//! of 5 s, recorded by `benches/dataset_b.py`.
//!
//! ```text
//! cargo bench -p query --bench dataset_b -- [FRAMES [DIR]]
//! ```
//!
//! FRAMES (an absolute path) is `target/bench/dataset-b.frames` by default; if it is missing, the bench prints
//! how to record it. The bench keeps the data folder in DIR for inspection; without DIR it uses a temporary
//! folder. It writes blocks every 10 min as a server does, merges them into one, and rolls them up.

#![expect(clippy::unwrap_used, reason = "a bench that cannot go on fails")]

use jobs::{Registry, Users};
use model::Timestamp;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::sync_channel;
use storage::{Incoming, Outcome, Selector, Storage as _};
use store::{Settings, Store};
use wire::{Decoder, Frames};

/// Blocks per hour.
const BLOCKS: usize = 6;

fn main() {
    let mut words = std::env::args().skip(1).filter(|arg| !arg.starts_with('-'));
    let default =
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/bench/dataset-b.frames");
    let path = words.next().map_or_else(default, PathBuf::from);
    let Ok(bytes) = std::fs::read(&path) else {
        print_line(&format!(
            "{} is missing: as root, make target/bench/dataset-b.frames",
            path.display()
        ));
        return;
    };
    let temporary = tempfile::tempdir().unwrap();
    let dir = words.next().map_or_else(|| temporary.path().to_owned(), PathBuf::from);
    let receiver = fill(&dir, &bytes);
    print_line(&format!(
        "dataset B: {} samples of {} series in {:.0} min, in frames of {:.2} bytes a sample",
        receiver.samples,
        receiver.series,
        receiver.seconds / 60.0,
        bytes.len() as f64 / receiver.samples as f64,
    ));
    print_line(&format!(
        "  {:.0} % of the samples differ from the one before",
        receiver.changed as f64 / receiver.samples as f64 * 100.0
    ));
    let per = |bytes: u64| bytes as f64 / receiver.samples as f64;
    print_line(&format!(
        "  {:.3} bytes a sample in {BLOCKS} blocks of ten minutes",
        per(receiver.before)
    ));
    let parts = [
        ("block", "blocks", ""),
        ("rollups of five minutes", "rollups", "-300s.parquet"),
        ("rollups of an hour", "rollups", "-3600s.parquet"),
        ("manifest, gaps, format", "", ""),
        ("registry of jobs", "registry", ""),
        ("log", "log", ""),
    ];
    let mut sum = 0;
    for (what, folder, ending) in parts {
        let bytes = files(&dir.join(folder), ending);
        sum += bytes;
        print_line(&format!("  {:.3} bytes a sample in {what} ({bytes} bytes)", per(bytes)));
    }
    print_line(&format!("  {:.3} bytes a sample, everything counted", per(sum)));
}

fn print_line(line: &str) {
    let mut out = std::io::stdout();
    out.write_all(line.as_bytes()).and_then(|()| out.write_all(b"\n")).unwrap();
}

/// Total size in bytes of the files in a folder whose names end with `ending`.
fn files(dir: &Path, ending: &str) -> u64 {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    let entries = entries.map(Result::unwrap).filter(|entry| entry.file_type().unwrap().is_file());
    let named = entries.filter(|entry| entry.file_name().to_str().unwrap().ends_with(ending));
    named.map(|entry| entry.metadata().unwrap().len()).sum()
}

struct Filled {
    samples: u64,
    series: usize,
    /// Samples whose value differs from the series' previous value.
    changed: u64,
    seconds: f64,
    /// Size in bytes of the blocks before merging.
    before: u64,
}

/// Ingests the frames in order, and runs the maintenance of their blocks as it becomes due.
fn fill(dir: &Path, bytes: &[u8]) -> Filled {
    let mut decoder = Decoder::default();
    let mut batches: Vec<Incoming> = Vec::new();
    let mut received = Timestamp::YEAR_2000;
    for frame in Frames::of(bytes) {
        let frame = frame.unwrap();
        let decoded = decoder.decode(&frame).unwrap();
        received = decoded.ticks.iter().map(|tick| tick.at).fold(received, Timestamp::max);
        batches.push(Incoming { frame: frame.bytes.to_vec(), decoded, received });
    }
    // A batch with jobs only has no instant; the first batch may be such a batch.
    let first = batches.iter().find_map(|batch| batch.decoded.ticks.first()).unwrap().at;
    batches.iter_mut().for_each(|batch| batch.received = batch.received.max(first));
    let last = received;
    std::fs::create_dir_all(dir.join("registry")).unwrap();
    let users = || Users::parse(b"");
    let registry = Registry::open(&dir.join("registry/jobs.sqlite"), Default::default(), users);
    let registry = registry.unwrap();
    let now = Arc::new(AtomicI64::new(first.0));
    let clock = Arc::clone(&now);
    let age = i64::MAX;
    let settings = Settings {
        merge_blocks: BLOCKS,
        background_maintenance: false,
        head_age_us: age,
        ..Settings::default()
    };
    let clock = Arc::new(move || Timestamp(clock.load(Ordering::SeqCst)));
    let (store, _) = Store::open(dir, settings, clock).unwrap();
    let ten = last.since(first) / i64::try_from(BLOCKS).unwrap() + 1;
    for of_a_block in
        batches.chunk_by(|a, b| a.received.since(first) / ten == b.received.since(first) / ten)
    {
        for batch in of_a_block {
            now.store(batch.received.0, Ordering::SeqCst);
            registry.apply(&batch.decoded.jobs, batch.received).unwrap();
            let (to, from) = sync_channel(1);
            store.append(vec![batch.clone()], move |outcomes| to.send(outcomes).unwrap());
            let outcome = from.recv().unwrap();
            assert!(
                matches!(outcome[..], [Outcome::Stored { samples_rejected: 0, .. }]),
                "{outcome:?}"
            );
        }
        store.flush().unwrap();
    }
    let before = store.stats();
    assert_eq!(before.blocks, u64::try_from(BLOCKS).unwrap());
    store.maintain().unwrap();
    let after = store.stats();
    assert_eq!((after.blocks, after.block_samples), (1, before.block_samples));
    let (from, to) = (Timestamp(i64::MIN), Timestamp(i64::MAX));
    let series = store.snapshot().series(&Selector::default(), from, to).unwrap().len();
    let chunks = store.scan(&Selector::default(), from, to);
    let changed = chunks.map(|chunk| {
        let changes = |pair: &&[f64]| matches!(pair, [a, b] if a.to_bits() != b.to_bits());
        chunk.unwrap().values.windows(2).filter(changes).count() as u64
    });
    let changed = changed.sum();
    let seconds = last.since(first) as f64 / 1e6;
    let (samples, before) = (before.block_samples, before.block_bytes);
    Filled { samples, series, changed, seconds, before }
}
