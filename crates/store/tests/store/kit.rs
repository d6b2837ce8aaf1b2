//! Shared senders, selections and a store in a temporary directory.

pub(crate) use conformance::{S, Spec, T0, device, job, spec};
use model::{Batch, Gap, Metric, Timestamp};
use senders::Limits;
use std::collections::BTreeSet;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Duration;
use storage::{Clock, Incoming, JobSelector, Outcome, Selector};
use store::{Disk, OpenError, Recovery, Settings, Store};
use wire::{Decoder, Encoder, Frames};

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

/// One boot of an origin; its batches are frames.
#[derive(Debug)]
pub(crate) struct Sender {
    of: conformance::Sender,
    encoder: Encoder,
    decoder: Decoder,
}

impl Deref for Sender {
    type Target = conformance::Sender;

    fn deref(&self) -> &Self::Target {
        &self.of
    }
}

impl DerefMut for Sender {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.of
    }
}

impl Sender {
    pub(crate) fn new(origin: &str, boot: u8) -> Self {
        let of = conformance::Sender::new(origin, boot);
        Self { of, encoder: Encoder::default(), decoder: Decoder::default() }
    }

    /// The next batch: samples in the given order; neighbours of one instant form one tick.
    pub(crate) fn batch(&mut self, samples: &[(Spec, i64, f64)]) -> Incoming {
        let batch = self.of.batch(samples);
        self.incoming(&batch)
    }

    pub(crate) fn batch_with(&mut self, samples: &[(Spec, i64, f64)], gaps: Vec<Gap>) -> Incoming {
        let batch = self.of.batch_with(samples, gaps);
        self.incoming(&batch)
    }

    /// The next batch, with other meanings of its metrics.
    pub(crate) fn batch_as(
        &mut self,
        samples: &[(Spec, i64, f64)],
        change: impl Fn(&mut Metric),
    ) -> Incoming {
        let batch = self.of.batch_as(samples, change);
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

pub(crate) const STORED: Outcome = Outcome::Stored { samples_rejected: 0, reason: String::new() };

/// Small limits, so that a test reaches them.
pub(crate) fn small() -> Settings {
    Settings {
        segment_bytes: 4 << 10,
        row_group_rows: 64,
        page_rows: 16,
        senders: Limits { missing_grace_us: 0, ..Limits::default() },
        merge_blocks: 2,
        background_maintenance: false,
        ..Settings::default()
    }
}

/// The same with other limits of senders.
pub(crate) fn limited(change: impl FnOnce(&mut Limits)) -> Settings {
    let mut settings = small();
    change(&mut settings.senders);
    settings
}

pub(crate) fn open(dir: &Path, settings: Settings) -> (Store, Recovery) {
    // A program started by another test inherits this one's lock between its fork and its exec.
    for _ in 0..1000 {
        match Store::open(dir, settings.clone(), TestClock::new().clock()) {
            Err(OpenError::Locked { .. }) => std::thread::sleep(Duration::from_millis(10)),
            opened => return opened.unwrap(),
        }
    }
    panic!("{} is locked for 10 s", dir.display());
}

pub(crate) fn open_on(
    disk: &Arc<dyn Disk>,
    settings: Settings,
) -> Result<(Store, Recovery), OpenError> {
    Store::open_on(Arc::clone(disk), Path::new("/data"), settings, TestClock::new().clock())
}

/// A sample as a scan returns it: series as text, time, value's bits, start.
pub(crate) type Row = (String, i64, u64, Option<i64>);

pub(crate) fn rows(store: &Store, selector: &Selector, from: i64, to: i64) -> Vec<Row> {
    let mut rows = Vec::new();
    for chunk in store.scan(selector, Timestamp(from), Timestamp(to)) {
        let chunk = chunk.unwrap();
        let series = name(&chunk.series.series);
        assert!(chunk.times.is_sorted(), "{series}");
        assert_eq!(chunk.times.len(), chunk.values.len());
        assert!(!chunk.times.is_empty() && chunk.times.len() <= storage::Chunk::ROWS_MAX);
        assert_eq!(chunk.starts[0].0, 0);
        assert!(chunk.starts.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 != w[1].1));
        let found = chunk.rows().map(|(at, value, start)| {
            (series.clone(), at.0, value.to_bits(), start.map(|start| start.0))
        });
        rows.extend(found);
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

/// A sample as it was sent, as a [`Row`].
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

/// A small generator with a printed seed, so that a failure can be reproduced.
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
