//! Devices that are no nodes: their pollers, addresses and states (docs/decisions/0045-states-of-devices.md).

use crate::common::print::ALIAS;
use crate::engine::access_filter::AccessFilter;
use crate::lists::device_polls::{METER_POWER, METER_SAMPLES, Poll, micros};
use crate::lists::device_senders::AllSenders;
use crate::{QueryContext, QueryEngine, QueryError};
use api::DeviceState;
use model::{DeviceId, Gap, NodeList, Timestamp};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use storage::{JobSelector, LabelMatch, LastValue, OriginInfo, Selector};

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

/// A device that a poller reads, by one target.
#[derive(Clone, Debug, PartialEq)]
pub struct PolledDevice {
    /// Its entry in the list.
    pub device: api::Device,
    /// All pollers that sent samples of it, that with the latest batch first.
    pub pollers: Vec<String>,
}

/// A node without an agent: the time of its latest value, and its shortest period.
#[derive(Debug)]
pub(crate) struct PolledNode {
    pub(crate) device: DeviceId,
    pub(crate) last_good: Option<f64>,
    pub(crate) period_seconds: Option<f64>,
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
        let notes = self.poller_notes()?;
        let senders = AllSenders::of(&origins, &notes);
        let is_wanted = |device: &&DeviceId| {
            filter.devices.as_ref().is_none_or(|devices| devices.contains(*device))
                && filter.after.as_ref().is_none_or(|after| after < *device)
        };
        let wanted = senders.of.keys().copied().filter(is_wanted).cloned().collect();
        let mut found = self.listed_devices(wanted, &senders, context)?;
        let has_error = self.devices_with_entry_errors(context)?;
        let is_wanted = |one: &api::Device| {
            DeviceId::listed(&one.device).is_ok_and(|device| is_wanted(&&device))
        };
        found.extend(has_error.into_iter().filter(is_wanted));
        // The entries of a device by address, then that of its errors.
        found.sort_by(|a, b| a.device.cmp(&b.device));
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
        let senders = AllSenders::of(&origins, &self.poller_notes()?);
        let mut found = self.listed_devices(devices, &senders, context)?;
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
    ) -> Result<Vec<PolledDevice>, QueryError> {
        let origins = self.store.origins();
        let senders = AllSenders::of(&origins, &self.poller_notes()?);
        let wanted = senders.of.keys().copied().filter(|device| is_wanted(device)).cloned();
        let found = self.listed_devices(wanted.collect(), &senders, context)?;
        let pollers = |device: &str| {
            let by = DeviceId::new(device).ok().and_then(|device| senders.of.get(&device));
            by.map(|by| by.pollers()).unwrap_or_default().into_iter().map(str::to_owned).collect()
        };
        let polled = found.into_iter().filter(|one| one.state != DeviceState::Unpolled);
        Ok(polled.map(|device| PolledDevice { pollers: pollers(&device.device), device }).collect())
    }

    /// Number of the ports of wattmeters that a list names, by themselves or by the node that they feed.
    pub fn meter_ports(&self, nodes: &NodeList) -> usize {
        // A port may have missing samples only.
        let metrics = Some([METER_POWER, METER_SAMPLES].map(Arc::from).into());
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

    /// Devices that are nodes: with an agent of their own, reported by Colmet, or given to a job by a scheduler.
    pub(crate) fn node_names(
        &self,
        origins: &[OriginInfo],
    ) -> Result<HashSet<DeviceId>, QueryError> {
        let (mut nodes, mut others) = (HashSet::new(), BTreeSet::new());
        for origin in origins.iter().filter(|one| one.origin.as_run().is_none()) {
            let is_input = origin.origin.as_colmet_group().is_some();
            // The input reports itself, too.
            let input = origin.origin.as_poller_group();
            for device in &origin.devices {
                let is_host = is_input && Some(device.as_str()) != input;
                if is_host || device.as_str() == origin.origin.as_str() {
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
            |device: &&DeviceId| senders.of.get(*device).is_some_and(|by| by.group().is_some());
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
                    address: Some(address.clone()).filter(|address| !address.is_empty()),
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
        let mut targets: HashMap<String, Vec<String>> = HashMap::new();
        for one in &*found {
            let of_device = targets.entry(one.device.clone()).or_default();
            of_device.extend(one.address.clone());
        }
        for one in found {
            match one.state {
                DeviceState::Unpolled => one.last_good = times.get(&one.device).copied(),
                // Errors of its entries are the reason.
                DeviceState::Failing if one.reason.is_some() => {}
                DeviceState::Failing => {
                    let protocol = one.protocol.as_deref().unwrap_or_default();
                    let gaps = latest.get(&one.device).into_iter().flatten();
                    let others = targets.get(&one.device).into_iter().flatten();
                    let others = others.filter(|address| one.address.as_ref() != Some(*address));
                    let is_of_other = |gap: &Gap| others.clone().any(|other| names(gap, other));
                    let of_it =
                        gaps.filter(|gap| is_of_protocol(gap, protocol) && !is_of_other(gap));
                    one.reason = of_it.max_by_key(|gap| gap.to).map(reason);
                }
                DeviceState::Alive | DeviceState::Unknown | DeviceState::Ended => {}
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

/// Whether a gap is of a protocol, or of one of its values.
pub(super) fn is_of_protocol(gap: &Gap, protocol: &str) -> bool {
    let rest = gap.source.strip_prefix(protocol);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether a gap names a target: pollers state it for devices with several.
fn names(gap: &Gap, address: &str) -> bool {
    gap.detail.strip_prefix(address).is_some_and(|rest| rest.starts_with(": "))
}

fn reason(gap: &Gap) -> String {
    let cause = gap.cause.words();
    if gap.detail.is_empty() { cause.to_owned() } else { format!("{cause}: {}", gap.detail) }
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
