//! A store and a registry with test data. Shared by the tests of `query` and `sql` and by the bench.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(dead_code, reason = "each test uses a part of it")]

use control::{DemandLimits, DemandStore};
use jobs::{Limits, Registry};
use model::{
    Batch, Boot, ClusterId, DeviceId, Gap, JobEvent, JobId, JobKey, Kind, Labels, Metric, Origin,
    SeriesEntry, SeriesTable, Tick, Timestamp, Unit,
};
use query::{QueryEngine, Settings};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use storage::{Incoming, Outcome, Storage};
use store::Store;
use wire::{Decoder, Encoder, Frames};

/// 2026-01-06T00:00:00Z, the day of all test data.
pub(crate) const DAY: i64 = 1_767_657_600;

/// The instant that many seconds after the start of the day.
pub(crate) fn at(second: f64) -> Timestamp {
    let micros = Timestamp::parse(&format!("{second:.6}")).unwrap().0;
    Timestamp::from_seconds(DAY).plus(micros)
}

pub(crate) fn device(name: &str) -> DeviceId {
    DeviceId::new(name).unwrap()
}

pub(crate) fn key(cluster: &str, id: i64) -> JobKey {
    JobKey { cluster: ClusterId::new(cluster).unwrap(), id: JobId::new(id).unwrap() }
}

/// A store, a registry, and their directory.
pub(crate) struct Lab {
    pub(crate) store: Arc<Store>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) demand: Arc<DemandStore>,
    /// Another store that receives the same batches.
    pub(crate) other: Option<Arc<dyn Storage>>,
    seq: AtomicU64,
    dir: tempfile::TempDir,
}

/// A series and its samples.
pub(crate) struct TestSeries<'a> {
    pub(crate) device: &'a str,
    pub(crate) metric: &'a str,
    pub(crate) kind: Kind,
    pub(crate) unit: Unit,
    pub(crate) job: Option<JobKey>,
    pub(crate) labels: &'a [(&'a str, &'a str)],
    /// Labels as JSON, instead of `labels`.
    pub(crate) json_labels: Option<&'a str>,
    /// The counter's start, in seconds of the day.
    pub(crate) start: Option<f64>,
    /// Seconds of the day, and values.
    pub(crate) samples: &'a [(f64, f64)],
}

impl Default for TestSeries<'_> {
    fn default() -> Self {
        Self {
            device: "n1",
            metric: "load_1m",
            kind: Kind::Gauge,
            unit: Unit::Count,
            job: None,
            labels: &[],
            json_labels: None,
            start: None,
            samples: &[],
        }
    }
}

impl Lab {
    pub(crate) fn new() -> Self {
        Self::of_rows(Limits::default().rows_max)
    }

    /// A lab whose registry answers with `rows_max` rows at most.
    pub(crate) fn of_rows(rows_max: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(|| at(7200.0));
        let load = Metric::gauge("load_1m", Unit::Count, "Load.");
        let declared = storage::DeclaredMetrics::new([load]);
        let senders = senders::Limits { declared, ..senders::Limits::default() };
        let settings = store::Settings { senders, ..store::Settings::default() };
        let (store, _) = Store::open(&dir.path().join("store"), settings, clock).unwrap();
        let users = || jobs::Users::parse(b"alice:x:1000:1000::/home/alice:/bin/sh\n");
        let path = dir.path().join("registry.sqlite");
        let limits = Limits { rows_max, ..Limits::default() };
        let registry = Registry::open(&path, limits, users).unwrap();
        let demand = DemandStore::open(&dir.path().join("demand.sqlite"), DemandLimits::default());
        let (store, registry) = (Arc::new(store), Arc::new(registry));
        let (demand, seq) = (Arc::new(demand.unwrap()), AtomicU64::new(0));
        Self { store, registry, demand, other: None, seq, dir }
    }

    /// Another registry with a limit of `rows_max` rows per answer.
    pub(crate) fn registry_of_rows(&self, rows_max: usize) -> Arc<Registry> {
        let users = || jobs::Users::parse(b"alice:x:1000:1000::/home/alice:/bin/sh\n");
        let path = self.dir.path().join("another.sqlite");
        let limits = Limits { rows_max, ..Limits::default() };
        Arc::new(Registry::open(&path, limits, users).unwrap())
    }

    /// The directory of the lab.
    pub(crate) fn path(&self) -> &std::path::Path {
        self.dir.path()
    }

    pub(crate) fn engine(&self, settings: Settings) -> QueryEngine {
        self.engine_of(Arc::<Store>::clone(&self.store), settings)
    }

    /// Queries of another store.
    pub(crate) fn engine_of(&self, store: Arc<dyn Storage>, settings: Settings) -> QueryEngine {
        QueryEngine::new(store, Arc::clone(&self.registry), settings)
            .with_demand(Arc::clone(&self.demand))
    }

    /// Stores the series in one batch.
    pub(crate) fn put(&self, found: &[TestSeries<'_>]) {
        self.put_from("lab", 7200.0, found);
    }

    /// Stores the series in one batch of an origin, received at this second of the day.
    pub(crate) fn put_from(&self, origin: &str, received: f64, found: &[TestSeries<'_>]) {
        let mut rows: Vec<(Timestamp, u32, f64)> = Vec::new();
        let mut entries = Vec::new();
        for found in found {
            let place = u32::try_from(entries.len()).unwrap();
            let name = found.metric.to_owned();
            let help = format!("The meaning of {name}.");
            let metric = Metric {
                name: name.into(),
                unit: found.unit,
                kind: found.kind,
                help: help.into(),
                divisor: 1000,
                assumed: false,
            };
            entries.push(SeriesEntry {
                metric: Arc::new(metric),
                device: device(found.device),
                job: found.job.clone(),
                labels: match found.json_labels {
                    Some(json) => Labels::from_json(json).unwrap(),
                    None => Labels::new(found.labels.iter().copied()).unwrap(),
                },
                start: found.start.map(at),
            });
            rows.extend(found.samples.iter().map(|(second, value)| (at(*second), place, *value)));
        }
        rows.sort_by_key(|row| (row.0, row.1));
        let ticks = rows.chunk_by(|a, b| a.0 == b.0);
        let tick = |rows: &[(Timestamp, u32, f64)]| Tick {
            at: rows.first().unwrap().0,
            samples: u32::try_from(rows.len()).unwrap(),
        };
        let batch = Batch {
            origin: Origin::new(origin).unwrap(),
            ticks: ticks.map(tick).collect(),
            index: rows.iter().map(|row| row.1).collect(),
            values: rows.iter().map(|row| row.2).collect(),
            table: Arc::new(SeriesTable { entries }),
            ..self.batch()
        };
        self.store(batch, at(received));
    }

    /// Stores a current sample of a device, from another origin than the lab's.
    pub(crate) fn put_of(&self, origin: &str, node: &str) {
        let metric = Metric::gauge("load_1m", Unit::Count, "Load.");
        let entry = SeriesEntry {
            metric: Arc::new(metric),
            device: device(node),
            job: None,
            labels: Labels::default(),
            start: None,
        };
        let batch = Batch {
            origin: Origin::new(origin).unwrap(),
            ticks: vec![Tick { at: at(7199.0), samples: 1 }],
            index: vec![0],
            values: vec![1.0],
            table: Arc::new(SeriesTable { entries: vec![entry] }),
            ..self.batch()
        };
        self.store(batch, at(7200.0));
    }

    /// Stores a gap.
    pub(crate) fn put_gap(&self, gap: Gap) {
        self.store(Batch { gaps: vec![gap], ..self.batch() }, at(7200.0));
    }

    /// Stores a gap that its own origin reports.
    pub(crate) fn put_gap_from(&self, gap: Gap) {
        let origin = gap.origin.clone();
        self.store(Batch { origin, gaps: vec![gap], ..self.batch() }, at(7200.0));
    }

    fn batch(&self) -> Batch {
        Batch {
            origin: Origin::new("lab").unwrap(),
            boot: Boot([1; 16]),
            seq: self.seq.fetch_add(1, Ordering::Relaxed),
            table: Arc::new(SeriesTable::default()),
            ticks: Vec::new(),
            index: Vec::new(),
            values: Vec::new(),
            gaps: Vec::new(),
            jobs: Vec::new(),
        }
    }

    fn store(&self, batch: Batch, received: Timestamp) {
        let mut bytes = Vec::new();
        Encoder::default().encode(&batch, &mut bytes).unwrap();
        let frame = Frames::of(&bytes).next().unwrap().unwrap();
        let decoded = Decoder::default().decode(&frame).unwrap();
        let incoming = Incoming { frame: bytes, decoded, received };
        let own: &dyn Storage = &*self.store;
        for store in [Some(own), self.other.as_deref()].into_iter().flatten() {
            let (sender, found) = sync_channel(1);
            let done = move |outcomes| sender.send(outcomes).unwrap();
            store.append(vec![incoming.clone()], Box::new(done));
            let outcomes = found.recv().unwrap();
            let fine = |o: &Outcome| matches!(o, Outcome::Stored { samples_rejected: 0, .. });
            assert!(outcomes.iter().all(fine), "{outcomes:?}");
        }
    }

    /// Reports that a node observed a job between two seconds of the day.
    pub(crate) fn job(&self, key: &JobKey, node: &str, uid: u32, start: f64, stop: Option<f64>) {
        let event = JobEvent {
            key: key.clone(),
            display_id: key.id.to_string().into(),
            device: device(node),
            user: None,
            uid: Some(uid),
            start: at(start),
            stop: stop.map(at),
            monitor: None,
            oom_kills: Vec::new(),
        };
        let applied = self.registry.apply(&[event], at(7200.0)).unwrap();
        assert_eq!(applied.rejected, 0);
    }
}
