//! Compares the store with VictoriaMetrics: ingestion, merging and queries of the same samples in the same run.
//!
//! ```text
//! cargo bench -p query --bench victoria -- PROGRAM
//! ```
//!
//! `benches/victoria.sh` finds or downloads the program and passes its path. The data is 1 h of 100 nodes ×
//! 20 metrics × 1 Hz in the shapes of dataset A. Requests contain 30 s of 20 nodes (12 000 samples); two or more are in
//! flight.
//!
//! - jobmeter's store ingests agents' frames in this process, without HTTP. It decodes them, logs them with
//!   fdatasync, keeps them in memory, writes, merges and rolls up blocks.
//! - VictoriaMetrics ingests Prometheus remote write over loopback. The bodies are prebuilt and not compressed
//!   (a snappy block may be one literal).
//! - VictoriaMetrics also ingests its native export of the same samples, its cheapest input.
//!
//! Each program's processor time comes from its `/proc/PID/stat`. Queries alternate between the two.

#![expect(clippy::unwrap_used, reason = "a bench that cannot go on fails")]
#![expect(clippy::disallowed_methods, reason = "a bench times, and starts what it measures")]

#[path = "../../../store/benches/agents/mod.rs"]
mod agents;
#[path = "../../../store/benches/measure/mod.rs"]
#[expect(dead_code, reason = "the store's benches use more of it")]
mod measure;
mod peer;
mod queries;
mod remote_write;

use agents::Agent;
use measure::{cpu_seconds, print_line};
use peer::{Peer, files};
use std::path::{Path, PathBuf};
use std::time::Instant;
use storage::Storage as _;
use store::{Settings, Store};

pub(crate) const NODES: u64 = 100;
pub(crate) const METRICS: u64 = 20;
const SECONDS: i64 = 3600;
/// Seconds in a frame.
const FRAME: i64 = 30;
/// Frames per request, one per node.
const A_REQUEST: usize = 20;
const SAMPLES: u64 = NODES * METRICS * 3600;
/// Number of blocks that jobmeter's store writes and then merges.
const BLOCKS: usize = 8;
const ROUNDS: usize = 3;

fn main() {
    let mut words = std::env::args().skip(1).filter(|arg| !arg.starts_with('-'));
    let Some(program) = words.next().map(PathBuf::from) else {
        print_line("beside VictoriaMetrics: benches/victoria.sh gets its program and runs this");
        return;
    };
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path();
    let mut agents: Vec<Agent> = (0..NODES).map(|number| Agent::new(number, METRICS)).collect();
    let rounds = 0..SECONDS / FRAME;
    let frames: Vec<Vec<u8>> = rounds
        .flat_map(|_| agents.iter_mut().map(|a| a.frame(FRAME)).collect::<Vec<_>>())
        .collect();
    let bodies: Vec<Vec<u8>> = frames.chunks(A_REQUEST).map(remote_write::body).collect();
    let bytes = |all: &[Vec<u8>]| all.iter().map(Vec::len).sum::<usize>() as f64 / SAMPLES as f64;
    print_line(&format!(
        "{NODES} nodes x {METRICS} metrics x {SECONDS} s: {SAMPLES} samples, {:.2} bytes a sample in our frames, \
         {:.2} in remote write; {ROUNDS} rounds in turn",
        bytes(&frames),
        bytes(&bodies)
    ));
    let mut all = Vec::new();
    let mut last = None;
    for round in 0..ROUNDS {
        // The previous round is measured: this removes its data.
        drop(last.take());
        let ours = ours(&dir.join(format!("ours-{round}")), &frames);
        let theirs = theirs(&program, &dir.join(format!("theirs-{round}")), &bodies);
        let native = native(&program, &dir.join(format!("native-{round}")), &theirs.1);
        all.push([ours.0, theirs.0, native]);
        last = Some((ours.1, theirs.1));
    }
    let names = ["jobmeter's store", "VictoriaMetrics, remote write", "VictoriaMetrics, native"];
    for (place, name) in names.into_iter().enumerate() {
        let of: Vec<&Costs> = all.iter().filter_map(|costs| costs.get(place)).collect();
        report(name, &of);
    }
    let (store, theirs) = last.unwrap();
    queries::run_query(store, &theirs, dir);
    let place = theirs.end();
    let (sum, cache) = (files(&place), files(&place.join("cache")));
    print_line(&format!(
        "VictoriaMetrics after its end: {:.3} bytes a sample, of it caches {:.3}",
        sum as f64 / SAMPLES as f64,
        cache as f64 / SAMPLES as f64
    ));
}

/// Cost of a step: processor seconds, elapsed seconds, and the bytes on disk afterwards.
#[derive(Clone, Copy)]
pub(crate) struct Cost {
    pub(crate) what: &'static str,
    pub(crate) cpu: f64,
    pub(crate) wall: f64,
    pub(crate) bytes: u64,
}

type Costs = Vec<Cost>;

/// Measures the cost of one program from a point on.
pub(crate) struct CostMeter {
    cpu: f64,
    wall: Instant,
    costs: Costs,
}

impl CostMeter {
    pub(crate) fn begin(cpu: f64) -> Self {
        Self { cpu, wall: Instant::now(), costs: Costs::new() }
    }

    pub(crate) fn reached(&mut self, what: &'static str, cpu: f64, dir: &Path) {
        let wall = self.wall.elapsed().as_secs_f64();
        self.costs.push(Cost { what, cpu: cpu - self.cpu, wall, bytes: files(dir) });
    }
}

/// Prints each step's median over the rounds, and the minimum and maximum processor time.
fn report(name: &str, rounds: &[&Costs]) {
    print_line(name);
    let million = SAMPLES as f64 / 1e6;
    for place in 0..rounds.first().unwrap().len() {
        let each: Vec<Cost> = rounds.iter().map(|costs| *costs.get(place).unwrap()).collect();
        let middle = |of: &dyn Fn(&Cost) -> f64| {
            let mut values: Vec<f64> = each.iter().map(of).collect();
            values.sort_by(f64::total_cmp);
            let at = |place: usize| values.get(place).copied().unwrap();
            (at(0), at(values.len() / 2), at(values.len() - 1))
        };
        let (least, cpu, most) = middle(&|cost| cost.cpu / million);
        let wall = middle(&|cost| cost.wall).1;
        let bytes = middle(&|cost| cost.bytes as f64 / SAMPLES as f64).1;
        print_line(&format!(
            "  until {}: {cpu:.3} s of processor time a million samples ({least:.3} to {most:.3}), {wall:.1} s \
             by the clock, {bytes:.3} bytes a sample on disk",
            each.first().unwrap().what,
        ));
    }
}

fn ours(dir: &Path, frames: &[Vec<u8>]) -> (Costs, Store) {
    let age = i64::MAX;
    let settings = Settings {
        head_age_us: age,
        merge_blocks: BLOCKS,
        background_maintenance: false,
        ..Settings::default()
    };
    let store = measure::open(dir, settings);
    let mut meter = CostMeter::begin(cpu_seconds());
    let mut samples = 0;
    for of_a_block in frames.chunks(frames.len() / BLOCKS) {
        samples += measure::send(&store, of_a_block, A_REQUEST);
        store.flush().unwrap();
    }
    meter.reached("acknowledged, all in blocks", cpu_seconds(), dir);
    store.maintain().unwrap();
    meter.reached("merged and rolled up", cpu_seconds(), dir);
    let stats = store.stats();
    assert_eq!((samples, stats.block_samples, stats.blocks), (SAMPLES, SAMPLES, 1));
    (meter.costs, store)
}

fn theirs(program: &Path, dir: &Path, bodies: &[Vec<u8>]) -> (Costs, Peer) {
    let peer = Peer::start(program, dir);
    let mut meter = CostMeter::begin(peer.cpu_seconds());
    std::thread::scope(|scope| {
        for sender in 0..2 {
            let every_second = bodies.iter().skip(sender).step_by(2);
            let peer = &peer;
            scope.spawn(move || {
                for body in every_second {
                    peer.post("/api/v1/write", "Content-Encoding: snappy\r\n", body);
                }
            });
        }
    });
    meter.reached("acknowledged", peer.cpu_seconds(), dir);
    settle(&peer, &mut meter, dir);
    (meter.costs, peer)
}

/// Ingests the same samples from VictoriaMetrics' native export.
fn native(program: &Path, dir: &Path, from: &Peer) -> Costs {
    let export = from.get("/api/v1/export/native?match[]=%7B__name__!=%22%22%7D");
    let peer = Peer::start(program, dir);
    let mut meter = CostMeter::begin(peer.cpu_seconds());
    peer.post("/api/v1/import/native", "", &export);
    meter.reached("acknowledged", peer.cpu_seconds(), dir);
    settle(&peer, &mut meter, dir);
    let place = peer.end();
    std::fs::remove_dir_all(place).unwrap();
    meter.costs
}

fn settle(peer: &Peer, meter: &mut CostMeter, dir: &Path) {
    peer.get("/internal/force_flush");
    meter.reached("all of it can be asked", peer.cpu_seconds(), dir);
    peer.merge();
    meter.reached("merged", peer.cpu_seconds(), dir);
    assert_eq!(peer.count(), SAMPLES);
}
