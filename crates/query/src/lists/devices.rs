//! Devices that are no nodes: their pollers, addresses and states (docs/decisions/0045-states-of-devices.md).

use crate::common::print::ALIAS;
use crate::engine::access_filter::AccessFilter;
use crate::lists::nodes::{PERIOD_MIN, patience};
use crate::{QueryContext, QueryEngine, QueryError};
use api::DeviceState;
use model::{DeviceId, Gap, NodeList, Series, Timestamp};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use store::{JobSelector, LabelMatch, LastValue, OriginInfo, Selector};

/// Metrics that pollers send of each device and target.
const SUCCESS: &str = "poll_success";
const PERIOD: &str = "poll_period_seconds";
const DURATION: &str = "poll_duration_seconds";
const LAST_SUCCESS: &str = "poll_last_success_timestamp_seconds";
/// The metric that feeds of wattmeters send of each port.
const METER_POWER: &str = "wattmetre_power_watt";
/// Labels of polls.
const PROTOCOL: &str = "protocol";
const TARGET: &str = "target";

/// Longest pause in seconds between two polls of a device that fails and has a shorter period.
const BACK_OFF_MAX: f64 = 30.0;
/// A device without a poll in this time is not listed any more.
pub(super) const KEPT: i64 = 7 * 24 * 60 * 60 * Timestamp::SECOND;
/// A poller reports a gap that grows at least this often, or once per period. Includes a wrong clock of the poller.
const GAP_REPORTED: i64 = 10 * 60 * Timestamp::SECOND;

/// Which devices a list contains.
#[derive(Clone, Debug, Default)]
pub struct DeviceFilter {
    /// Only these.
    pub devices: Option<BTreeSet<DeviceId>>,
    /// Only those that feed this node.
    pub node: Option<DeviceId>,
    /// Only those with this text in their name, address or nodes, in any case of letters.
    pub search: Option<String>,
    /// Only those that fail, and those of a poller that is silent.
    pub only_failing: bool,
    /// Only those after this name.
    pub after: Option<DeviceId>,
    /// At most this many devices.
    pub limit: Option<usize>,
}

/// The polls of a device by one target.
#[derive(Clone, Debug, Default)]
pub(super) struct Poll {
    pub(super) protocol: Option<String>,
    /// The latest poll: its instant, and whether it returned a value. `None`: older than the series in memory.
    latest: Option<(Timestamp, bool)>,
    pub(super) period_seconds: Option<f64>,
    duration_seconds: f64,
    /// Time of the latest value before the latest poll.
    last_success: Option<f64>,
}

/// The polls of devices, by the address of the target.
pub(super) type Polls = BTreeMap<DeviceId, BTreeMap<String, Poll>>;

/// A node without an agent: the time of its latest value, and its shortest period.
#[derive(Debug)]
pub(crate) struct PolledNode {
    pub(crate) device: DeviceId,
    pub(crate) last_good: Option<f64>,
    pub(crate) period_seconds: Option<f64>,
}

/// Senders of a device.
#[derive(Clone, Debug, Default)]
pub(super) struct Senders<'a> {
    /// The poller's group with the latest batch.
    pub(super) group: Option<&'a OriginInfo>,
    /// The other sender with the latest batch.
    other: Option<&'a OriginInfo>,
}

/// All senders, by device.
pub(super) struct AllSenders<'a> {
    pub(super) of: BTreeMap<&'a DeviceId, Senders<'a>>,
    /// Time of receipt of the latest batch of each poller.
    pub(super) pollers: HashMap<&'a str, Timestamp>,
}

impl QueryEngine {
    /// The devices that pass a filter and are no nodes, by name, and nodes of which a poller reads no value now. A device
    /// with several targets has an entry for each.
    ///
    /// A device is visible to a reader who now sees its node samples, or those of a node that it feeds.
    ///
    /// # Errors
    /// A block cannot be read; the registry fails; the query was cancelled.
    pub fn devices(
        &self,
        filter: &DeviceFilter,
        context: &QueryContext,
    ) -> Result<Vec<api::Device>, QueryError> {
        let origins = self.store.origins();
        let nodes = self.node_names(&origins)?;
        let senders = AllSenders::of(&origins);
        let is_wanted = |device: &&DeviceId| {
            filter.devices.as_ref().is_none_or(|devices| devices.contains(*device))
                && filter.after.as_ref().is_none_or(|after| after < *device)
        };
        let wanted = senders.of.keys().copied().filter(is_wanted).cloned().collect();
        let mut found = self.listed_devices(wanted, &senders, context)?;
        let nodes: HashSet<&str> = nodes.iter().map(DeviceId::as_str).collect();
        let is_listed =
            |one: &api::Device| one.state == DeviceState::Failing || !nodes.contains(&*one.device);
        found.retain(|one| filter.passes(one) && is_listed(one));
        let limit = filter.limit.unwrap_or(usize::MAX);
        let mut count = 0;
        let mut last = None;
        found.retain(|one| {
            count += usize::from(last.as_ref() != Some(&one.device));
            last = Some(one.device.clone());
            count <= limit
        });
        self.add_details(&mut found, context)?;
        Ok(found)
    }

    /// The polls of these devices, nodes included, as far as they are visible to the reader.
    pub(crate) fn polled(
        &self,
        devices: BTreeSet<DeviceId>,
        context: &QueryContext,
    ) -> Result<Vec<api::Device>, QueryError> {
        let origins = self.store.origins();
        let mut found = self.listed_devices(devices, &AllSenders::of(&origins), context)?;
        found.retain(|one| one.state != DeviceState::Unpolled);
        self.add_details(&mut found, context)?;
        Ok(found)
    }

    /// The polls of the devices that pass a test, nodes included, as far as they are visible to the reader: by name,
    /// without the reasons of failures.
    ///
    /// # Errors
    /// A block cannot be read; the registry fails; the query was cancelled.
    pub fn polls_of(
        &self,
        is_wanted: impl Fn(&DeviceId) -> bool,
        context: &QueryContext,
    ) -> Result<Vec<api::Device>, QueryError> {
        let origins = self.store.origins();
        let senders = AllSenders::of(&origins);
        let wanted = senders.of.keys().copied().filter(|device| is_wanted(device)).cloned();
        let mut found = self.listed_devices(wanted.collect(), &senders, context)?;
        found.retain(|one| one.state != DeviceState::Unpolled);
        Ok(found)
    }

    /// Number of the ports of wattmeters that a list names, by themselves or by the node that they feed.
    pub fn meter_ports(&self, nodes: &NodeList) -> usize {
        let metrics = Some(BTreeSet::from([Arc::from(METER_POWER)]));
        let select = Selector { metrics, job: JobSelector::None, ..Selector::default() };
        let mut ports = BTreeSet::new();
        for LastValue { series, .. } in self.store.snapshot().last(&select) {
            let (device, alias) = (&series.series.device, series.series.labels.get(ALIAS));
            if nodes.has(device.as_str()) || alias.is_some_and(|node| nodes.has(&node)) {
                ports.insert(device.clone());
            }
        }
        ports.len()
    }

    /// Devices that are nodes: with an agent of their own, or given to a job by a scheduler.
    pub(crate) fn node_names(
        &self,
        origins: &[OriginInfo],
    ) -> Result<HashSet<DeviceId>, QueryError> {
        let (mut nodes, mut others) = (HashSet::new(), BTreeSet::new());
        for origin in origins.iter().filter(|one| one.origin.as_run().is_none()) {
            for device in &origin.devices {
                if device.as_str() == origin.origin.as_str() {
                    nodes.insert(device.clone());
                } else {
                    others.insert(device.clone());
                }
            }
        }
        others.retain(|device| !nodes.contains(device));
        nodes.extend(self.registry.allocated(&others)?);
        Ok(nodes)
    }

    /// The polls of nodes without an agent.
    pub(crate) fn polled_nodes(
        &self,
        nodes: BTreeSet<DeviceId>,
        now: Timestamp,
    ) -> Result<Vec<PolledNode>, QueryError> {
        let least = f64::total_cmp;
        let one = |(device, targets): (DeviceId, BTreeMap<String, Poll>)| {
            let periods = targets.values().filter_map(|poll| poll.period_seconds);
            PolledNode {
                device,
                last_good: targets.values().filter_map(Poll::last_good).max_by(least),
                period_seconds: periods.min_by(least),
            }
        };
        Ok(self.polls(nodes, now)?.into_iter().map(one).collect())
    }

    /// Entries of these devices that are visible to the reader, without reasons of failures.
    fn listed_devices(
        &self,
        devices: BTreeSet<DeviceId>,
        senders: &AllSenders<'_>,
        context: &QueryContext,
    ) -> Result<Vec<api::Device>, QueryError> {
        // Only of what a poller sends.
        let has_group =
            |device: &&DeviceId| senders.of.get(*device).is_some_and(|by| by.group.is_some());
        let polled = devices.iter().filter(has_group).cloned().collect();
        let mut polls = self.polls(polled, context.now)?;
        context.cancel.check()?;
        let mut aliases = self.aliases(&devices);
        let access = AccessFilter::new(self, context, (context.now, context.now), None);
        let mut found = Vec::new();
        for device in devices {
            let mut feeds = Vec::new();
            for node in aliases.remove(&device).unwrap_or_default() {
                if access.of_node(&node)?.at(context.now.0) {
                    feeds.push(node.to_string());
                }
            }
            if feeds.is_empty() && !access.of_node(&device)?.at(context.now.0) {
                continue;
            }
            let Some(by) = senders.of.get(&device) else { continue };
            let targets = polls.remove(&device).unwrap_or_default();
            for (address, poll) in &targets {
                let (state, reason) = senders.judge(poll, by, context.now);
                found.push(api::Device {
                    device: device.to_string(),
                    poller: by.poller().map(str::to_owned),
                    protocol: poll.protocol.clone(),
                    address: Some(address.clone()),
                    period_seconds: poll.period_seconds,
                    state,
                    reason: reason.map(str::to_owned),
                    last_good: poll.last_good(),
                    aliases: feeds.clone(),
                });
            }
            // A group may have had the device once: its polls are too old to be listed.
            if let (true, Some(other)) = (targets.is_empty(), by.other) {
                found.push(unpolled(&device, other, feeds));
            }
        }
        Ok(found)
    }

    /// The latest polls of these devices.
    pub(super) fn polls(
        &self,
        devices: BTreeSet<DeviceId>,
        now: Timestamp,
    ) -> Result<Polls, QueryError> {
        let snapshot = self.store.snapshot();
        let metrics = [SUCCESS, PERIOD, DURATION, LAST_SUCCESS];
        let metrics = metrics.into_iter().map(Arc::from).collect();
        let mut select = Selector {
            devices: Some(devices),
            metrics: Some(metrics),
            job: JobSelector::None,
            labels: Vec::new(),
        };
        let mut polls = Polls::new();
        for LastValue { series, at, value, .. } in snapshot.last(&select) {
            let Some(poll) = poll_of(&mut polls, &series.series) else { continue };
            match &*series.series.metric {
                DURATION => poll.duration_seconds = value,
                PERIOD => poll.period_seconds = Some(value).filter(|value| *value > 0.0),
                LAST_SUCCESS => poll.last_success = Some(value),
                _ => poll.latest = Some((at, value > 0.0)),
            }
        }
        // Those without a poll in memory, because their poller is silent or their period is long.
        let mut rest = select.devices.take().unwrap_or_default();
        rest.retain(|device| !polls.contains_key(device));
        if !rest.is_empty() {
            select.devices = Some(rest);
            select.metrics = Some(BTreeSet::from([Arc::from(SUCCESS)]));
            for info in snapshot.series(&select, now.plus(-KEPT), now)? {
                poll_of(&mut polls, &info.series);
            }
        }
        Ok(polls)
    }

    /// The nodes that these devices feed.
    fn aliases(&self, devices: &BTreeSet<DeviceId>) -> HashMap<DeviceId, BTreeSet<DeviceId>> {
        let select = Selector {
            devices: Some(devices.clone()),
            metrics: None,
            job: JobSelector::None,
            labels: vec![LabelMatch::Present(ALIAS.to_owned())],
        };
        let mut aliases: HashMap<DeviceId, BTreeSet<DeviceId>> = HashMap::new();
        for LastValue { series, .. } in self.store.snapshot().last(&select) {
            let alias = series.series.labels.get(ALIAS).and_then(|name| DeviceId::new(&name).ok());
            aliases.entry(series.series.device.clone()).or_default().extend(alias);
        }
        aliases
    }

    /// Adds the reasons of failures, and the time of the latest value of devices that no poller reads.
    fn add_details(
        &self,
        found: &mut [api::Device],
        context: &QueryContext,
    ) -> Result<(), QueryError> {
        let named = |state: DeviceState, found: &[api::Device]| -> BTreeSet<DeviceId> {
            let of_state = found.iter().filter(|one| one.state == state);
            of_state.filter_map(|one| DeviceId::new(&one.device).ok()).collect()
        };
        let devices = Some(named(DeviceState::Unpolled, found));
        let select = Selector { devices, job: JobSelector::None, ..Selector::default() };
        let mut times: HashMap<String, f64> = HashMap::new();
        for LastValue { series, at, .. } in self.store.snapshot().last(&select) {
            let newest = times.entry(series.series.device.to_string()).or_insert(f64::MIN);
            *newest = newest.max(at.seconds());
        }
        context.cancel.check()?;
        let failing = named(DeviceState::Failing, found);
        let periods = found.iter().filter_map(|one| one.period_seconds);
        let longest = periods.max_by(f64::total_cmp).unwrap_or(0.0);
        let latest = latest_gaps(self, failing, longest, context.now);
        for one in found {
            match one.state {
                DeviceState::Unpolled => one.last_good = times.get(&one.device).copied(),
                DeviceState::Failing => {
                    let protocol = one.protocol.as_deref().unwrap_or_default();
                    let gaps = latest.get(&one.device).into_iter().flatten();
                    let of_it = gaps.filter(|gap| is_of_protocol(gap, protocol));
                    one.reason = of_it.max_by_key(|gap| gap.to).map(reason);
                }
                DeviceState::Alive | DeviceState::Unknown => {}
            }
        }
        Ok(())
    }
}

/// The gaps of failing devices that pollers reported lately.
pub(super) fn latest_gaps(
    engine: &QueryEngine,
    failing: BTreeSet<DeviceId>,
    longest_period_seconds: f64,
    now: Timestamp,
) -> HashMap<String, Vec<Gap>> {
    let mut latest: HashMap<String, Vec<Gap>> = HashMap::new();
    if failing.is_empty() {
        return latest;
    }
    let since = now.plus(-GAP_REPORTED - micros(2.0 * longest_period_seconds));
    for gap in engine.store.gaps(since, now.plus(GAP_REPORTED), None) {
        if gap.origin.is_poller_group() && failing.contains(&gap.device) {
            latest.entry(gap.device.to_string()).or_default().push(gap);
        }
    }
    latest
}

/// Microseconds of a number of seconds; periods are at most 366 days.
#[expect(clippy::cast_possible_truncation, reason = "a bounded number of seconds")]
fn micros(seconds: f64) -> i64 {
    (seconds.clamp(0.0, 1e9) * 1e6) as i64
}

/// Whether a gap is of a protocol, or of one of its values.
pub(super) fn is_of_protocol(gap: &Gap, protocol: &str) -> bool {
    let rest = gap.source.strip_prefix(protocol);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn reason(gap: &Gap) -> String {
    let cause = gap.cause.words();
    if gap.detail.is_empty() { cause.to_owned() } else { format!("{cause}: {}", gap.detail) }
}

fn poll_of<'a>(polls: &'a mut Polls, series: &Series) -> Option<&'a mut Poll> {
    let address = series.labels.get(TARGET)?;
    let of_device = polls.entry(series.device.clone()).or_default();
    let poll = of_device.entry(address).or_default();
    poll.protocol = series.labels.get(PROTOCOL);
    Some(poll)
}

fn unpolled(device: &DeviceId, sender: &OriginInfo, aliases: Vec<String>) -> api::Device {
    api::Device {
        device: device.to_string(),
        poller: None,
        protocol: None,
        address: None,
        period_seconds: None,
        state: DeviceState::Unpolled,
        reason: Some(format!("no poller reads it; {} sends its values", sender.origin)),
        last_good: None,
        aliases,
    }
}

impl Poll {
    /// Time of the latest poll with a value.
    fn last_good(&self) -> Option<f64> {
        match self.latest {
            Some((at, true)) => Some(at.seconds()),
            _ => self.last_success,
        }
    }

    /// Longest time in microseconds without a poll: three periods; of a device that fails one pause and two periods.
    pub(super) fn patience_us(&self) -> i64 {
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

impl<'a> AllSenders<'a> {
    pub(super) fn of(origins: &'a [OriginInfo]) -> Self {
        let (mut of, mut pollers) = (BTreeMap::<_, Senders<'_>>::new(), HashMap::new());
        for origin in origins.iter().filter(|one| one.origin.as_run().is_none()) {
            let poller = origin.origin.as_poller_group();
            if let Some(name) = poller {
                let latest = pollers.entry(name).or_insert(origin.received);
                *latest = origin.received.max(*latest);
            }
            for device in &origin.devices {
                let senders = of.entry(device).or_default();
                let place = if poller.is_some() { &mut senders.group } else { &mut senders.other };
                if place.is_none_or(|before| before.received < origin.received) {
                    *place = Some(origin);
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
        let received = by.poller().and_then(|name| self.pollers.get(name)).copied();
        if received.is_none_or(|received| now.since(received) > patience_us) {
            return (unknown, Some("the poller is silent"));
        }
        let is_late = |group: &OriginInfo, at: Timestamp| {
            group.sealed.since(at) > patience_us || now.since(group.received) > patience_us
        };
        match (poll.latest, by.group) {
            (Some((at, is_good)), Some(group)) if !is_late(group, at) => {
                (if is_good { DeviceState::Alive } else { DeviceState::Failing }, None)
            }
            _ => (unknown, Some("its poller polls other devices, but not this one")),
        }
    }
}

impl<'a> Senders<'a> {
    pub(super) fn poller(&self) -> Option<&'a str> {
        self.group.and_then(|group| group.origin.as_poller_group())
    }
}

impl DeviceFilter {
    fn passes(&self, device: &api::Device) -> bool {
        let is_found = self.search.as_ref().is_none_or(|search| {
            let part = search.to_lowercase();
            let mut texts = device.aliases.iter().chain([&device.device]).chain(&device.address);
            texts.any(|text| text.to_lowercase().contains(&part))
        });
        let node = self.node.as_ref().map(DeviceId::as_str);
        is_found
            && node.is_none_or(|node| device.aliases.iter().any(|alias| alias == node))
            && (!self.only_failing
                || matches!(device.state, DeviceState::Failing | DeviceState::Unknown))
    }
}
