//! Dataset A for a month: 100 nodes × 10 metrics × 1 Hz, 86.4 million samples a day. The bench ingests, merges,
//! rolls up and settles the samples as a server would, then queries them.
//!
//! ```text
//! cargo bench -p query --bench month -- [DIR [DAYS]]
//! ```
//!
//! DIR (an absolute path) is kept: if it already contains DAYS days, the bench only queries them. Without DIR,
//! the bench uses one day in a temporary directory. `make bench-month` uses 30 days below `target/bench`: 2.6
//! billion samples, 5 GB.
//!
//! Time is the data's time: the bench writes a block for each 30 min of it, as a server does. Ingestion and
//! queries each run in a separate process. Processor time is reported per thread, because the thread that
//! generates frames is not part of the store.

#![expect(clippy::unwrap_used, reason = "a bench that cannot go on fails")]
#![expect(clippy::disallowed_methods, reason = "a bench times, and starts itself")]

#[path = "../../store/benches/agents/mod.rs"]
mod agents;

use agents::{Agent, T0};
use jobs::{Reader, Registry};
use model::{DeviceId, Timestamp};
use query::{Format, GetMetrics, QueryContext, QueryEngine, RangeQuery, Rate, Settings};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Instant;
use storage::{Incoming, Outcome, Selector, Storage as _};
use store::Store;
use wire::{Decoder, Frames};

const NODES: u64 = 100;
const METRICS: u64 = 10;
const HOUR: i64 = 3600 * Timestamp::SECOND;
const DAY: i64 = 24 * HOUR;
/// Seconds in a frame.
const FRAME: i64 = 600;
const ROUNDS_A_DAY: i64 = DAY / Timestamp::SECOND / FRAME;
/// Rounds per block.
const ROUNDS_A_BLOCK: i64 = 3;
/// File with the results of ingestion, as text. Its presence marks a complete directory.
const COSTS_FILE: &str = "bench.txt";

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let days = |word: &str| word.parse::<i64>().unwrap();
    match words[..] {
        ["fill", dir, n] => fill(Path::new(dir), days(n)),
        ["ask", dir, n] => run_query(Path::new(dir), days(n)),
        [] => both(tempfile::tempdir().unwrap().path(), 1),
        [dir] => both(Path::new(dir), 30),
        [dir, n] => both(Path::new(dir), days(n)),
        _ => print_line("arguments: [DIR [DAYS]]"),
    }
}

fn both(dir: &Path, days: i64) {
    let place = dir.join(format!("{days}-days"));
    if !place.join(COSTS_FILE).try_exists().unwrap() {
        let part = dir.join("part");
        if part.try_exists().unwrap() {
            std::fs::remove_dir_all(&part).unwrap();
        }
        std::fs::create_dir_all(&part).unwrap();
        child("fill", &part, days);
        std::fs::rename(&part, &place).unwrap();
    }
    print_line(std::fs::read_to_string(place.join(COSTS_FILE)).unwrap().trim_end());
    child("ask", &place, days);
}

/// Runs a part in a separate process.
fn child(part: &str, dir: &Path, days: i64) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let status = command.arg(part).arg(dir).arg(days.to_string()).status();
    assert!(status.unwrap().success(), "{part} failed");
}

fn print_line(line: &str) {
    let mut out = std::io::stdout();
    out.write_all(line.as_bytes()).and_then(|()| out.write_all(b"\n")).unwrap();
}

/// A named number in one of this process's files in `/proc/self`.
fn own(file: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(Path::new("/proc/self").join(file)).unwrap();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn resident() -> String {
    let mib = |name| own("status", name) / 1024;
    format!("{} MiB resident, {} at most so far", mib("VmRSS:"), mib("VmHWM:"))
}

/// Processor time of each thread in seconds, by thread name.
fn threads() -> BTreeMap<String, f64> {
    let mut all = BTreeMap::new();
    let main = std::process::id().to_string();
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let task = task.unwrap();
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap();
        let (name, fields) = stat.rsplit_once(')').unwrap();
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let ticks = |place: usize| fields.get(place).unwrap().parse::<f64>().unwrap();
        let is_main = task.file_name() == *main;
        let name = if is_main { "main" } else { name.split_once('(').unwrap().1 }.to_owned();
        *all.entry(name).or_insert(0.0) += (ticks(11) + ticks(12)) / 100.0;
    }
    all
}

fn open(dir: &Path, now: &Arc<AtomicI64>) -> Store {
    let now = Arc::clone(now);
    let clock = Arc::new(move || Timestamp(now.load(Ordering::SeqCst)));
    Store::open(dir, store::Settings::default(), clock).unwrap().0
}

fn fill(dir: &Path, days: i64) {
    let now = Arc::new(AtomicI64::new(T0));
    let store = open(dir, &now);
    let (to, from) = sync_channel::<Vec<Vec<u8>>>(2);
    let make = move || {
        let mut agents: Vec<Agent> = (0..NODES).map(|number| Agent::new(number, METRICS)).collect();
        for _ in 0..days * ROUNDS_A_DAY {
            to.send(agents.iter_mut().map(|agent| agent.frame(FRAME)).collect()).unwrap();
        }
        *threads().get("make").unwrap()
    };
    let (begin, written) = (Instant::now(), own("io", "write_bytes:"));
    let maker = std::thread::Builder::new().name("make".into()).spawn(make).unwrap();
    let bytes = take_in(&store, &from, &now);
    let making = maker.join().unwrap();
    let taken = begin.elapsed().as_secs_f64();
    store.maintain().unwrap();
    let wall = begin.elapsed().as_secs_f64();
    let (cpu, written) = (threads(), own("io", "write_bytes:") - written);
    let stats = store.stats();
    let samples = stats.block_samples;
    assert_eq!(samples, NODES * METRICS * 86_400 * u64::try_from(days).unwrap());
    let (of, per) =
        (|name: &str| cpu.get(name).copied().unwrap_or(0.0), |n| n as f64 / samples as f64);
    let mut receiver = format!(
        "{days} days of dataset A: {samples} samples, by the clock in {taken:.0} s ({wall:.0} s with what was \
         left to merge)\n  processor time: {:.0} s of decoding, {:.0} s of log and memory, {:.0} s of blocks, \
         {:.0} s of merging, rollups and settling = {:.1} M samples/s; {making:.0} s of making frames\n  \
         {}\n  bytes a sample: {:.3} in frames, {:.3} written to the disk in all\n",
        of("main"),
        of("store-log"),
        of("store-block"),
        of("store-maintain"),
        samples as f64 / 1e6 / of("store-maintain"),
        resident(),
        per(bytes),
        per(written),
    );
    let (merges, merged) = (stats.merges, per(stats.merged_bytes));
    receiver += &format!("  {merges} merges, of {merged:.3} bytes a sample\n");
    drop(store);
    receiver += &left(dir, samples, written, bytes);
    std::fs::write(dir.join(COSTS_FILE), receiver).unwrap();
}

/// Ingests frames like a running server; returns the size of the frames in bytes.
fn take_in(store: &Store, from: &Receiver<Vec<Vec<u8>>>, now: &AtomicI64) -> u64 {
    let (mut decoder, mut bytes, begin) = (Decoder::default(), 0, Instant::now());
    for (round, frames) in (1..).zip(from) {
        let received = Timestamp(T0 + round * FRAME * Timestamp::SECOND);
        now.store(received.0, Ordering::SeqCst);
        let (to, receiver) = sync_channel(5);
        for request in frames.chunks(20) {
            let batch = |frame: &Vec<u8>| {
                let decoded = decoder.decode(&Frames::of(frame).next().unwrap().unwrap()).unwrap();
                Incoming { frame: frame.clone(), decoded, received }
            };
            let batches: Vec<Incoming> = request.iter().map(batch).collect();
            let to = to.clone();
            store.append(batches, move |outcomes| to.send(outcomes).unwrap());
        }
        drop(to);
        let stored =
            |outcome: &Outcome| matches!(outcome, Outcome::Stored { samples_rejected: 0, .. });
        assert!(receiver.iter().flatten().all(|outcome| stored(&outcome)));
        bytes += frames.iter().map(|frame| frame.len() as u64).sum::<u64>();
        if round % ROUNDS_A_BLOCK == 0 {
            store.flush().unwrap();
        }
        if round % ROUNDS_A_DAY == 0 {
            let (day, stats, wall) =
                (round / ROUNDS_A_DAY, store.stats(), begin.elapsed().as_secs());
            print_line(&format!(
                "  day {day} after {wall} s: {} blocks of {} MB, rollups of {} MB, {}",
                stats.blocks,
                stats.block_bytes / 1_000_000,
                stats.rollup_bytes / 1_000_000,
                resident(),
            ));
        }
    }
    bytes
}

/// Reports the final contents of the directory.
fn left(dir: &Path, samples: u64, written: u64, frames: u64) -> String {
    let (mut text, mut sum, mut files) = (String::new(), 0, 0);
    for folder in ["blocks", "rollups", "log", ""] {
        let entries = std::fs::read_dir(dir.join(folder)).unwrap().map(Result::unwrap);
        let data: Vec<_> = entries.map(|e| e.metadata().unwrap()).filter(|m| m.is_file()).collect();
        let bytes: u64 = data.iter().map(std::fs::Metadata::len).sum();
        (sum, files) = (sum + bytes, files + data.len());
        let what = if folder.is_empty() { "beside them" } else { folder };
        let each = bytes as f64 / samples as f64;
        text += &format!("  {what}: {} files, {bytes} bytes, {each:.3} a sample\n", data.len());
    }
    let (sum, written, frames) = (sum as f64, written as f64, frames as f64);
    text += &format!(
        "  everything: {files} files, {:.3} bytes a sample; written {:.2} times what is left, {:.2} times \
         what came in\n",
        sum / samples as f64,
        written / sum,
        written / frames
    );
    text
}

/// The query of a run; returns the number of rows and bytes of its answer.
type Answer<'a> = dyn Fn(i64) -> (usize, usize) + 'a;

/// Runs different queries `runs` times. The first run is reported separately, as its data is not in memory yet.
fn time(store: &Store, what: &str, runs: i64, rows: usize, answer: &Answer<'_>) {
    let (mut times, mut bytes, before) = (Vec::new(), 0, store.stats().read);
    for run in 0..runs {
        let begin = Instant::now();
        let receiver = answer(run);
        times.push(begin.elapsed().as_secs_f64() * 1e3);
        assert_eq!(receiver.0, rows, "{what}");
        bytes = receiver.1;
    }
    let (read, first) = (store.stats().read, *times.first().unwrap());
    let each = |before: u64, after: u64| (after - before) as f64 / runs as f64;
    times.sort_by(f64::total_cmp);
    let at = |place: usize| times.get(place).copied().unwrap_or(f64::NAN);
    print_line(&format!(
        "  {what}: {rows} rows, {bytes} bytes; least {:.2} ms, median {:.2} ms, most {:.2} ms of {runs}; the \
         first {first:.2} ms; each read {:.3} M rows of {:.0} row groups, {:.2} MB",
        at(0),
        at(times.len() / 2),
        at(times.len() - 1),
        each(before.rows, read.rows) / 1e6,
        each(before.row_groups, read.row_groups),
        each(before.bytes, read.bytes) / 1e6,
    ));
}

fn run_query(dir: &Path, days: i64) {
    let now = Arc::new(AtomicI64::new(T0 + days * DAY));
    let begin = Instant::now();
    let store = Arc::new(open(dir, &now));
    let opened = begin.elapsed().as_secs_f64() * 1e3;
    print_line(&format!("opened in {opened:.0} ms; {}", resident()));
    let temporary = tempfile::tempdir().unwrap();
    let path = temporary.path().join("registry.sqlite");
    let registry = Registry::open(&path, jobs::Limits::default(), jobs::Users::default).unwrap();
    // A range with this many points exceeds the default limit.
    let settings = Settings { points_max: 2_000_000, ..Settings::default() };
    let engine = QueryEngine::new(Arc::<Store>::clone(&store), Arc::new(registry), settings);
    let context = QueryContext::new(Reader::Everything, Timestamp(now.load(Ordering::SeqCst)));
    // Each run queries another day; some of the days are settled.
    let day = |run: i64| T0 + (run * 7 + 3) % days * DAY;
    time(&store, "one node, one hour: get_metrics", 40, 36_000, &|run| {
        let node = format!("node-{:04}", run * 13 % 100);
        let from = day(run) + run % 24 * HOUR;
        let (from, to) = (from / Timestamp::SECOND, (from + HOUR) / Timestamp::SECOND - 1);
        let (from, to) = (from.to_string(), to.to_string());
        let pairs = [("nodes", &*node), ("start_time", &*from), ("end_time", &*to)];
        let query = GetMetrics::from_pairs(pairs).unwrap();
        let (mut rows, mut bytes) = (1, 0);
        for piece in engine.get_metrics(&query, Format::Json, &context).unwrap() {
            let piece = piece.unwrap();
            rows += piece.iter().filter(|byte| **byte == b'\n').count();
            bytes += piece.len();
        }
        (rows, bytes)
    });
    let last = || {
        let values = engine.last(&Selector::default(), &context).unwrap();
        (values.len(), api::to_json(&values).unwrap().len())
    };
    time(&store, "last values of all nodes", 40, 1000, &|_| last());
    let range = |run: i64, select: &Selector, hours: i64, step: i64| {
        let from = Timestamp(day(run));
        let (to, select, rate) = (from.plus(hours * HOUR - 1), select.clone(), Rate::Counters);
        let query = RangeQuery { select, from, to, step_us: step * Timestamp::SECOND, rate };
        engine.range(&query, &context).unwrap()
    };
    let points = |range: &api::Range| range.series.iter().map(|series| series.times.len()).sum();
    let printed = |range: api::Range| (points(&range), api::to_json(&range).unwrap().len());
    let every = Selector::default();
    time(&store, "5-minute averages of everything, a day", 20, 288_000, &|run| {
        printed(range(run, &every, 24, 300))
    });
    let names = (0..NODES).map(|number| DeviceId::new(&format!("node-{number:04}")).unwrap());
    let job = Selector { devices: Some(names.collect()), ..Selector::default() };
    time(&store, "a job of 1000 series, 1 h, steps of 60 s", 20, 60_000, &|run| {
        printed(range(run, &job, 1, 60))
    });
    time(&store, "a job of 1000 series, 24 h, steps of 5 min", 20, 288_000, &|run| {
        printed(range(run, &job, 24, 300))
    });
    time(&store, "a job of 1000 series, 24 h, steps of 60 s", 20, 1_440_000, &|run| {
        printed(range(run, &job, 24, 60))
    });
    time(&store, "the same without JSON", 20, 1_440_000, &|run| {
        (points(&range(run, &job, 24, 60)), 0)
    });
    print_line(&format!("  asked: {}", resident()));
}
