//! The metrics about polling itself, of each device.

use crate::descriptions::{Description, Target};
use crate::polling::Exchange;
use model::{Cause, DeviceId, Kind, Labels, Metric, Timestamp, Unit};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A value of a device about polling it.
#[derive(Debug)]
pub(super) struct PollValue<'a> {
    pub(super) device: &'a DeviceId,
    pub(super) metric: &'a Arc<Metric>,
    pub(super) labels: Labels,
    /// The start of a counter.
    pub(super) start: Option<Timestamp>,
    pub(super) value: f64,
}

/// These metrics of one target.
#[derive(Debug)]
pub(super) struct PollMetrics {
    labels: Labels,
    begun: Timestamp,
    success: Arc<Metric>,
    duration: Arc<Metric>,
    lateness: Arc<Metric>,
    errors: Arc<Metric>,
    shared_texts: Arc<Metric>,
    /// Values of each device whose text has no series of its own.
    texts: BTreeMap<DeviceId, u32>,
    /// Failures of each device and cause.
    counts: BTreeMap<(DeviceId, Cause), u32>,
}

impl PollMetrics {
    pub(super) fn new(target: &Target, begun: Timestamp) -> Self {
        let labels = [("protocol", target.protocol.to_string()), ("target", target.to_string())];
        let labels = Labels::new(labels.iter().map(|(name, text)| (*name, &**text)));
        let counter = |name, help| {
            let gauge = Metric::gauge(name, Unit::Count, help);
            Arc::new(Metric { kind: Kind::Counter, ..gauge })
        };
        let seconds = |name, help| Arc::new(Metric::gauge(name, Unit::Seconds, help));
        Self {
            labels: labels.unwrap_or_default(),
            begun,
            success: Arc::new(Metric::gauge(
                "poll_success",
                Unit::Count,
                "1 if the latest poll returned a value of the device, else 0.",
            )),
            duration: seconds("poll_duration_seconds", "Duration of the exchange with the device."),
            lateness: seconds(
                "poll_lateness_seconds",
                "Time from the planned to the actual begin of the exchange.",
            ),
            errors: counter(
                "poll_errors_total",
                "Failures by cause, since the poller began: of a whole exchange, or of one value.",
            ),
            shared_texts: counter(
                "poll_shared_texts_total",
                "Values whose text shares a series, because the metric had 64 texts on that day.",
            ),
            texts: BTreeMap::new(),
            counts: BTreeMap::new(),
        }
    }

    /// Counts values whose text shares a series.
    pub(super) fn share_texts(&mut self, moved: BTreeMap<DeviceId, u32>) {
        for (device, more) in moved {
            let count = self.texts.entry(device).or_default();
            *count = count.saturating_add(more);
        }
    }

    /// The values after an exchange of the descriptions `due`.
    pub(super) fn values<'a>(
        &'a mut self,
        due: &[&'a Description],
        exchange: &Exchange,
        (duration_seconds, lateness_seconds): (f64, f64),
    ) -> Vec<PollValue<'a>> {
        let mut devices: BTreeMap<&DeviceId, (usize, Vec<Cause>)> = BTreeMap::new();
        for description in due {
            devices.entry(&description.device).or_default().0 += 1;
        }
        for (place, failure) in &exchange.failures {
            if let Some(found) = due.get(*place).and_then(|one| devices.get_mut(&one.device)) {
                found.1.push(failure.cause);
            }
        }
        let mut success = Vec::new();
        for (device, (requested, mut causes)) in devices {
            let is_good = causes.len() < requested;
            success.push((device, is_good));
            if !is_good {
                causes.dedup();
            }
            for cause in causes {
                let count = self.counts.entry((device.clone(), cause)).or_default();
                *count = count.saturating_add(1);
            }
        }
        let mut values = Vec::new();
        for (device, is_good) in success {
            let gauges = [
                (&self.success, f64::from(u8::from(is_good))),
                (&self.duration, duration_seconds),
                (&self.lateness, lateness_seconds),
            ];
            let gauge = |(metric, value)| PollValue {
                device,
                metric,
                labels: self.labels.clone(),
                start: None,
                value,
            };
            values.extend(gauges.into_iter().map(gauge));
            values.extend(self.texts.get(device).map(|count| PollValue {
                device,
                metric: &self.shared_texts,
                labels: self.labels.clone(),
                start: Some(self.begun),
                value: f64::from(*count),
            }));
            for ((_, cause), count) in self.counts.iter().filter(|((of, _), _)| of == device) {
                let labels = self.labels.with("cause", cause.words());
                values.push(PollValue {
                    device,
                    metric: &self.errors,
                    labels: labels.unwrap_or_default(),
                    start: Some(self.begun),
                    value: f64::from(*count),
                });
            }
        }
        values
    }
}
