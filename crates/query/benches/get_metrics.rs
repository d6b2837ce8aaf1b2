//! `get_metrics` on dataset A: nodes × 10 metrics × 1 Hz × 1 h, from blocks and from memory.
//!
//! Each node has nine metrics and one wattmeter port that is the node's by alias. A seed generates the values:
//!
//! - 40 % bursty integer counters,
//! - 30 % gauges with one decimal that change 40 % of the time,
//! - 20 % plateaus of page multiples,
//! - 10 % random walks with full precision.
//!
//! Goals:
//!
//! - One node for 1 h (36 000 rows) in 25 ms.
//! - Ten nodes (360 000 rows) in 200 ms with an RSS growth of at most 64 MB.
//! - One node for 5 min in 5 ms.
//!
//! ```text
//! cargo bench -p query --bench get_metrics -- [NODES [SECONDS]]
//! ```

#![expect(clippy::unwrap_used, reason = "a bench that cannot go on fails")]
#![expect(clippy::disallowed_methods, reason = "a bench measures time")]

use jobs::{Reader, Registry};
use model::{
    Batch, Boot, DeviceId, Kind, Labels, Metric, Origin, SeriesEntry, SeriesTable, Tick, Timestamp,
    Unit,
};
use query::{Format, GetMetrics, QueryContext, QueryEngine, Settings};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Instant;
use storage::{Incoming, Outcome, Storage as _};
use store::Store;
use wire::{Decoder, Encoder, Frames};

/// 2026-01-06T00:00:00Z.
const BEGIN: i64 = 1_767_657_600;
/// Seconds in a batch.
const BATCH: i64 = 60;
const RUNS: usize = 15;

/// SplitMix64, by Sebastiano Vigna.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A random integer below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// A random number from 0 to 1.
    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// How the values of a series change.
#[derive(Clone, Copy)]
enum Shape {
    Bursty,
    OneDecimal,
    Plateau,
    SliceSource,
}

type Pairs<'a> = &'a [(&'a str, &'a str)];

/// Name, shape, labels.
const METRICS: [(&str, Shape, Pairs<'_>); 9] = [
    ("network_receive_bytes_total", Shape::Bursty, &[("interface", "eth0")]),
    ("network_send_bytes_total", Shape::Bursty, &[("interface", "eth0")]),
    ("disk_read_bytes_total", Shape::Bursty, &[("disk", "sda")]),
    ("cpu_context_switches_total", Shape::Bursty, &[]),
    ("bmc_cpu_temp_celsius", Shape::OneDecimal, &[("cpu", "1")]),
    ("bmc_node_power_watts", Shape::OneDecimal, &[]),
    ("memory_free_bytes", Shape::Plateau, &[]),
    ("memory_cached_bytes", Shape::Plateau, &[]),
    ("load_1m", Shape::SliceSource, &[]),
];

struct Line {
    shape: Shape,
    value: f64,
}

impl Line {
    fn step(&mut self, random: &mut Random) -> f64 {
        match self.shape {
            Shape::Bursty if random.below(5) == 0 => self.value += random.below(1_000_000) as f64,
            Shape::Bursty => self.value += random.below(2000) as f64,
            Shape::OneDecimal if random.below(10) < 4 => {
                self.value = (random.share() * 3000.0).round() / 10.0;
            }
            Shape::Plateau if random.below(30) == 0 => {
                self.value = random.below(1 << 22) as f64 * 4096.0;
            }
            Shape::OneDecimal | Shape::Plateau => {}
            Shape::SliceSource => self.value += random.share() - 0.5,
        }
        self.value
    }
}

fn table(node: usize) -> Arc<SeriesTable> {
    let entry = |device: String, name: &'static str, shape, labels: &[(&str, &str)]| {
        let counter = matches!(shape, Shape::Bursty);
        let kind = if counter { Kind::Counter } else { Kind::Gauge };
        let divisor = if matches!(shape, Shape::OneDecimal) { 10 } else { 1 };
        let (unit, help) = (Unit::Count, "A series of the bench.".into());
        SeriesEntry {
            metric: Arc::new(Metric {
                name: name.into(),
                unit,
                kind,
                help,
                divisor,
                assumed: false,
            }),
            device: DeviceId::new(&device).unwrap(),
            job: None,
            labels: Labels::new(labels.iter().copied()).unwrap(),
            start: counter.then_some(Timestamp::from_seconds(BEGIN - 1000)),
        }
    };
    let name = format!("node-{node}");
    let mut entries: Vec<SeriesEntry> = METRICS
        .iter()
        .map(|(metric, shape, labels)| entry(name.clone(), metric, *shape, labels))
        .collect();
    let port = format!("wattmetre1-port{node}");
    let alias = [("_device_alias", name.as_str())];
    entries.push(entry(port, "wattmetre_power_watt", Shape::OneDecimal, &alias));
    Arc::new(SeriesTable { entries })
}

fn fill(store: &Store, nodes: usize, seconds: i64) {
    let mut random = Random(20_261_120);
    for node in 0..nodes {
        let table = table(node);
        let shapes = METRICS.iter().map(|metric| metric.1).chain([Shape::OneDecimal]);
        let mut lines: Vec<Line> = shapes.map(|shape| Line { shape, value: 0.0 }).collect();
        let mut encoder = Encoder::default();
        for (seq, first) in (0..seconds).step_by(usize::try_from(BATCH).unwrap()).enumerate() {
            let instants = first..(first + BATCH).min(seconds);
            let mut batch = Batch {
                origin: Origin::new(&format!("node-{node}")).unwrap(),
                boot: Boot([7; 16]),
                seq: seq as u64,
                table: Arc::clone(&table),
                ticks: Vec::new(),
                index: Vec::new(),
                values: Vec::new(),
                gaps: Vec::new(),
                jobs: Vec::new(),
            };
            for second in instants {
                let samples = u32::try_from(lines.len()).unwrap();
                batch.ticks.push(Tick { at: Timestamp::from_seconds(BEGIN + second), samples });
                batch.index.extend(0..samples);
                batch.values.extend(lines.iter_mut().map(|line| line.step(&mut random)));
            }
            let mut bytes = Vec::new();
            encoder.encode(&batch, &mut bytes).unwrap();
            append(store, bytes);
        }
    }
}

fn append(store: &Store, bytes: Vec<u8>) {
    let frame = Frames::of(&bytes).next().unwrap().unwrap();
    let decoded = Decoder::default().decode(&frame).unwrap();
    let received = Timestamp::from_seconds(BEGIN + 3600);
    let (sender, receiver) = sync_channel(1);
    let incoming = Incoming { frame: bytes, decoded, received };
    store.append(vec![incoming], move |outcomes| sender.send(outcomes).unwrap());
    let outcomes = receiver.recv().unwrap();
    assert!(
        outcomes.iter().all(|outcome| matches!(outcome, Outcome::Stored { .. })),
        "{outcomes:?}"
    );
}

/// Resident memory, in KiB.
fn resident_kib() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

struct Measured {
    median_ms: f64,
    least_ms: f64,
    rows: usize,
    bytes: usize,
    growth_kib: u64,
}

fn measure(engine: &QueryEngine, pairs: Pairs<'_>) -> Measured {
    let query = GetMetrics::from_pairs(pairs.iter().copied()).unwrap();
    let context = QueryContext::new(Reader::Everything, Timestamp::from_seconds(BEGIN + 3600));
    let run_query = || engine.get_metrics(&query, Format::Json, &context).unwrap();
    // An untimed first run determines the counts.
    let (mut rows, mut bytes, mut growth_kib, before) = (1, 0, 0, resident_kib());
    for piece in run_query() {
        let piece = piece.unwrap();
        rows += piece.iter().filter(|byte| **byte == b'\n').count();
        bytes += piece.len();
        growth_kib = growth_kib.max(resident_kib().saturating_sub(before));
    }
    let mut times = Vec::new();
    for _ in 0..RUNS {
        let begin = Instant::now();
        let receiver: usize = run_query().map(|piece| piece.unwrap().len()).sum();
        times.push(begin.elapsed().as_secs_f64() * 1e3);
        assert_eq!(receiver, bytes);
    }
    times.sort_by(f64::total_cmp);
    let time = |place: usize| times.get(place).copied().unwrap_or(f64::NAN);
    let (median_ms, least_ms) = (time(RUNS / 2), time(0));
    Measured { median_ms, least_ms, rows, bytes, growth_kib }
}

fn report(out: &mut impl Write, engine: &QueryEngine, place: &str, nodes: usize) {
    let (begin, end) = (BEGIN.to_string(), (BEGIN + 3599).to_string());
    let five = (BEGIN + 1800 + 299).to_string();
    let half = (BEGIN + 1800).to_string();
    let ten: Vec<String> = (0..nodes.min(10)).map(|node| format!("node-{node}")).collect();
    let ten = ten.join(",");
    let whole = [("start_time", &*begin), ("end_time", &*end)];
    let rate = [("nodes", "node-0"), ("as_rate", "auto")];
    let summary = [("nodes", "node-0"), ("summary", "true")];
    let port = [("devices", "wattmetre1-port0")];
    for (what, pairs) in [
        ("one node, 1 h", [&[("nodes", "node-0")], &whole[..]].concat()),
        ("ten nodes, 1 h", [&[("nodes", &*ten)], &whole[..]].concat()),
        ("one node, 5 min", vec![("nodes", "node-0"), ("start_time", &half), ("end_time", &five)]),
        ("one port, 1 h", [&port, &whole[..]].concat()),
        ("one node, 1 h, rates", [&rate, &whole[..]].concat()),
        ("one node, 1 h, summary", [&summary, &whole[..]].concat()),
    ] {
        let m = measure(engine, &pairs);
        writeln!(
            out,
            "{place:8} {what:24} {:8} rows {:9} B  median {:8.2} ms  least {:8.2} ms  RSS +{} KiB",
            m.rows, m.bytes, m.median_ms, m.least_ms, m.growth_kib
        )
        .unwrap();
    }
}

fn engine(store: &Arc<Store>, dir: &Path) -> QueryEngine {
    let path = dir.join("registry.sqlite");
    let registry = Registry::open(&path, jobs::Limits::default(), jobs::Users::default).unwrap();
    QueryEngine::new(Arc::<Store>::clone(store), Arc::new(registry), Settings::default())
}

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|word| word.parse::<usize>().ok());
    let nodes = numbers.next().unwrap_or(100);
    let seconds = i64::try_from(numbers.next().unwrap_or(3600)).unwrap();
    let mut out = std::io::stdout().lock();
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(|| Timestamp::from_seconds(BEGIN + 3600));
    let (store, _) = Store::open(dir.path(), store::Settings::default(), clock).unwrap();
    let store = Arc::new(store);
    let begin = Instant::now();
    fill(&store, nodes, seconds);
    let took = begin.elapsed().as_secs_f64();
    let rows = nodes as f64 * 10.0 * seconds as f64;
    writeln!(out, "{rows} rows stored in {took:.1} s, one batch at a time").unwrap();
    let engine = engine(&store, dir.path());
    report(&mut out, &engine, "memory", nodes);
    store.flush().unwrap();
    let stats = store.stats();
    let each = stats.block_bytes as f64 / stats.block_samples as f64;
    writeln!(out, "{} blocks, {each:.2} bytes a sample", stats.blocks).unwrap();
    report(&mut out, &engine, "blocks", nodes);
}
