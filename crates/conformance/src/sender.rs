//! Senders and their batches.

use crate::subject::{Query, Sample};
use model::{
    Batch, Boot, ClusterId, DeviceId, Gap, JobEvent, JobId, JobKey, Kind, Labels, Metric, Origin,
    SeriesEntry, SeriesTable, Tick, Timestamp, Unit,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// 2026-01-01, the start of the checks' clocks.
pub const T0: i64 = 1_767_225_600_000_000;
/// Microseconds in a second.
pub const S: i64 = Timestamp::SECOND;

/// A series in short form: device, metric, job, cpu label, start. A metric with a name that ends in `_total`
/// is a counter in thousandths, any other a gauge in tenths.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Spec {
    /// The device.
    pub device: &'static str,
    /// The metric.
    pub metric: &'static str,
    /// The job of the cluster `oar`, if any.
    pub job: Option<i64>,
    /// The label `cpu`.
    pub cpu: Option<u32>,
    /// The counter's start, in microseconds since 1970.
    pub start: Option<i64>,
}

/// A series of a whole device without a start.
pub const fn spec(device: &'static str, metric: &'static str) -> Spec {
    Spec { device, metric, job: None, cpu: None, start: None }
}

/// A job of the cluster `oar`.
pub fn job(id: i64) -> JobKey {
    JobKey { cluster: ClusterId::new("oar").unwrap(), id: JobId::new(id).unwrap() }
}

/// A device of this name.
pub fn device(name: &str) -> DeviceId {
    DeviceId::new(name).unwrap()
}

impl Spec {
    /// Its entry in a batch's table.
    pub fn entry(&self) -> SeriesEntry {
        let total = self.metric.ends_with("_total");
        let (kind, divisor) = if total { (Kind::Counter, 1000) } else { (Kind::Gauge, 10) };
        let metric = Metric {
            name: self.metric.into(),
            unit: Unit::Count,
            kind,
            help: format!("what {} counts", self.metric).into(),
            divisor,
            assumed: false,
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

    /// A sample of it, as a store returns it.
    pub(crate) fn sample(&self, at: i64, value: f64) -> Sample {
        let start = self.start.map(Timestamp);
        Sample { series: self.entry().series(), at: Timestamp(at), value, start }
    }
}

/// One boot of an origin.
#[derive(Debug)]
pub struct Sender {
    /// The origin.
    pub origin: Origin,
    /// The boot.
    pub boot: Boot,
    /// The number of the next batch.
    pub seq: u64,
    /// Job events of the next batch.
    pub jobs: Vec<JobEvent>,
}

impl Sender {
    /// A boot that has sent nothing yet.
    pub fn new(origin: &str, boot: u8) -> Self {
        let origin = Origin::new(origin).unwrap();
        Self { origin, boot: Boot([boot; 16]), seq: 0, jobs: Vec::new() }
    }

    /// The next batch: samples in the given order; neighbours of one instant form one tick.
    pub fn batch(&mut self, samples: &[(Spec, i64, f64)]) -> Batch {
        self.batch_with(samples, Vec::new())
    }

    /// The next batch, with gaps.
    pub fn batch_with(&mut self, samples: &[(Spec, i64, f64)], gaps: Vec<Gap>) -> Batch {
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
        batch
    }

    /// The next batch, with other meanings of its metrics.
    pub fn batch_as(
        &mut self,
        samples: &[(Spec, i64, f64)],
        change: impl Fn(&mut Metric),
    ) -> Batch {
        let mut batch = self.batch(samples);
        let entries = batch.table.entries.iter().cloned().map(|mut entry| {
            change(Arc::make_mut(&mut entry.metric));
            entry
        });
        batch.table = Arc::new(SeriesTable { entries: entries.collect() });
        batch
    }
}

/// Samples as a store returns them: by series, then time; values of one instant in order of arrival.
pub(crate) fn in_order(samples: &[(Spec, i64, f64)]) -> Vec<Sample> {
    let mut found: Vec<Sample> =
        samples.iter().map(|(spec, at, value)| spec.sample(*at, *value)).collect();
    found.sort_by(|a, b| (&a.series, a.at).cmp(&(&b.series, b.at)));
    found
}

/// All samples of a device.
pub(crate) fn of_device(name: &str) -> Query {
    Query { devices: Some(BTreeSet::from([device(name)])), ..Query::default() }
}
