//! Counts of polled devices, pollers and their gaps, for alerts.

use crate::lists::device_polls::{FEED_PATIENCE_US, KEPT};
use crate::lists::device_senders::{AllSenders, PollerSeen};
use crate::lists::devices::{is_of_protocol, latest_gaps};
use crate::{QueryEngine, QueryError};
use api::DeviceState;
use model::{Cause, DeviceId, Timestamp};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Gaps that touch this time before the instant of the summary are counted.
const GAPS_OF: i64 = 60 * 60 * Timestamp::SECOND;

/// Counts of what pollers read. Nodes that a poller reads are included, unlike in the list of devices.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PollSummary {
    /// Devices with a target, by the protocol and the state.
    pub devices: BTreeMap<(String, &'static str), usize>,
    /// Failing devices with a target, by the cause of the latest gap.
    pub failing: BTreeMap<&'static str, usize>,
    /// Gaps of pollers that touch the last hour, by cause.
    pub gaps: BTreeMap<&'static str, usize>,
    /// Pollers and feeds that sent a batch within 7 days, the longest silent ones first.
    pub pollers: Vec<PollerAge>,
    /// Number of errors in the description files of the pollers that have some and report now.
    pub entry_errors: Vec<(String, u32)>,
}

/// When a poller sent its latest batch.
#[derive(Clone, Debug, PartialEq)]
pub struct PollerAge {
    /// Its name.
    pub name: String,
    /// Seconds since the server received the latest batch.
    pub age_seconds: f64,
    /// Whether this is longer than the limit of its device with the shortest period, though it did not end.
    pub is_silent: bool,
    /// Whether it reported its end.
    pub is_ended: bool,
}

impl QueryEngine {
    /// The counts at an instant.
    ///
    /// # Errors
    /// A block cannot be read.
    pub fn poll_summary(&self, now: Timestamp) -> Result<PollSummary, QueryError> {
        let origins = self.store.origins();
        let notes = self.poller_notes()?;
        let senders = AllSenders::of(&origins, &notes);
        let entry_errors = self.entry_error_counts(now);
        let mut summary = PollSummary { entry_errors, ..PollSummary::default() };
        if senders.pollers.is_empty() {
            return Ok(summary);
        }
        let polled: BTreeSet<DeviceId> = senders
            .of
            .iter()
            .filter(|(_, by)| by.group().is_some())
            .map(|(one, _)| (*one).clone())
            .collect();
        let mut patience_us: HashMap<&str, i64> = HashMap::new();
        let (mut failing, mut longest_seconds) = (Vec::new(), 0.0_f64);
        for (device, targets) in self.polls(polled, now)? {
            let Some(by) = senders.of.get(&device) else { continue };
            for poll in targets.into_values() {
                let (state, _) = senders.judge(&poll, by, now);
                if let Some(poller) = by.poller() {
                    let least = patience_us.entry(poller).or_insert(i64::MAX);
                    *least = poll.patience_us().min(*least);
                }
                longest_seconds = longest_seconds.max(poll.period_seconds.unwrap_or(0.0));
                let protocol = poll.protocol.unwrap_or_default();
                if state == DeviceState::Failing {
                    failing.push((device.clone(), protocol.clone()));
                }
                *summary.devices.entry((protocol, state.word())).or_default() += 1;
            }
        }
        summary.failing = self.causes(&failing, longest_seconds, now);
        for gap in self.store.gaps(now.plus(-GAPS_OF), now, None) {
            if gap.origin.is_poller_group() {
                *summary.gaps.entry(gap.cause.words()).or_default() += 1;
            }
        }
        summary.pollers = ages(&senders.pollers, &patience_us, now);
        Ok(summary)
    }

    /// How many of the failing devices have each cause.
    fn causes(
        &self,
        failing: &[(DeviceId, String)],
        longest_seconds: f64,
        now: Timestamp,
    ) -> BTreeMap<&'static str, usize> {
        let devices = failing.iter().map(|(device, _)| device.clone()).collect();
        let latest = latest_gaps(self, devices, longest_seconds, now);
        let mut causes = BTreeMap::new();
        for (device, protocol) in failing {
            let gaps = latest.get(device.as_str()).into_iter().flatten();
            let of_it = gaps.filter(|gap| is_of_protocol(gap, protocol));
            let cause = of_it.max_by_key(|gap| gap.to).map(|gap| gap.cause);
            *causes.entry(cause.map_or("unknown", Cause::words)).or_default() += 1;
        }
        causes
    }
}

/// The ages of pollers, the oldest first.
fn ages(
    pollers: &HashMap<&str, PollerSeen>,
    patience_us: &HashMap<&str, i64>,
    now: Timestamp,
) -> Vec<PollerAge> {
    let age = |(name, seen): (&&str, &PollerSeen)| {
        let (age_us, is_ended) = (now.since(seen.received).max(0), seen.is_ended);
        let patience_us = patience_us.get(name).copied().unwrap_or(FEED_PATIENCE_US);
        let is_silent = age_us > patience_us && !is_ended;
        let age_seconds = age_us as f64 / Timestamp::SECOND as f64;
        let name = (*name).to_owned();
        (age_us < KEPT).then_some(PollerAge { name, age_seconds, is_silent, is_ended })
    };
    let mut ages: Vec<PollerAge> = pollers.iter().filter_map(age).collect();
    ages.sort_by(|a, b| b.age_seconds.total_cmp(&a.age_seconds).then_with(|| a.name.cmp(&b.name)));
    ages
}
