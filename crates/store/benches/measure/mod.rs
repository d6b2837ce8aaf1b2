//! Shared parts of the benches in this folder: time, and a store that ingests frames like a server's.

use crate::agents::T0;
use model::Timestamp;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Instant;
use storage::{Incoming, Outcome};
use store::{Settings, Store};
use wire::{Decoder, Frames};

pub(crate) fn print_line(line: &str) {
    let mut out = std::io::stdout();
    out.write_all(line.as_bytes()).and_then(|()| out.write_all(b"\n")).unwrap();
}

/// Processor time of this process so far, in seconds (utime and stime of /proc/self/stat, 100 a second).
pub(crate) fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks = |field: Option<&&str>| field.unwrap().parse::<f64>().unwrap();
    (ticks(fields.get(11)) + ticks(fields.get(12))) / 100.0
}

pub(crate) struct Timed {
    pub(crate) cpu: f64,
    pub(crate) wall: Instant,
}

impl Timed {
    pub(crate) fn start() -> Self {
        Self { cpu: cpu_seconds(), wall: Instant::now() }
    }

    pub(crate) fn rate(&self, samples: u64, what: &str) {
        let (cpu, wall) = (cpu_seconds() - self.cpu, self.wall.elapsed().as_secs_f64());
        let samples = samples as f64 / 1e6;
        print_line(&format!(
            "  {what}: {:.2} M samples/s of processor time ({cpu:.2} s), {:.2} M/s by the clock",
            samples / cpu.max(0.005),
            samples / wall
        ));
    }
}

pub(crate) fn open(dir: &Path, settings: Settings) -> Store {
    let started = Instant::now();
    let micros = move || i64::try_from(started.elapsed().as_micros()).unwrap();
    let clock = Arc::new(move || Timestamp(T0 + 100_000 * 1_000_000 + micros()));
    Store::open(dir, settings, clock).unwrap().0
}

/// Sends frames like a server: decoded, `a_request` at a time, eight requests in progress.
pub(crate) fn send(store: &Store, frames: &[Vec<u8>], a_request: usize) -> u64 {
    let mut decoder = Decoder::default();
    let (to, from) = sync_channel::<Vec<Outcome>>(1024);
    let (mut samples, mut under_way) = (0, 0);
    let settle = |under_way: &mut i32| {
        let outcomes = from.recv().unwrap();
        assert!(outcomes.iter().all(|o| matches!(o, Outcome::Stored { .. })), "{outcomes:?}");
        *under_way -= 1;
    };
    for request in frames.chunks(a_request) {
        let mut batches = Vec::with_capacity(request.len());
        for bytes in request {
            let frame = Frames::of(bytes).next().unwrap().unwrap();
            let decoded = decoder.decode(&frame).unwrap();
            samples += decoded.values.len() as u64;
            let received = Timestamp(T0 + 100_000 * 1_000_000);
            batches.push(Incoming { frame: bytes.clone(), decoded, received });
        }
        let to = to.clone();
        store.append(batches, move |outcomes| to.send(outcomes).unwrap());
        under_way += 1;
        if under_way >= 8 {
            settle(&mut under_way);
        }
    }
    while under_way > 0 {
        settle(&mut under_way);
    }
    samples
}
