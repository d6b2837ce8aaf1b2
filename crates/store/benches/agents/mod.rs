//! Generated agents: frames of batches with all their series, from a seed.

#![expect(clippy::cast_possible_truncation, reason = "small numbers of a generator")]

use model::{
    Batch, Boot, DeviceId, Kind, Labels, Metric, Origin, SeriesEntry, SeriesTable, Tick, Timestamp,
    Unit,
};
use std::sync::Arc;
use wire::Encoder;

/// The first tick.
pub(crate) const T0: i64 = 1_767_225_600_000_000;

/// Values like reference data: 40 % bursty integer counters, 30 % gauges of one decimal that change 40 % of the time,
/// 20 % plateaus of whole pages, 10 % walks of full precision.
struct Series {
    kind: u64,
    value: f64,
    random: u64,
}

impl Series {
    fn new(number: u64) -> Self {
        Self { kind: number % 10, value: 1000.0, random: number.wrapping_mul(0x9e37_79b9) | 1 }
    }

    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random >> 11
    }

    fn next(&mut self) -> f64 {
        let random = self.random();
        match self.kind {
            0..4 if random.is_multiple_of(4) => self.value += (random / 4 % 5000) as f64,
            4..7 if random % 10 < 4 => self.value = (random / 10 % 1000) as f64 / 10.0,
            7..9 if random.is_multiple_of(20) => {
                self.value = (random / 20 % 100_000) as f64 * 4096.0
            }
            9 => self.value += (random % 1_000_000) as f64 / 1e6 - 0.5 + 1e-9,
            _ => {}
        }
        self.value
    }

    fn entry(number: u64, device: &DeviceId) -> SeriesEntry {
        let (kind, divisor) = match number % 10 {
            0..4 => (Kind::Counter, 1),
            4..7 => (Kind::Gauge, 10),
            _ => (Kind::Gauge, 1),
        };
        let total = if kind == Kind::Counter { "_total" } else { "" };
        let name = format!("bench_metric_number_{}{total}", number % 100);
        let metric = Metric {
            name: name.into(),
            unit: Unit::Count,
            kind,
            help: "a help".into(),
            divisor,
            assumed: false,
        };
        let labels = Labels::new([("part", &*(number / 100).to_string())]).unwrap();
        let labels = if number < 100 { Labels::default() } else { labels };
        let start = (kind == Kind::Counter).then_some(Timestamp(T0 - 1));
        SeriesEntry { metric: Arc::new(metric), device: device.clone(), job: None, labels, start }
    }
}

/// An agent that sends all its series each tick.
pub(crate) struct Agent {
    origin: Origin,
    table: Arc<SeriesTable>,
    series: Vec<Series>,
    seq: u64,
    /// Microseconds between two ticks, and the next tick.
    period: i64,
    tick: Timestamp,
    encoder: Encoder,
}

impl Agent {
    pub(crate) fn new(number: u64, series: u64) -> Self {
        Self::ticking(number, series, Timestamp(T0), Timestamp::SECOND)
    }

    /// An agent with this first tick and period.
    pub(crate) fn ticking(number: u64, series: u64, first: Timestamp, period: i64) -> Self {
        Self::of(number, &Vec::from_iter(0..series), first, period)
    }

    /// An agent of these series; the last digit of a series' number is its kind.
    pub(crate) fn of(number: u64, series: &[u64], first: Timestamp, period: i64) -> Self {
        let name = format!("node-{number:04}");
        let device = DeviceId::new(&name).unwrap();
        let entries = series.iter().map(|n| Series::entry(*n, &device)).collect();
        let count = series.len() as u64;
        Self {
            origin: Origin::new(&name).unwrap(),
            table: Arc::new(SeriesTable { entries }),
            series: series.iter().map(|n| Series::new(n + number * count)).collect(),
            seq: 0,
            period,
            tick: first,
            encoder: Encoder::default(),
        }
    }

    /// The next batch, with this many ticks.
    pub(crate) fn frame(&mut self, ticks: i64) -> Vec<u8> {
        let count = self.series.len() as u32;
        let (mut at, mut index, mut values) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ticks {
            at.push(Tick { at: self.tick, samples: count });
            index.extend(0..count);
            values.extend(self.series.iter_mut().map(Series::next));
            self.tick = self.tick.plus(self.period);
        }
        let batch = Batch {
            origin: self.origin.clone(),
            boot: Boot([7; 16]),
            seq: self.seq,
            table: Arc::clone(&self.table),
            ticks: at,
            index,
            values,
            gaps: Vec::new(),
            jobs: Vec::new(),
        };
        self.seq += 1;
        let mut frame = Vec::new();
        self.encoder.encode(&batch, &mut frame).unwrap();
        frame
    }
}
