//! Senders, selections and a store in a box.

use model::{
    Batch, Boot, ClusterId, DeviceId, Gap, JobEvent, JobId, JobKey, Kind, Labels, Metric, Origin,
    SeriesEntry, SeriesTable, Tick, Timestamp, Unit,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::sync_channel;
use store::{
    Clock, Disk, Incoming, JobSelector, OpenError, Outcome, Recovery, Selector, Settings, Store,
};
use wire::{Decoder, Encoder, Frames};

/// 2026-01-01, where the tests' clocks begin.
pub(crate) const T0: i64 = 1_767_225_600_000_000;
/// Microseconds in a second.
pub(crate) const S: i64 = 1_000_000;

/// A clock that stands still until it is moved.
#[derive(Clone, Debug)]
pub(crate) struct TestClock(Arc<AtomicI64>);

impl TestClock {
    pub(crate) fn new() -> Self {
        Self(Arc::new(AtomicI64::new(T0)))
    }

    pub(crate) fn set(&self, at: i64) {
        self.0.store(at, Ordering::SeqCst);
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }

    pub(crate) fn clock(&self) -> Clock {
        let clock = self.clone();
        Arc::new(move || clock.now())
    }
}

/// A series, in short: device, metric, job, cpu label, start.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Spec {
    pub(crate) device: &'static str,
    pub(crate) metric: &'static str,
    pub(crate) job: Option<i64>,
    pub(crate) cpu: Option<u32>,
    pub(crate) start: Option<i64>,
}

pub(crate) fn spec(device: &'static str, metric: &'static str) -> Spec {
    Spec { device, metric, job: None, cpu: None, start: None }
}

pub(crate) fn job(id: i64) -> JobKey {
    JobKey { cluster: ClusterId::new("oar").unwrap(), id: JobId::new(id).unwrap() }
}

pub(crate) fn device(name: &str) -> DeviceId {
    DeviceId::new(name).unwrap()
}

impl Spec {
    pub(crate) fn entry(&self) -> SeriesEntry {
        let total = self.metric.ends_with("_total");
        let (kind, divisor) = if total { (Kind::Counter, 1000) } else { (Kind::Gauge, 10) };
        let metric = Metric {
            name: self.metric.into(),
            unit: Unit::Count,
            kind,
            help: format!("what {} counts", self.metric).into(),
            divisor,
        };
        let labels = self.cpu.map(|cpu| Labels::new([("cpu", &*cpu.to_string())]).unwrap());
        SeriesEntry {
            metric: Arc::new(metric),
            device: device(self.device),
            job: self.job.map(job),
            labels: labels.unwrap_or_default(),
            start: self.start.map(Timestamp),
        }
    }
}

/// One start of an origin.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) origin: Origin,
    pub(crate) boot: Boot,
    pub(crate) seq: u64,
    /// What the next batch tells of jobs.
    pub(crate) jobs: Vec<JobEvent>,
    encoder: Encoder,
    decoder: Decoder,
}

impl Sender {
    pub(crate) fn new(origin: &str, boot: u8) -> Self {
        Self {
            origin: Origin::new(origin).unwrap(),
            boot: Boot([boot; 16]),
            seq: 0,
            jobs: Vec::new(),
            encoder: Encoder::default(),
            decoder: Decoder::default(),
        }
    }

    /// The next batch: samples in the order given, neighbours of one instant being one tick.
    pub(crate) fn batch(&mut self, samples: &[(Spec, i64, f64)]) -> Incoming {
        self.batch_with(samples, Vec::new())
    }

    pub(crate) fn batch_with(&mut self, samples: &[(Spec, i64, f64)], gaps: Vec<Gap>) -> Incoming {
        let specs: BTreeSet<&Spec> = samples.iter().map(|(spec, ..)| spec).collect();
        let places: BTreeMap<&Spec, u32> = specs.iter().copied().zip(0..).collect();
        let table = SeriesTable { entries: specs.iter().map(|spec| spec.entry()).collect() };
        let mut ticks: Vec<Tick> = Vec::new();
        for (_, at, _) in samples {
            match ticks.last_mut() {
                Some(tick) if tick.at.0 == *at => tick.samples += 1,
                _ => ticks.push(Tick { at: Timestamp(*at), samples: 1 }),
            }
        }
        let batch = Batch {
            origin: self.origin.clone(),
            boot: self.boot,
            seq: self.seq,
            table: Arc::new(table),
            ticks,
            index: samples.iter().map(|(spec, ..)| places[spec]).collect(),
            values: samples.iter().map(|(.., value)| *value).collect(),
            gaps,
            jobs: std::mem::take(&mut self.jobs),
        };
        self.seq += 1;
        self.incoming(&batch)
    }

    /// The next batch, whose metrics mean something else.
    pub(crate) fn batch_as(
        &mut self,
        samples: &[(Spec, i64, f64)],
        change: impl Fn(&mut Metric),
    ) -> Incoming {
        let mut batch = self.batch(samples).decoded.into_batch().unwrap();
        let entries = batch.table.entries.iter().cloned().map(|mut entry| {
            change(Arc::make_mut(&mut entry.metric));
            entry
        });
        batch.table = Arc::new(SeriesTable { entries: entries.collect() });
        self.incoming(&batch)
    }

    pub(crate) fn incoming(&mut self, batch: &Batch) -> Incoming {
        let mut frame = Vec::new();
        self.encoder.encode(batch, &mut frame).unwrap();
        let decoded = {
            let one = Frames::of(&frame).next().unwrap().unwrap();
            self.decoder.decode(&one).unwrap()
        };
        let newest = batch.ticks.iter().map(|tick| tick.at.0).max().unwrap_or(T0);
        Incoming { frame, decoded, received: Timestamp(newest.max(T0)) }
    }
}

/// Appends and waits.
pub(crate) fn append(store: &Store, batches: Vec<Incoming>) -> Vec<Outcome> {
    let (to, from) = sync_channel(1);
    store.append(batches, move |outcomes| to.send(outcomes).unwrap());
    from.recv().unwrap()
}

pub(crate) const STORED: Outcome = Outcome::Stored { samples_refused: 0, reason: String::new() };

/// Small limits, so that a test reaches them.
pub(crate) fn small() -> Settings {
    Settings {
        segment_bytes: 4 << 10,
        row_group_rows: 64,
        page_rows: 16,
        hole_grace_us: 0,
        merge_blocks: 2,
        tends: false,
        ..Settings::default()
    }
}

pub(crate) fn open(dir: &Path, settings: Settings) -> (Store, Recovery) {
    Store::open(dir, settings, TestClock::new().clock()).unwrap()
}

pub(crate) fn open_on(
    disk: &Arc<dyn Disk>,
    settings: Settings,
) -> Result<(Store, Recovery), OpenError> {
    Store::open_on(Arc::clone(disk), Path::new("/data"), settings, TestClock::new().clock())
}

/// A sample as a scan tells it: series as text, time, value's bits, start.
pub(crate) type Row = (String, i64, u64, Option<i64>);

pub(crate) fn rows(store: &Store, selector: &Selector, from: i64, to: i64) -> Vec<Row> {
    let mut rows = Vec::new();
    for chunk in store.scan(selector, Timestamp(from), Timestamp(to)) {
        let chunk = chunk.unwrap();
        let series = name(&chunk.series.series);
        assert!(chunk.times.is_sorted(), "{series}");
        assert_eq!(chunk.times.len(), chunk.values.len());
        assert!(!chunk.times.is_empty() && chunk.times.len() <= store::Chunk::ROWS_MAX);
        assert_eq!(chunk.starts[0].0, 0);
        assert!(chunk.starts.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 != w[1].1));
        let told = chunk.rows().map(|(at, value, start)| {
            (series.clone(), at.0, value.to_bits(), start.map(|start| start.0))
        });
        rows.extend(told);
    }
    rows
}

pub(crate) fn all(store: &Store) -> Vec<Row> {
    rows(store, &Selector::default(), i64::MIN, i64::MAX)
}

pub(crate) fn name(series: &model::Series) -> String {
    let job = series.job.as_ref().map_or(String::new(), ToString::to_string);
    format!("{}/{}/{job}/{}", series.device, series.metric, series.labels)
}

/// A sample as it was sent, in the words of [`Row`].
pub(crate) fn row((spec, at, value): &(Spec, i64, f64)) -> Row {
    let entry = spec.entry();
    (name(&entry.series()), *at, value.to_bits(), spec.start)
}

pub(crate) fn of_device(name: &str) -> Selector {
    Selector { devices: Some(BTreeSet::from([device(name)])), ..Selector::default() }
}

pub(crate) fn of_job(selector: JobSelector) -> Selector {
    Selector { job: selector, ..Selector::default() }
}

/// A small generator with a seed that is printed, so that a failure can be had again.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn seeded() -> Self {
        let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or_else(|| {
            u64::from(std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos()) | 1
        });
        println!("SEED={seed}");
        Self(seed)
    }

    /// Marsaglia, "Xorshift RNGs", 2003.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}
