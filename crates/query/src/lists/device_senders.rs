//! Senders of devices, and the states of devices that follow from them and from the latest polls.

use crate::lists::device_polls::{Fed, Poll};
use crate::{QueryEngine, QueryError};
use api::DeviceState;
use model::{DeviceId, Origin, Timestamp};
use std::collections::{BTreeMap, HashMap, HashSet};
use storage::OriginInfo;

/// Longest time in microseconds without a value of a port, while its feed stores those of others.
const PORT_PATIENCE_US: i64 = 60 * Timestamp::SECOND;

/// Time in microseconds after which the latest poll of a device is not in memory any more.
const IN_MEMORY_US: i64 = 60 * 60 * Timestamp::SECOND;
/// Why a device has ended though its poller polls others.
const DROPPED: &str =
    "its poller does not poll it any more: its entries are removed, or not promoted";

/// Senders of a device.
#[derive(Clone, Debug, Default)]
pub(super) struct Senders<'a> {
    /// The groups of pollers.
    groups: Vec<&'a OriginInfo>,
    /// The other sender with the latest batch.
    pub(super) other: Option<&'a OriginInfo>,
}

/// The latest batch of a poller.
#[derive(Clone, Copy, Debug)]
pub(super) struct PollerSeen {
    /// Time of its receipt.
    pub(super) received: Timestamp,
    /// Whether the poller reported with it that it ends.
    pub(super) is_ended: bool,
}

/// What the registry stores of pollers.
#[derive(Debug, Default)]
pub(super) struct PollerNotes {
    /// The groups that reported their end, and the agents that did.
    ended: HashSet<Origin>,
    /// The removed pollers, with the time of removal.
    forgotten: HashMap<DeviceId, Timestamp>,
}

/// All senders, by device. Without the groups of removed pollers.
pub(super) struct AllSenders<'a> {
    pub(super) of: BTreeMap<&'a DeviceId, Senders<'a>>,
    /// The latest batch of each poller.
    pub(super) pollers: HashMap<&'a str, PollerSeen>,
}

impl QueryEngine {
    /// Reads what the registry stores of pollers.
    pub(super) fn poller_notes(&self) -> Result<PollerNotes, QueryError> {
        let ended = self.registry.stopped()?.into_iter().collect();
        Ok(PollerNotes { ended, forgotten: self.registry.forgotten_pollers()? })
    }
}

impl<'a> AllSenders<'a> {
    pub(super) fn of(origins: &'a [OriginInfo], notes: &PollerNotes) -> Self {
        let (mut of, mut pollers) = (BTreeMap::<_, Senders<'_>>::new(), HashMap::new());
        for origin in origins {
            let Some(name) = origin.origin.as_poller_group() else { continue };
            let is_ended = notes.ended.contains(&origin.origin);
            let seen = PollerSeen { received: origin.received, is_ended };
            let latest = pollers.entry(name).or_insert(seen);
            if latest.received < seen.received {
                *latest = seen;
            }
        }
        for (poller, at) in &notes.forgotten {
            if pollers.get(poller.as_str()).is_some_and(|seen| seen.received <= *at) {
                pollers.remove(poller.as_str());
            }
        }
        for origin in origins.iter().filter(|one| one.origin.as_run().is_none()) {
            let poller = origin.origin.as_poller_group();
            if poller.is_some_and(|name| !pollers.contains_key(name)) {
                continue;
            }
            for device in &origin.devices {
                let senders = of.entry(device).or_default();
                if poller.is_some() {
                    senders.groups.push(origin);
                } else if senders.other.is_none_or(|before| before.received < origin.received) {
                    senders.other = Some(origin);
                }
            }
        }
        Self { of, pollers }
    }

    /// The state of a device by its polls, and the reason, if it is not that of a gap.
    pub(super) fn judge(
        &self,
        poll: &Poll,
        by: &Senders<'_>,
        now: Timestamp,
    ) -> (DeviceState, Option<&'static str>) {
        let (patience_us, unknown) = (poll.patience_us(), DeviceState::Unknown);
        let seen = by.poller().and_then(|name| self.pollers.get(name)).copied();
        let is_fed = poll.fed.is_some();
        if poll.is_dropped {
            return (DeviceState::Ended, Some(DROPPED));
        }
        if seen.is_some_and(|seen| seen.is_ended) {
            let reason = if is_fed { "the feed has ended" } else { "the poller has ended" };
            return (DeviceState::Ended, Some(reason));
        }
        if seen.is_none_or(|seen| now.since(seen.received) > patience_us) {
            let reason = if is_fed { "the feed is silent" } else { "the poller is silent" };
            return (unknown, Some(reason));
        }
        if let Some(fed) = poll.fed {
            return (judge_fed(fed, poll, by, now), None);
        }
        let is_late = |group: &OriginInfo, at: Timestamp| {
            sealed(group, now).since(at) > patience_us || now.since(group.received) > patience_us
        };
        match (poll.latest, by.group()) {
            (Some((at, is_good)), Some(group)) if !is_late(group, at) => {
                (if is_good { DeviceState::Alive } else { DeviceState::Failing }, None)
            }
            (latest, Some(group)) if is_before_start(latest, group, patience_us, now) => {
                (DeviceState::Ended, Some(DROPPED))
            }
            _ => (unknown, Some("its poller polls other devices, but not this one")),
        }
    }
}

/// Whether the poller has polled a device before its present start only, and could have polled it since. A device without a
/// poll in memory counts as one if the poller runs for longer.
fn is_before_start(
    latest: Option<(Timestamp, bool)>,
    group: &OriginInfo,
    patience_us: i64,
    now: Timestamp,
) -> bool {
    let Some((begun, _)) = group.boots.last().and_then(|boot| boot.instants) else { return false };
    let runs_us = sealed(group, now).since(begun);
    latest.map_or(runs_us > IN_MEMORY_US, |(at, _)| at < begun && runs_us > patience_us)
}

/// The state of a device of a feed that sends: a port fails while its feed stores no value of it. The instants of lines
/// may be old.
fn judge_fed(fed: Fed, poll: &Poll, by: &Senders<'_>, now: Timestamp) -> DeviceState {
    let is_late = |(at, _): (Timestamp, bool)| {
        by.group().is_none_or(|group| sealed(group, now).since(at) > PORT_PATIENCE_US)
    };
    if fed == Fed::Port && poll.latest.is_none_or(is_late) {
        return DeviceState::Failing;
    }
    DeviceState::Alive
}

/// The instant of the latest poll of a group, or of its latest sample in a batch without polls. A device may report samples
/// of a later time.
fn sealed(group: &OriginInfo, now: Timestamp) -> Timestamp {
    group.sealed.min(now)
}

impl<'a> Senders<'a> {
    /// The poller's group with the latest batch.
    pub(super) fn group(&self) -> Option<&'a OriginInfo> {
        self.groups.iter().copied().max_by_key(|group| group.received)
    }

    /// The poller with the latest batch.
    pub(super) fn poller(&self) -> Option<&'a str> {
        self.group().and_then(|group| group.origin.as_poller_group())
    }

    /// All pollers, that with the latest batch first.
    pub(super) fn pollers(&self) -> Vec<&'a str> {
        let mut groups = self.groups.clone();
        groups.sort_by_key(|group| std::cmp::Reverse(group.received));
        let mut names = Vec::new();
        for name in groups.into_iter().filter_map(|group| group.origin.as_poller_group()) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Boot;
    use storage::BootInfo;

    #[test]
    fn a_device_polled_before_the_present_start_only_has_ended_once_its_patience_is_over() {
        let second = |second: i64| Timestamp(second * Timestamp::SECOND);
        let group = |begun: i64, sealed: i64| OriginInfo {
            origin: Origin::new("poller-one/group-0").unwrap(),
            received: second(sealed),
            sealed: second(sealed),
            clock_offset_us: 0,
            batches: 1,
            samples: 1,
            samples_rejected: 0,
            boots: vec![BootInfo {
                boot: Boot([0; 16]),
                received: second(sealed),
                last_seq: 1,
                missing: 0,
                instants: Some((second(begun), second(sealed))),
            }],
            devices: Vec::new(),
        };
        let is_before = |latest: Option<i64>, group: &OriginInfo| {
            let latest = latest.map(|at| (second(at), true));
            is_before_start(latest, group, 15 * Timestamp::SECOND, second(90_000))
        };
        assert!(is_before(Some(90), &group(100, 116)));
        assert!(!is_before(Some(90), &group(100, 115)), "it may be polled soon");
        assert!(!is_before(Some(101), &group(100, 200)), "polled by the present start");
        assert!(is_before(None, &group(100, 3701)) && !is_before(None, &group(100, 3700)));
    }
}
