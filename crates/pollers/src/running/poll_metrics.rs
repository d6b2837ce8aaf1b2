//! The metrics about polling itself, of each device.

use crate::descriptions::{Description, Target};
use crate::polling::Exchange;
use model::{Cause, DeviceId, Labels, Metric, Timestamp, Unit};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// A value of a device about polling it.
#[derive(Debug)]
pub(super) struct PollValue<'a> {
    pub(super) device: Cow<'a, DeviceId>,
    pub(super) metric: &'a Arc<Metric>,
    pub(super) labels: Labels,
    /// The start of a counter.
    pub(super) start: Option<Timestamp>,
    pub(super) value: f64,
}

/// The definitions. All targets share them.
#[derive(Debug)]
struct Definitions {
    success: Arc<Metric>,
    period: Arc<Metric>,
    duration: Arc<Metric>,
    lateness: Arc<Metric>,
    last_success: Arc<Metric>,
    errors: Arc<Metric>,
    shared_texts: Arc<Metric>,
}

static DEFINITIONS: LazyLock<Definitions> = LazyLock::new(|| {
    let counter = |name, help| Arc::new(Metric::counter(name, Unit::Count, help));
    let gauge = |name, unit, help| Arc::new(Metric::gauge(name, unit, help));
    Definitions {
        success: gauge(
            "poll_success",
            Unit::Count,
            "1 if the latest poll returned a value of the device, else 0.",
        ),
        period: gauge(
            "poll_period_seconds",
            Unit::Seconds,
            "Period of the requests for the device: the shortest of its descriptions, 0 after the last request.",
        ),
        duration: gauge(
            "poll_duration_seconds",
            Unit::Seconds,
            "Duration of the exchange with the device.",
        ),
        lateness: gauge(
            "poll_lateness_seconds",
            Unit::Seconds,
            "Time from the planned to the actual begin of the exchange.",
        ),
        last_success: gauge(
            "poll_last_success_timestamp_seconds",
            Unit::Seconds,
            "While polls fail: the time since 1970 of the latest one that returned a value, if the poller saw one.",
        ),
        errors: counter(
            "poll_errors_total",
            "Failures by cause, since the poller began: of a whole exchange, of one value, of one line of an exposition, or of one metric that an exporter's list names and it has not.",
        ),
        shared_texts: counter(
            "poll_shared_texts_total",
            "Values whose text shares a series, because the metric had 64 texts on that day.",
        ),
    }
});

/// These metrics of one target.
#[derive(Debug)]
pub(super) struct PollMetrics {
    labels: Labels,
    begun: Timestamp,
    /// Number of values of each device in the shared series of texts.
    texts: BTreeMap<DeviceId, u32>,
    /// The shortest period of each device.
    periods: HashMap<DeviceId, Duration>,
    /// Instant of the latest value of each device.
    good: HashMap<DeviceId, Timestamp>,
    /// Failures of each device and cause.
    counts: BTreeMap<(DeviceId, Cause), u32>,
}

impl PollMetrics {
    pub(super) fn new(begun: Timestamp) -> Self {
        Self {
            labels: Labels::default(),
            begun,
            texts: BTreeMap::new(),
            periods: HashMap::new(),
            good: HashMap::new(),
            counts: BTreeMap::new(),
        }
    }

    /// Sets the labels. Targets of one address differ in the user or the session, which no label may show: their number
    /// distinguishes them.
    pub(super) fn set_target(&mut self, target: &Target, nth_of_address: usize) {
        let address = match nth_of_address {
            0 => target.to_string(),
            before => format!("{target} ({})", before + 1),
        };
        let labels = [("protocol", target.protocol.to_string()), ("target", address)];
        let labels = Labels::new(labels.iter().map(|(name, text)| (*name, &**text)));
        self.labels = labels.unwrap_or_default();
    }

    /// Sets the shortest period of each device that is polled now. Returns the values of devices that had another
    /// period: without them, a device with a longer period would look unpolled until its next poll. The period of a device
    /// that is not polled any more is 0.
    pub(super) fn set_periods<'a>(
        &mut self,
        all: impl Iterator<Item = (&'a Description, Option<Duration>)>,
    ) -> Vec<PollValue<'_>> {
        let before = std::mem::take(&mut self.periods);
        for (description, period) in all {
            let Some(period) = period else { continue };
            let shortest = self.periods.entry(description.device.clone()).or_insert(period);
            *shortest = period.min(*shortest);
        }
        let changed = before.into_iter().filter_map(|(device, before)| {
            let period = self.periods.get(&device).copied().unwrap_or_default();
            (period != before).then_some((device, period))
        });
        let value = |(device, period): (DeviceId, Duration)| PollValue {
            device: Cow::Owned(device),
            metric: &DEFINITIONS.period,
            labels: self.labels.clone(),
            start: None,
            value: period.as_secs_f64(),
        };
        changed.map(value).collect()
    }

    /// Counts values in the shared series of texts.
    pub(super) fn share_texts(&mut self, moved: BTreeMap<DeviceId, u32>) {
        for (device, more) in moved {
            let count = self.texts.entry(device).or_default();
            *count = count.saturating_add(more);
        }
    }

    /// Counts values of series that are rejected.
    pub(super) fn reject_series(&mut self, device: &DeviceId, count: u32) {
        let rejected = self.counts.entry((device.clone(), Cause::SeriesRejected)).or_default();
        *rejected = rejected.saturating_add(count);
    }

    /// The values after an exchange of the descriptions `due`.
    pub(super) fn values<'a>(
        &'a mut self,
        due: &[&'a Description],
        exchange: &Exchange,
        times_seconds: (f64, f64),
    ) -> Vec<PollValue<'a>> {
        let devices = self.count(due, exchange);
        let times_seconds = (!exchange.is_untried).then_some(times_seconds);
        let mut values = Vec::new();
        for (device, is_good) in devices {
            values.extend(self.gauges(device, is_good, times_seconds));
            values.extend(self.texts.get(device).map(|count| PollValue {
                device: Cow::Borrowed(device),
                metric: &DEFINITIONS.shared_texts,
                labels: self.labels.clone(),
                start: Some(self.begun),
                value: f64::from(*count),
            }));
            for ((_, cause), count) in self.counts.iter().filter(|((of, _), _)| of == device) {
                let labels = self.labels.with("cause", cause.words());
                values.push(PollValue {
                    device: Cow::Borrowed(device),
                    metric: &DEFINITIONS.errors,
                    labels: labels.unwrap_or_default(),
                    start: Some(self.begun),
                    value: f64::from(*count),
                });
            }
        }
        values
    }

    /// Counts the failures. Returns the devices, and whether the exchange returned a value of each.
    fn count<'a>(
        &mut self,
        due: &[&'a Description],
        exchange: &Exchange,
    ) -> Vec<(&'a DeviceId, bool)> {
        let mut devices: BTreeMap<&DeviceId, (usize, Vec<Cause>)> = BTreeMap::new();
        for description in due {
            devices.entry(&description.device).or_default().0 += 1;
        }
        // The good ones remain. A failure is counted once per attempt.
        for (nth, (place, failure)) in exchange.failures.iter().enumerate() {
            if let Some(found) = due.get(*place).and_then(|one| devices.get_mut(&one.device)) {
                found.0 = found.0.saturating_sub(1);
                found.1.extend((nth >= exchange.untried).then_some(failure.cause));
            }
        }
        for (place, lines) in &exchange.other_errors {
            let Some(description) = due.get(*place) else { continue };
            let of_device = (description.device.clone(), Cause::SourceBroken);
            let count = self.counts.entry(of_device).or_default();
            *count = count.saturating_add(*lines);
        }
        let mut counted = Vec::new();
        for (device, (good, mut causes)) in devices {
            let is_good = good > 0;
            counted.push((device, is_good));
            if is_good {
                self.good.insert(device.clone(), exchange.at);
            } else {
                causes.dedup();
            }
            for cause in causes {
                let count = self.counts.entry((device.clone(), cause)).or_default();
                *count = count.saturating_add(1);
            }
        }
        counted
    }

    fn gauges<'a>(
        &'a self,
        device: &'a DeviceId,
        is_good: bool,
        times_seconds: Option<(f64, f64)>,
    ) -> impl Iterator<Item = PollValue<'a>> {
        let period = self.periods.get(device).map(Duration::as_secs_f64);
        let last = self.good.get(device).filter(|_| !is_good).map(|at| at.seconds());
        let gauges = [
            (&DEFINITIONS.success, Some(f64::from(u8::from(is_good)))),
            (&DEFINITIONS.period, period),
            (&DEFINITIONS.duration, times_seconds.map(|(duration, _)| duration)),
            (&DEFINITIONS.lateness, times_seconds.map(|(_, lateness)| lateness)),
            (&DEFINITIONS.last_success, last),
        ];
        gauges.into_iter().filter_map(move |(metric, value)| {
            let labels = self.labels.clone();
            let device = Cow::Borrowed(device);
            Some(PollValue { device, metric, labels, start: None, value: value? })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptions::{Directory, read_text};
    use crate::polling::Failure;
    use std::path::Path;

    fn values(metrics: &mut PollMetrics, all: &[Description], exchange: &Exchange) -> Vec<String> {
        let due: Vec<&Description> = all.iter().collect();
        let values = metrics.values(&due, exchange, (0.25, 0.5));
        let line = |one: &PollValue<'_>| {
            let cause = one.labels.get("cause").unwrap_or_default();
            format!("{} {}{} {}", one.device, one.metric.name, cause, one.value)
        };
        values.iter().map(line).collect()
    }

    #[test]
    fn a_failing_device_has_the_time_of_its_last_value_and_no_secret() {
        let mut directory = Directory::default();
        let entry = |name: &str, period: u32| {
            format!(
                "- {{name: {name}, device_id: bmc, url: 'http://ann:secret@bmc/a#{name}', update_every: {period}}}\n"
            )
        };
        let text = entry("a", 5000) + &entry("b", 1000);
        read_text(&Path::new("file").into(), &text, &mut directory);
        let all = directory.descriptions;
        let target = Arc::clone(&all.first().unwrap().target);
        let mut metrics = PollMetrics::new(Timestamp(0));
        metrics.set_target(&target, 1);
        assert_eq!(metrics.labels.get("target").as_deref(), Some("http://bmc:80 (2)"));
        metrics.set_target(&target, 0);
        let minute = Some(Duration::from_secs(60));
        assert_eq!(metrics.set_periods(all.iter().map(|one| (one, minute))).len(), 0);
        let changed = metrics.set_periods(all.iter().map(|one| (one, Some(one.period))));
        let changed: Vec<_> = changed.iter().map(|one| (&*one.metric.name, one.value)).collect();
        assert_eq!(changed, [("poll_period_seconds", 1.0)], "another period is stored at once");
        let ended = metrics.set_periods(std::iter::empty());
        let ended: Vec<_> = ended.iter().map(|one| (one.device.as_str(), one.value)).collect();
        assert_eq!(ended, [("bmc", 0.0)], "it is not polled any more");
        metrics.set_periods(all.iter().map(|one| (one, Some(one.period))));
        assert_eq!(metrics.labels.get("target").as_deref(), Some("http://bmc:80"));
        let gauges = |success: u8| {
            ["success", "period_seconds", "duration_seconds", "lateness_seconds"]
                .into_iter()
                .zip([f64::from(success), 1.0, 0.25, 0.5])
                .map(|(name, value)| format!("bmc poll_{name} {value}"))
                .collect::<Vec<_>>()
        };
        let good = Exchange::new(Timestamp::from_seconds(7), 2);
        assert_eq!(values(&mut metrics, &all, &good), gauges(1));
        let mut failed = Exchange::new(Timestamp::from_seconds(8), 2);
        for place in [0, 1] {
            failed.fail(place, Failure::timeout("no answer"));
        }
        let mut expected = gauges(0);
        expected.push("bmc poll_last_success_timestamp_seconds 7".to_owned());
        expected.push("bmc poll_errors_totalsource timed out 1".to_owned());
        assert_eq!(values(&mut metrics, &all, &failed), expected);
        let mut with_bad_lines = Exchange::new(Timestamp::from_seconds(9), 2);
        with_bad_lines.other_errors.push((0, 3));
        let found = values(&mut metrics, &all, &with_bad_lines);
        assert_eq!(found[0], "bmc poll_success 1");
        assert!(found.contains(&"bmc poll_errors_totalsource broken 3".to_owned()), "{found:?}");
    }
}
