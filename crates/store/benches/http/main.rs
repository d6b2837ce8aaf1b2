//! Ingest over HTTP: samples per second of the server program, ack latency, and startup time. Frames are like
//! those of agents; a request ends with the ack that they are on disk.
//!
//! ```text
//! cargo build --release -p server && cargo bench -p store --bench http [-- [--swarm | --attacks] [DIR]]
//! ```
//!
//! `--swarm` runs 100, 1000 and 10 000 agents at their usual pace instead. `--attacks` measures the effect of
//! hostile statements, frames and requests on agents and `ready`. DIR (by default a temporary one) should be
//! on the relevant disk.
//! The bench prints tables for docs/performance.md. `JOBMETER_SERVER_PROGRAM` selects another program than
//! target/release/jobmeter-server;
//! development builds are rejected. `JOBMETER_BENCH_SHORT=1` runs a tenth of it.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a bench may fail")]
#![expect(clippy::disallowed_methods, reason = "a bench times, and starts what it measures")]
#![expect(clippy::cast_possible_truncation, reason = "places of a generator")]

#[path = "../agents/mod.rs"]
mod agents;
mod attacks;
mod client;
#[path = "../../../../tests/attacks/hostile_corpus.rs"]
mod hostile_corpus;
mod program;
mod swarm;

use agents::Agent;
use client::{Client, Measured, Pace};
use program::{Cpu, Server, program, raise_open_files};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Batches of each agent in a second, at a fixed rate.
const RATE: u32 = 2;
/// Probes of the disk before and after a latency measurement.
const PROBES: usize = 300;

fn main() -> ExitCode {
    raise_open_files();
    let temporary = tempfile::tempdir().unwrap();
    let given = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let dir = given.map_or_else(|| temporary.path().to_owned(), Into::into);
    let short = std::env::var_os("JOBMETER_BENCH_SHORT").is_some_and(|text| !text.is_empty());
    let percent = if short { 10 } else { 100 };
    let is_given = |flag: &str| std::env::args().any(|arg| arg == flag);
    let measured = match (is_given("--swarm"), is_given("--attacks")) {
        (true, _) => swarm::measure(&dir, percent),
        (_, true) => attacks::measure(&dir, percent),
        _ => measure(&dir, percent),
    };
    match measured {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            let mut stderr = std::io::stderr();
            writeln!(stderr, "{why}").unwrap();
            ExitCode::FAILURE
        }
    }
}

/// Runs all measurements, at this percentage of their length.
fn measure(dir: &Path, percent: usize) -> Result<(), String> {
    let program = program()?;
    let bench = Bench { program: &program, dir };
    let empty = bench.empty_starts()?;
    print_line(&format!("load before: {}", load()));
    let small = bench.throughput("1000 origins, batches of 500 samples", 1000, (500, 1), percent);
    let large = bench.throughput("batches of 64 Ki samples", 100, (512, 128), percent.div_ceil(12));
    print_line(&format!("| | {} | {} |\n|---|---|---|", small.what, large.what));
    for ((what, of_small), (_, of_large)) in small.rows().iter().zip(large.rows()) {
        print_line(&format!("| {what} | {of_small} | {of_large} |"));
    }
    let starts = bench.latencies(percent);
    print_line("\n| start to ready | |\n|---|---|");
    print_line(&format!("| an empty folder | {empty} |"));
    for (what, took) in [small.start, large.start, starts] {
        print_line(&format!("| {what} | {took} |"));
    }
    print_line(&format!("load after: {}", load()));
    Ok(())
}

struct Bench<'a> {
    program: &'a Path,
    dir: &'a Path,
}

/// Measurements of many batches, sent as fast as the server accepts them.
struct Throughput {
    what: &'static str,
    samples: f64,
    requests: f64,
    seconds: f64,
    /// Processor time of the server: to the last ack, and to its end with all samples in blocks.
    cpu: f64,
    cpu_whole: f64,
    blocks: f64,
    block_samples: f64,
    block_bytes: f64,
    commits: f64,
    fsync_ms: f64,
    rejected: usize,
    /// The client's share of the machine's processors, in percent.
    client: f64,
    /// The result of a restart, and its duration.
    start: (String, String),
}

impl Throughput {
    fn rows(&self) -> [(&'static str, String); 9] {
        let rate = |seconds: f64| format!("{} M samples/s", millions(self.samples / seconds));
        let blocks = format!(
            "{} of {} M samples, {:.0} MB",
            self.blocks,
            millions(self.block_samples),
            self.block_bytes / 1e6
        );
        [
            ("samples sent, acknowledged, found again", format!("{} M", millions(self.samples))),
            ("by the clock", rate(self.seconds)),
            ("to the last ack, per second of the server's processor time", rate(self.cpu)),
            (
                "**until all is in blocks, per second of its processor time**",
                format!("**{}**", rate(self.cpu_whole)),
            ),
            (
                "its processor time of a request",
                format!("{:.0} µs", self.cpu / self.requests * 1e6),
            ),
            ("blocks written until the last ack", blocks),
            ("commits, fdatasync on average", format!("{}, {:.1} ms", self.commits, self.fsync_ms)),
            ("requests refused for now and sent again", self.rejected.to_string()),
            ("of the machine's processors, the client took", format!("{:.0} %", self.client)),
        ]
    }
}

impl Bench<'_> {
    /// Startup on an empty folder.
    fn empty_starts(&self) -> Result<String, String> {
        let place = self.dir.join("empty");
        let mut took = Vec::new();
        for _ in 0..5 {
            let server = Server::start(self.program, &place);
            took.push(server.ready.as_secs_f64() * 1e3);
            if server.is_development_build() {
                let program = self.program.display();
                return Err(format!("{program} is a development build: no bench runs in it"));
            }
            server.kill();
            std::fs::remove_dir_all(&place).unwrap();
        }
        Ok(format!("{:.0} ms (median of 5)", at(&sorted(took), 0.5)))
    }

    fn throughput(
        &self,
        what: &'static str,
        agents: usize,
        (series, ticks): (u64, i64),
        rounds: usize,
    ) -> Throughput {
        let frames = frames(agents, series, ticks, rounds);
        let samples = (agents * rounds) as f64 * series as f64 * ticks as f64;
        let place = self.dir.join(format!("throughput-{agents}"));
        let mut server = Server::start(self.program, &place);
        let mut client = Client::connect(server.address, agents);
        let (before, mut own) = (server.cpu.seconds(), Cpu::of(std::process::id()));
        let own_before = own.seconds();
        let found =
            client.send(&mut slices(&frames).as_slice(), Pace::Next, &mut || note(&mut server.cpu));
        let (cpu, own) = (server.cpu.seconds() - before, own.seconds() - own_before);
        let counts = server.counts();
        let count = |name: &str| *counts.get(&format!("jobmeter_{name}")).unwrap();
        assert_eq!(count("ingest_samples_total"), samples, "acknowledged");
        assert_eq!(count("store_head_samples") + count("store_block_samples"), samples, "stored");
        drop(client);
        let cpu_whole = server.end() - before;
        let start = self.start_again(&place, samples);
        std::fs::remove_dir_all(&place).unwrap();
        let seconds = found.wall.as_secs_f64();
        Throughput {
            what,
            samples,
            requests: found.requests as f64,
            seconds,
            cpu,
            cpu_whole,
            blocks: count("store_blocks"),
            block_samples: count("store_block_samples"),
            block_bytes: count("store_block_bytes"),
            commits: count("store_commits_total"),
            fsync_ms: count("store_fsync_seconds_total") / count("store_commits_total") * 1e3,
            rejected: found.rejected,
            client: own / seconds / processors() * 100.0,
            start,
        }
    }

    /// Starts a server on the data of another one, which must have all samples. Returns its statistics and
    /// the duration.
    fn start_again(&self, place: &Path, samples: f64) -> (String, String) {
        let server = Server::start(self.program, place);
        let counts = server.counts();
        let count = |name: &str| *counts.get(&format!("jobmeter_store_{name}")).unwrap();
        let (head, blocks) = (count("head_samples"), count("block_samples"));
        assert_eq!(head + blocks, samples, "found again");
        let what = format!(
            "{} M samples in blocks ({}), {} M in the log ({:.0} MB)",
            millions(blocks),
            count("blocks"),
            millions(head),
            count("log_bytes") / 1e6
        );
        let took = format!("{:.0} ms", server.ready.as_secs_f64() * 1e3);
        server.kill();
        (what, took)
    }

    /// Send-to-ack latency at a fixed rate; and the startup after such a run was killed.
    fn latencies(&self, percent: usize) -> (String, String) {
        let (warm, rounds) = (5 * RATE as usize, (30 * RATE as usize * percent).div_ceil(100));
        let frames = frames(1000, 500, 1, warm + rounds);
        let seconds = rounds as f64 / f64::from(RATE);
        let rate = RATE as usize * 1000;
        print_line(&format!(
            "\n| {rate} batches/s of 500 samples, 1000 origins, {seconds:.0} s | p50 | p99 | most |\n\
             |---|---|---|---|"
        ));
        let (mut start, mut notes) = (None, Vec::new());
        for (spread, what) in [
            (true, "**send to ack**, each origin at instants of its own"),
            (false, "send to ack, all origins at the same two instants of a second"),
        ] {
            let place = self.dir.join(format!("latency-{spread}"));
            notes.push(self.latency(&place, &frames, warm, spread, what));
            start = Some(self.start_again(&place, ((warm + rounds) * 1000 * 500) as f64));
            std::fs::remove_dir_all(&place).unwrap();
        }
        print_line(&format!("\n{}", notes.join("\n")));
        start.unwrap()
    }

    /// Sends at a fixed rate, and probes the disk alone before and after. Returns further notes.
    fn latency(
        &self,
        place: &Path,
        frames: &[Vec<Vec<u8>>],
        warm: usize,
        spread: bool,
        what: &str,
    ) -> String {
        let pace = Pace::Every { period: Duration::from_secs(1) / RATE, spread };
        let mut server = Server::start(self.program, place);
        let mut client = Client::connect(server.address, frames.len());
        let (first, rest): (Vec<_>, Vec<_>) =
            slices(frames).iter().map(|of_agent| of_agent.split_at(warm)).unzip();
        client.send(&mut first.as_slice(), pace, &mut || note(&mut server.cpu));
        let before = server.counts();
        let of = |counts: &BTreeMap<String, f64>, name: &str| {
            *counts.get(&format!("jobmeter_store_{name}")).unwrap()
        };
        let commit = of(&before, "log_bytes") / of(&before, "commits_total");
        let mut disk = probe(place, commit);
        let (cpu, mut own) = (server.cpu.seconds(), Cpu::of(std::process::id()));
        let own_before = own.seconds();
        let found = client.send(&mut rest.as_slice(), pace, &mut || note(&mut server.cpu));
        let (cpu, own) = (server.cpu.seconds() - cpu, own.seconds() - own_before);
        let after = server.counts();
        server.kill();
        disk.extend(probe(place, commit));
        let grown = |name: &str| of(&after, name) - of(&before, name);
        let Measured { wall, latencies, late, rejected, .. } = found;
        row(what, latencies);
        row("of which the client sent late", late);
        let bytes = commit / 1e3;
        row(&format!("the disk's own fdatasync, {bytes:.0} kB appended as a commit has"), disk);
        let share = |cpu: f64| cpu / wall.as_secs_f64() / processors() * 100.0;
        format!(
            "{what}: the server took {:.0} % of the machine's processors, the client {:.0} %; {} \
             commits with {:.1} ms of fdatasync on average, {:.0} ms at most; {} blocks written; \
             {rejected} requests refused for now.",
            share(cpu),
            share(own),
            grown("commits_total"),
            grown("fsync_seconds_total") / grown("commits_total") * 1e3,
            of(&after, "fsync_seconds_max") * 1e3,
            grown("blocks"),
        )
    }
}

/// Frames of each agent, round by round.
fn frames(agents: usize, series: u64, ticks: i64, rounds: usize) -> Vec<Vec<Vec<u8>>> {
    let agents = (0..agents as u64).map(|number| Agent::new(number, series));
    let frames = |mut agent: Agent| (0..rounds).map(|_| agent.frame(ticks)).collect();
    agents.map(frames).collect()
}

fn slices(frames: &[Vec<Vec<u8>>]) -> Vec<&[Vec<u8>]> {
    frames.iter().map(Vec::as_slice).collect()
}

/// Appends `bytes` to a file and syncs, repeatedly: milliseconds of each.
fn probe(dir: &Path, bytes: f64) -> Vec<f64> {
    let path = dir.join("probe");
    let mut file = File::create(&path).unwrap();
    #[expect(clippy::cast_sign_loss, reason = "a size is not below zero")]
    let bytes = vec![b'x'; bytes as usize];
    let times = (0..PROBES).map(|_| {
        let began = Instant::now();
        file.write_all(&bytes).unwrap();
        file.sync_data().unwrap();
        began.elapsed().as_secs_f64() * 1e3
    });
    let times = times.collect();
    std::fs::remove_file(&path).unwrap();
    times
}

/// Looks at the server's threads, so that the time of those that end is not missed.
fn note(cpu: &mut Cpu) {
    cpu.seconds();
}

fn sorted(mut times: Vec<f64>) -> Vec<f64> {
    times.sort_by(f64::total_cmp);
    times
}

/// The value below which a share of the sorted ones lie.
fn at(sorted: &[f64], share: f64) -> f64 {
    let place = (sorted.len().saturating_sub(1) as f64 * share).round();
    #[expect(clippy::cast_sign_loss, reason = "a share is not below zero")]
    let place = place as usize;
    sorted.get(place).copied().unwrap_or(f64::NAN)
}

fn row(what: &str, times: Vec<f64>) {
    let times = sorted(times);
    let [p50, p99, most] = [0.5, 0.99, 1.0].map(|share| at(&times, share));
    print_line(&format!("| {what} | {p50:.1} ms | {p99:.1} ms | {most:.1} ms |"));
}

fn millions(number: f64) -> String {
    format!("{:.2}", number / 1e6)
}

fn processors() -> f64 {
    std::thread::available_parallelism().unwrap().get() as f64
}

fn load() -> String {
    std::fs::read_to_string("/proc/loadavg").unwrap().trim().to_owned()
}

fn print_line(line: &str) {
    let mut out = std::io::stdout();
    out.write_all(line.as_bytes()).and_then(|()| out.write_all(b"\n")).unwrap();
}
