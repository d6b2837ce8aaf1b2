//! The devices that pollers read, for changes of the periods of their polls.

use super::LISTED_MAX;
use crate::app::App;
use crate::auth::caller::Caller;
use crate::common::http_error::HttpError;
use crate::ingest::agent_reports::AgentCounts;
use crate::ingest::poller_reports::PollerReport;
use api::{DeviceState, PollerRejection};
use control::{Active, Change, PERIODS_OF_DEVICE_MAX};
use model::setting::{NodeSettings, Rejection, RejectionCode};
use model::{NodeList, Timestamp};
use query::{PolledDevice, QueryContext};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// Most names of a list with numbers in brackets that are checked one by one.
const NAMES_MAX: usize = 20_000;

/// The polls of devices.
#[derive(Debug, Default)]
pub(super) struct PolledDevices(Vec<PolledDevice>);

/// The changes that pollers receive of each device, by source, the latest one first.
pub(super) type ReceivedChanges<'a> = HashMap<&'a str, BTreeMap<&'static str, Vec<i64>>>;

/// What becomes of a change at a device that pollers read.
#[derive(Debug, Default)]
pub(super) struct PolledOutcome {
    /// Whether each poller of the device has received it.
    pub(super) is_received: bool,
    /// What the pollers reject or shorten of it.
    pub(super) rejections: Vec<Rejection>,
    /// The later change that applies instead: its source, its ID, and the poller, if there are several.
    pub(super) superseded: Option<(&'static str, i64, Option<String>)>,
}

impl PolledDevices {
    /// Returns the devices of these changes, as far as they set periods of polls.
    pub(super) async fn of(
        app: &Arc<App>,
        caller: &Caller,
        changes: impl Iterator<Item = (&NodeList, &NodeSettings)>,
    ) -> Result<Self, HttpError> {
        let sets = |settings: &NodeSettings| control::polled_periods(settings).next().is_some();
        let lists: Vec<NodeList> =
            changes.filter(|one| sets(one.1)).map(|(nodes, _)| nodes.clone()).collect();
        if lists.is_empty() {
            return Ok(Self::default());
        }
        // Their states are no data of jobs: the audit needs no entry.
        let context = QueryContext { watch: None, ..app.context(caller)? };
        let (cancel, engine) = (context.cancel.clone(), app.engine.clone());
        let user_key = Arc::clone(&context.user_key);
        let found = app.work.answer(&user_key, cancel, move || {
            let is_wanted =
                |device: &model::DeviceId| lists.iter().any(|one| one.has(device.as_str()));
            engine.polls_of(is_wanted, &context)
        });
        found.await.map(Self)
    }

    /// Counts the nodes and devices of a change: its agents, and the devices that pollers read by its sources.
    pub(super) fn counted(
        &self,
        app: &App,
        (nodes, settings): (&NodeList, &NodeSettings),
        now: Timestamp,
    ) -> AgentCounts {
        let (mut counts, mut agents) = (AgentCounts::default(), BTreeSet::new());
        if control::concerns_agents(settings) {
            counts = app.agents.counted(nodes, now);
            agents = app.agents.matching(nodes).into_iter().map(|agent| agent.device).collect();
        }
        // A device may have several targets; one of an agent counts once.
        let mut devices: BTreeMap<&str, bool> = BTreeMap::new();
        for (_, PolledDevice { device, .. }) in self.meant(nodes, settings) {
            let reports = devices.entry(&device.device).or_default();
            *reports |= !matches!(device.state, DeviceState::Unknown | DeviceState::Ended);
        }
        devices.retain(|name, _| !agents.iter().any(|agent| agent.as_str() == *name));
        counts.known += u64::try_from(devices.len()).unwrap_or(u64::MAX);
        let reporting = devices.values().filter(|reports| **reports).count();
        counts.reporting += u64::try_from(reporting).unwrap_or(u64::MAX);
        counts
    }

    /// Returns the names of a list that no poller reads by the sources of a change, and that have no agent with one of
    /// them.
    pub(super) fn not_polled(
        &self,
        app: &App,
        (nodes, settings): (&NodeList, &NodeSettings),
    ) -> Vec<String> {
        if control::polled_periods(settings).next().is_none() {
            return Vec::new();
        }
        let mut known: BTreeSet<&str> =
            self.meant(nodes, settings).map(|(_, one)| &*one.device.device).collect();
        let agents = match control::concerns_agents(settings) {
            true => app.agents.matching(nodes),
            false => Vec::new(),
        };
        known.extend(agents.iter().map(|agent| agent.device.as_str()));
        let named = model::expand_hosts(nodes.as_str(), NAMES_MAX)
            .unwrap_or_else(|_| nodes.names().map(str::to_owned).collect());
        let others = named.into_iter().filter(|name| !known.contains(&**name));
        others.take(LISTED_MAX).collect()
    }

    /// Returns for each polled device and source of a change whether its pollers have received the change, what they
    /// reject or shorten of it, and whether a later one applies.
    pub(super) fn outcomes<'a>(
        &'a self,
        app: &App,
        (active, change): (&Active, &Change),
        received: &mut ReceivedChanges<'a>,
        now: Timestamp,
    ) -> Vec<(&'a str, PolledOutcome)> {
        let mut seen = BTreeSet::new();
        let mut found = Vec::new();
        for (source, polled) in self.meant(&change.nodes, &change.settings) {
            let device = &*polled.device.device;
            if !seen.insert((device, source)) {
                continue;
            }
            let of_device = received.entry(device).or_insert_with(|| {
                let numbers = |changes: Vec<(&Change, Duration)>| {
                    changes.into_iter().map(|(change, _)| change.number).collect()
                };
                let changes = active.period_changes_of(device, now).into_iter();
                changes.map(|(source, changes)| (source, numbers(changes))).collect()
            });
            let numbers = of_device.get(source).map_or(&[][..], Vec::as_slice);
            let reports: Vec<(&str, PollerReport)> = reports_of(app, polled, now);
            let mut outcome = PolledOutcome { is_received: true, ..PolledOutcome::default() };
            for (poller, report) in &reports {
                let poller = (reports.len() > 1).then_some(*poller);
                outcome.add(source, change.number, (report, numbers), poller, now);
            }
            found.push((device, outcome));
        }
        found
    }

    /// The devices of a list with the sources of a change by which pollers read them.
    fn meant<'a>(
        &'a self,
        nodes: &NodeList,
        settings: &NodeSettings,
    ) -> impl Iterator<Item = (&'static str, &'a PolledDevice)> {
        let sources: Vec<&'static str> =
            control::polled_periods(settings).map(|(source, _)| source).collect();
        let devices = self.0.iter().filter(|one| nodes.has(&one.device.device));
        devices.filter_map(move |polled| {
            let protocol = polled.device.protocol.as_deref();
            let source = sources.iter().find(|one| protocol == Some(**one))?;
            Some((*source, polled))
        })
    }
}

/// Counts the ports of wattmeters that a list names, by themselves or by the node that they feed.
pub(super) async fn meter_ports(
    app: &Arc<App>,
    caller: &Caller,
    nodes: &NodeList,
) -> Result<AgentCounts, HttpError> {
    let (context, engine, nodes) = (app.context(caller)?, app.engine.clone(), nodes.clone());
    let user_key = Arc::clone(&context.user_key);
    let count = app.work.answer(&user_key, context.cancel, move || {
        Ok::<_, query::QueryError>(engine.meter_ports(&nodes))
    });
    let known = u64::try_from(count.await?).unwrap_or(u64::MAX);
    Ok(AgentCounts { known, reporting: known })
}

/// The reports of the pollers of a device: that with the latest batch, and the others that report now.
fn reports_of<'a>(
    app: &App,
    polled: &'a PolledDevice,
    now: Timestamp,
) -> Vec<(&'a str, PollerReport)> {
    let mut reports = Vec::new();
    for poller in &polled.pollers {
        let report = app.pollers.of(poller).unwrap_or_default();
        if reports.is_empty() || report.is_current(now) {
            reports.push((&**poller, report));
        }
    }
    reports
}

impl PolledOutcome {
    /// Adds the report of a poller. `numbers`: the changes that it receives of this source, the latest one first.
    fn add(
        &mut self,
        source: &'static str,
        number: i64,
        (report, numbers): (&PollerReport, &[i64]),
        poller: Option<&str>,
        now: Timestamp,
    ) {
        let prefix = poller.map_or_else(String::new, |poller| format!("the poller {poller}: "));
        self.is_received &= number <= report.applied;
        if !numbers.contains(&number) {
            let reason = format!(
                "{prefix}it receives the latest {PERIODS_OF_DEVICE_MAX} changes of a device"
            );
            let setting = format!("sources.{source}.period");
            let code = RejectionCode::Limit;
            return self.rejections.push(Rejection { setting, code, reason, until: None });
        }
        let of = |number: i64| {
            report.rejected.iter().filter(move |one| one.change == number && one.source == source)
        };
        self.rejections.extend(of(number).map(|one| rejection(one, &prefix)));
        let applies =
            |number: &&i64| **number <= report.applied && of(**number).all(|one| holds(one, now));
        let in_force = numbers.iter().find(applies).filter(|in_force| **in_force > number);
        if let Some(by) = in_force
            && of(number).all(|one| holds(one, now))
        {
            self.superseded = Some((source, *by, poller.map(str::to_owned)));
        }
    }
}

/// Whether a change holds, because the poller only shortens it.
fn holds(one: &PollerRejection, now: Timestamp) -> bool {
    one.code == RejectionCode::Shortened.word()
        && one.until.and_then(seconds).is_none_or(|until| until > now)
}

/// A rejection in the form of those of agents.
fn rejection(one: &PollerRejection, prefix: &str) -> Rejection {
    let code = RejectionCode::ALL.iter().find(|code| code.word() == one.code);
    Rejection {
        setting: format!("sources.{}.period", one.source),
        code: code.copied().unwrap_or(RejectionCode::Invalid),
        reason: format!("{prefix}{}", one.reason),
        until: one.until.and_then(seconds),
    }
}

/// An instant in seconds that a poller sends; `None` if it is none.
fn seconds(seconds: f64) -> Option<Timestamp> {
    let micros = seconds * 1e6;
    #[expect(clippy::cast_possible_truncation, reason = "bounded by the condition")]
    (micros.abs() < 9e18).then_some(Timestamp(micros as i64))
}
