//! What names a series as it is pushed: its metric, device, job and labels.

use super::{KnownSeries, SampleWriter, Sink};
use model::{DeviceId, JobKey, Labels, Metric, Timestamp};
use rustc_hash::FxHasher;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

/// The metric of a sample.
#[derive(Clone, Copy, Debug)]
pub enum MetricRef<'a> {
    /// One of a source; its address is its identity.
    Static(&'static Metric),
    /// One that is declared at run time; equal ones are the same.
    Declared(&'a Arc<Metric>),
}

impl From<&'static Metric> for MetricRef<'_> {
    fn from(metric: &'static Metric) -> Self {
        Self::Static(metric)
    }
}

impl From<&&'static Metric> for MetricRef<'_> {
    fn from(metric: &&'static Metric) -> Self {
        Self::Static(metric)
    }
}

impl<'a> From<&'a Arc<Metric>> for MetricRef<'a> {
    fn from(metric: &'a Arc<Metric>) -> Self {
        Self::Declared(metric)
    }
}

impl Deref for MetricRef<'_> {
    type Target = Metric;

    fn deref(&self) -> &Metric {
        match self {
            Self::Static(metric) => metric,
            Self::Declared(metric) => metric,
        }
    }
}

/// The labels of a sample.
#[derive(Clone, Copy, Debug)]
pub(super) enum LabelsRef<'a> {
    /// Names and texts.
    Pairs(&'a [(&'a str, &'a str)]),
    /// Ready labels, with any JSON values.
    Ready(&'a Labels),
}

impl Sink {
    /// Samples of a job on a device, or without a job those of the whole device, whichever they are.
    pub fn of_both<'a>(
        &'a mut self,
        device: &'a DeviceId,
        job: Option<&'a JobKey>,
    ) -> SampleWriter<'a> {
        SampleWriter { job, ..self.of(device) }
    }
}

/// A series but for its start.
#[derive(Clone, Copy, Debug)]
pub(super) struct SeriesRef<'a> {
    pub(super) metric: MetricRef<'a>,
    /// `None`: the sink's own device.
    pub(super) device: Option<&'a DeviceId>,
    pub(super) job: Option<&'a JobKey>,
    pub(super) labels: LabelsRef<'a>,
}

impl SeriesRef<'_> {
    pub(super) fn hash(&self, start: Option<Timestamp>) -> u64 {
        let mut hasher = FxHasher::default();
        match self.metric {
            MetricRef::Static(metric) => std::ptr::from_ref(metric).hash(&mut hasher),
            MetricRef::Declared(metric) => metric.name.hash(&mut hasher),
        }
        if let Some(device) = self.device {
            device.as_str().hash(&mut hasher);
        }
        if let Some(job) = self.job {
            job.id.get().hash(&mut hasher);
            job.cluster.as_str().hash(&mut hasher);
        }
        match self.labels {
            LabelsRef::Pairs(pairs) => pairs.hash(&mut hasher),
            LabelsRef::Ready(labels) => labels.as_str().hash(&mut hasher),
        }
        start.hash(&mut hasher);
        hasher.finish()
    }

    /// Whether a series of a sink for this device is it.
    pub(super) fn is(
        &self,
        known: &KnownSeries,
        start: Option<Timestamp>,
        own_device: &DeviceId,
    ) -> bool {
        let entry = &known.entry;
        let same_metric = match (self.metric, known.of_source) {
            (MetricRef::Static(metric), Some(known)) => std::ptr::eq(known, metric),
            (MetricRef::Declared(metric), None) => {
                Arc::ptr_eq(&entry.metric, metric) || entry.metric == *metric
            }
            _ => false,
        };
        same_metric
            && entry.start == start
            && entry.device == *self.device.unwrap_or(own_device)
            && entry.job.as_ref() == self.job
            && match (self.labels, &known.pairs) {
                (LabelsRef::Pairs(pairs), Some(known)) => {
                    let mut both = known.iter().zip(pairs);
                    known.len() == pairs.len() && both.all(|(a, b)| *a.0 == *b.0 && *a.1 == *b.1)
                }
                (LabelsRef::Ready(labels), None) => entry.labels == *labels,
                _ => false,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Sink;
    use super::*;
    use model::Unit;

    static LOAD: Metric = Metric::gauge("load_1m", Unit::Count, "");

    fn declared(name: &str) -> Arc<Metric> {
        Arc::new(Metric { name: name.to_owned().into(), ..LOAD.clone() })
    }

    fn device(name: &str) -> DeviceId {
        DeviceId::new(name).unwrap()
    }

    #[test]
    fn one_sink_has_samples_of_many_devices_and_each_is_found_again() {
        let mut sink = Sink::new(device("poller-1"));
        let pdus: Vec<DeviceId> = (0..5000).map(|n| device(&format!("pdu-{n}"))).collect();
        for at in [1, 2] {
            sink.begin(Timestamp(at));
            sink.of_device().gauge(&LOAD, &[], 0.5);
            for (pdu, value) in pdus.iter().zip(0..) {
                sink.of(pdu).gauge(&LOAD, &[], f64::from(value));
            }
        }
        assert_eq!((sink.series(), sink.len()), (5001, 10_002));
        let (last, at, value) = sink.samples().last().unwrap();
        assert_eq!((last.device.as_str(), at, value), ("pdu-4999", Timestamp(2), 4999.0));
        let own = device("poller-1");
        sink.of(&own).gauge(&LOAD, &[], 0.5);
        assert_eq!(sink.series(), 5001, "its own device by name is its own device");
    }

    #[test]
    fn metrics_declared_at_run_time_are_the_same_when_they_are_equal() {
        let mut sink = Sink::new(device("n1"));
        let (power, again) = (declared("wattmetre_power_watt"), declared("wattmetre_power_watt"));
        sink.of_device().gauge(&power, &[], 1.0);
        sink.of_device().gauge(&again, &[], 2.0);
        sink.of_device().counter(&declared("pdu_energy_joules_total"), &[], 3.0, Timestamp(0));
        assert_eq!((sink.series(), sink.len()), (2, 3));
        let first = sink.samples().next().unwrap();
        assert!(Arc::ptr_eq(&first.0.metric, &power), "it is shared, not copied");
    }

    #[test]
    fn values_of_devices_have_labels_of_any_json_value_and_may_be_nan() {
        let mut sink = Sink::new(device("poller-1"));
        let (pdu, power) = (device("pdu-7"), declared("pdu_power_watt"));
        let labels = Labels::from_json(r#"{"outlet": 3}"#).unwrap();
        for value in [f64::NAN, 7.0] {
            sink.of(&pdu).reported(&power, &labels, None, value);
        }
        assert_eq!((sink.series(), sink.len(), sink.counts().all()), (1, 2, 0));
        let text = Labels::from_json(r#"{"outlet": "3"}"#).unwrap();
        sink.of(&pdu).reported(&power, &text, None, 1.0);
        assert_eq!(sink.series(), 2);
    }

    #[test]
    fn a_gap_is_of_its_device() {
        let mut sink = Sink::new(device("poller-1"));
        let pdu = device("pdu-7");
        sink.of(&pdu).gap("snmp", (Timestamp(1), Timestamp(2)), model::Cause::SourceTimeout, "");
        let gaps = sink.take_gaps();
        assert_eq!((gaps.len(), gaps[0].device.as_str()), (1, "pdu-7"));
    }
}
