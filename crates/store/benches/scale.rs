//! Memory of a million live series, and the replay time of a log of 1 GB.
//!
//! `cargo bench -p store --bench scale [-- DIR]`: the directory (by default a temporary one) needs 2.5 GB.
//! Each part runs in its own process with only the store in memory: this process prepares the frames. Rates
//! are per second of processor time.
//! The log is written with 2.5 GB of memory, since a store with default limits would never let it grow so long.

#![expect(clippy::unwrap_used, reason = "a bench may fail")]
#![expect(clippy::disallowed_methods, reason = "a bench times, and starts itself")]

mod agents;
mod measure;

use agents::Agent;
use measure::{Timed, open, print_line, send};
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use storage::Storage as _;
use store::{Settings, Store};

/// Rounds in which every series has a sample.
const ROUNDS: usize = 40;
const LOG_BYTES: u64 = 1_000_000_000;

fn main() {
    let temporary = tempfile::tempdir().unwrap();
    let mut words = std::env::args().skip(1).filter(|arg| !arg.starts_with("--"));
    let first = words.next();
    match (first.as_deref(), words.next()) {
        (Some("alive"), Some(dir)) => alive(Path::new(&dir)),
        (Some("again"), Some(dir)) => reopen(Path::new(&dir)),
        (Some("write"), Some(dir)) => write(Path::new(&dir)),
        (Some("recover"), Some(dir)) => recover(Path::new(&dir)),
        (given, _) => {
            let dir = given.map_or(temporary.path(), Path::new);
            print_line("1 000 000 series alive: 1000 origins of 1000 series");
            frames(dir);
            child("alive", dir);
            child("again", dir);
            print_line("a log of 1 GB: 1000 origins, batches of 500 samples");
            child("write", dir);
            child("recover", dir);
        }
    }
}

/// Runs a part in its own process.
fn child(part: &str, dir: &Path) {
    let status = Command::new(std::env::current_exe().unwrap()).arg(part).arg(dir).status();
    assert!(status.unwrap().success(), "{part} failed");
}

/// A line of /proc/self/status, in MiB.
fn mib(name: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1024.0
}

fn resident(when: &str, store: &Store) {
    let stats = store.stats();
    print_line(&format!(
        "  {when}: {:.0} MiB resident, {:.0} at most so far; {} series, {:.1} M samples of {:.0} MiB in \
         memory, {} blocks",
        mib("VmRSS"),
        mib("VmHWM"),
        stats.series,
        stats.head_samples as f64 / 1e6,
        stats.head_bytes as f64 / 1048576.0,
        stats.blocks,
    ));
}

fn frames(dir: &Path) {
    let mut agents: Vec<Agent> = (0..1000).map(|number| Agent::new(number, 1000)).collect();
    let mut file = BufWriter::new(File::create(dir.join("frames")).unwrap());
    for _ in 0..ROUNDS {
        agents.iter_mut().for_each(|agent| file.write_all(&agent.frame(1)).unwrap());
    }
    file.flush().unwrap();
}

/// The next frames of a file.
fn next(file: &mut impl Read, count: usize) -> Vec<Vec<u8>> {
    let mut frames = Vec::with_capacity(count);
    for _ in 0..count {
        let mut frame = vec![0; 12];
        file.read_exact(&mut frame).unwrap();
        let length = frame.get(4..8).unwrap().try_into().unwrap();
        frame.resize(12 + usize::try_from(u32::from_le_bytes(length)).unwrap(), 0);
        file.read_exact(frame.get_mut(12..).unwrap()).unwrap();
        frames.push(frame);
    }
    frames
}

/// With the default limits and threads; blocks are written as they become due.
fn alive(dir: &Path) {
    let place = dir.join("alive");
    let mut file = BufReader::new(File::open(dir.join("frames")).unwrap());
    let store = open(&place, Settings::default());
    let head_bytes_max = Settings::default().head_bytes_max as u64 * 3 / 4;
    let all = Timed::start();
    let mut samples = 0;
    for round in 0..ROUNDS {
        for _ in 0..50 {
            samples += send(&store, &next(&mut file, 20), 20);
            // Like agents that retry later: the block writer is behind.
            while store.stats().head_bytes > head_bytes_max {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        if round == 0 {
            resident("each series once", &store);
        }
    }
    all.rate(samples, "frames to blocks");
    resident("40 samples of each", &store);
    store.flush().unwrap();
    store.maintain().unwrap();
    resident("all of it in blocks", &store);
}

/// Opens the data of the previous process.
fn reopen(dir: &Path) {
    let place = dir.join("alive");
    let opening = Timed::start();
    let store = open(&place, Settings::default());
    let (cpu, wall) = (measure::cpu_seconds() - opening.cpu, opening.wall.elapsed().as_secs_f64());
    print_line(&format!(
        "  opened again in {cpu:.1} s of processor time, {wall:.1} s by the clock"
    ));
    resident("opened again", &store);
    drop(store);
    std::fs::remove_dir_all(&place).unwrap();
    std::fs::remove_file(dir.join("frames")).unwrap();
}

fn write(dir: &Path) {
    let limits = Settings {
        head_bytes_max: usize::MAX,
        head_samples_max: u64::MAX,
        head_age_us: i64::MAX,
        log_bytes_max: u64::MAX,
        background_maintenance: false,
        ..Settings::default()
    };
    let store = open(&dir.join("log"), limits);
    let mut agents: Vec<Agent> = (0..1000).map(|number| Agent::new(number, 500)).collect();
    while store.stats().log_bytes < LOG_BYTES {
        let frames: Vec<Vec<u8>> = agents.iter_mut().map(|agent| agent.frame(1)).collect();
        send(&store, &frames, 100);
    }
    resident("the log is written", &store);
}

/// With the default limits: replayed samples go into blocks as usual.
fn recover(dir: &Path) {
    let place = dir.join("log");
    let log = std::fs::read_dir(place.join("log")).unwrap();
    let bytes: u64 = log.map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
    let reading = Timed::start();
    let store = open(&place, Settings { background_maintenance: false, ..Settings::default() });
    let (cpu, wall) = (measure::cpu_seconds() - reading.cpu, reading.wall.elapsed().as_secs_f64());
    let stats = store.stats();
    let samples = stats.head_samples + stats.block_samples;
    reading.rate(samples, &format!("{:.1} M samples read again", samples as f64 / 1e6));
    let mb = bytes as f64 / 1e6;
    print_line(&format!(
        "  {mb:.0} MB of log: {:.0} MB/s of processor time, {:.0} MB/s by the clock ({wall:.1} s), {:.2} \
         bytes a sample",
        mb / cpu,
        mb / wall,
        bytes as f64 / samples as f64,
    ));
    resident("opened", &store);
    drop(store);
    std::fs::remove_dir_all(&place).unwrap();
}
