//! The latest polls of devices, and the latest values of the ports of wattmeters, from which their states follow.

use crate::lists::nodes::{PERIOD_MIN, patience};
use crate::{QueryEngine, QueryError};
use model::{DeviceId, Series, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use storage::{JobSelector, LastValue, Selector};

/// Metrics that pollers send of each device and target.
const SUCCESS: &str = "poll_success";
const PERIOD: &str = "poll_period_seconds";
const DURATION: &str = "poll_duration_seconds";
const LAST_SUCCESS: &str = "poll_last_success_timestamp_seconds";
/// Metrics that feeds of wattmeters send: of each port the power and the counter of samples, of the meter that of lines.
pub(super) const METER_POWER: &str = "wattmetre_power_watt";
pub(super) const METER_SAMPLES: &str = "wattmetre_samples_total";
const METER_LINES: &str = "wattmetre_lines_total";
/// Labels of polls.
const PROTOCOL: &str = "protocol";
const TARGET: &str = "target";
/// The label of rows that users insert.
const USER: &str = "_user";

/// Longest pause in seconds between two polls of a device that fails and has a shorter period.
const BACK_OFF_MAX: f64 = 30.0;
/// A device without a poll in this time is not listed any more.
pub(super) const KEPT: i64 = 7 * 24 * 60 * 60 * Timestamp::SECOND;
/// Time in microseconds after which a sender without polls is silent: a feed stores its counters every minute.
pub(super) const FEED_PATIENCE_US: i64 = 3 * 60 * Timestamp::SECOND;

/// The polls of a device by one target, or what a feed reads of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Poll {
    pub(super) protocol: Option<String>,
    /// The latest poll: its instant, and whether it returned a value. `None`: older than the series in memory.
    pub(super) latest: Option<(Timestamp, bool)>,
    pub(super) period_seconds: Option<f64>,
    /// Whether the poller stated that it does not poll it any more: a period of 0.
    pub(super) is_dropped: bool,
    duration_seconds: f64,
    /// Time of the latest value before the latest poll.
    last_success: Option<f64>,
    /// Set if a feed reads it.
    pub(super) fed: Option<Fed>,
}

/// A device of a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fed {
    /// The meter. Its latest value is that of a counter.
    Meter,
    /// A port.
    Port,
}

/// The polls of devices, by the address of the target. What a feed reads has none: it is under an empty one.
pub(super) type Polls = BTreeMap<DeviceId, BTreeMap<String, Poll>>;

impl QueryEngine {
    /// The latest polls of these devices. A device without polls has what a feed reads of it.
    pub(super) fn polls(
        &self,
        devices: BTreeSet<DeviceId>,
        now: Timestamp,
    ) -> Result<Polls, QueryError> {
        let snapshot = self.store.snapshot();
        let of_feeds = [METER_POWER, METER_SAMPLES, METER_LINES];
        let metrics = [SUCCESS, PERIOD, DURATION, LAST_SUCCESS].into_iter().chain(of_feeds);
        let metrics = metrics.map(Arc::from).collect();
        let mut select = Selector {
            devices: Some(devices),
            metrics: Some(metrics),
            job: JobSelector::None,
            labels: Vec::new(),
        };
        let (mut polls, mut fed) = (Polls::new(), BTreeMap::new());
        for LastValue { series, at, value, .. } in snapshot.last(&select) {
            note_fed(&mut fed, &series.series, Some(at));
            let Some(poll) = poll_of(&mut polls, &series.series) else { continue };
            match &*series.series.metric {
                DURATION => poll.duration_seconds = value,
                PERIOD => {
                    poll.period_seconds = Some(value).filter(|value| *value > 0.0);
                    poll.is_dropped = value == 0.0;
                }
                LAST_SUCCESS => poll.last_success = Some(value),
                _ => poll.latest = Some((at, value > 0.0)),
            }
        }
        // Those without a poll in memory, because their poller is silent or their period is long.
        let mut rest = select.devices.take().unwrap_or_default();
        rest.retain(|device| !polls.contains_key(device) && !fed.contains_key(device));
        if !rest.is_empty() {
            select.devices = Some(rest);
            let metrics = [SUCCESS].into_iter().chain(of_feeds);
            select.metrics = Some(metrics.map(Arc::from).collect());
            for info in snapshot.series(&select, now.plus(-KEPT), now)? {
                note_fed(&mut fed, &info.series, None);
                poll_of(&mut polls, &info.series);
            }
        }
        for (device, poll) in fed {
            polls.entry(device).or_insert_with(|| [(String::new(), poll)].into());
        }
        Ok(polls)
    }
}

impl Poll {
    /// Time of the latest poll with a value.
    pub(super) fn last_good(&self) -> Option<f64> {
        match self.latest {
            Some((at, true)) => Some(at.seconds()),
            _ => self.last_success,
        }
    }

    /// Longest time in microseconds without a poll: three periods; of a device that fails one pause and two periods.
    pub(super) fn patience_us(&self) -> i64 {
        if self.fed.is_some() {
            return FEED_PATIENCE_US;
        }
        // An exchange may last longer than a period.
        let period = self.period_seconds.map(|period| period.max(self.duration_seconds));
        let seconds = match (self.latest, period) {
            (Some((_, false)), Some(period)) => {
                period.max(BACK_OFF_MAX) + 2.0 * period.max(PERIOD_MIN)
            }
            _ => patience(period),
        };
        micros(seconds)
    }
}

/// Microseconds of a number of seconds; periods are at most 366 days.
#[expect(clippy::cast_possible_truncation, reason = "a bounded number of seconds")]
pub(super) fn micros(seconds: f64) -> i64 {
    (seconds.clamp(0.0, 1e9) * 1e6) as i64
}

fn poll_of<'a>(polls: &'a mut Polls, series: &Series) -> Option<&'a mut Poll> {
    if is_of_feed(&series.metric) {
        return None;
    }
    let address = series.labels.get(TARGET)?;
    let of_device = polls.entry(series.device.clone()).or_default();
    let poll = of_device.entry(address).or_default();
    poll.protocol = series.labels.get(PROTOCOL);
    Some(poll)
}

fn is_of_feed(metric: &str) -> bool {
    [METER_POWER, METER_SAMPLES, METER_LINES].contains(&metric)
}

/// Notes a series of a feed, with the instant of its latest value.
fn note_fed(fed: &mut BTreeMap<DeviceId, Poll>, series: &Series, at: Option<Timestamp>) {
    // No user makes a port.
    if !is_of_feed(&series.metric) || series.labels.get(USER).is_some() {
        return;
    }
    let poll = fed.entry(series.device.clone()).or_insert_with(|| Poll {
        protocol: Some(api::FED_PROTOCOL.to_owned()),
        fed: Some(Fed::Meter),
        ..Poll::default()
    });
    if &*series.metric != METER_LINES {
        poll.fed = Some(Fed::Port);
    }
    // The counter of a port counts missing samples, too.
    if &*series.metric != METER_SAMPLES {
        poll.latest = poll.latest.max(at.map(|at| (at, true)));
    }
}
