//! The devices that pollers read, for changes of the periods of their polls.

use super::LISTED_MAX;
use crate::app::App;
use crate::auth::caller::Caller;
use crate::common::http_error::HttpError;
use crate::ingest::agent_reports::AgentCounts;
use crate::ingest::poller_reports::PollerReport;
use api::{DeviceState, PollerRejection};
use control::Change;
use model::setting::{NodeSettings, Rejection, RejectionCode};
use model::{NodeList, Timestamp};
use query::QueryContext;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Most names of a list with numbers in brackets that are checked one by one.
const NAMES_MAX: usize = 20_000;

/// The polls of devices.
#[derive(Debug, Default)]
pub(super) struct PolledDevices(Vec<api::Device>);

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
        for (_, device) in self.meant(nodes, settings) {
            let reports = devices.entry(&device.device).or_default();
            *reports |= device.state != DeviceState::Unknown;
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
            self.meant(nodes, settings).map(|(_, device)| &*device.device).collect();
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

    /// Returns for each polled device and source of a change whether its poller has received the change, and what it
    /// rejects or shortens of it.
    pub(super) fn rejections<'a>(
        &'a self,
        app: &App,
        change: &Change,
    ) -> Vec<(&'a str, (bool, Vec<Rejection>))> {
        let mut reports: BTreeMap<&str, PollerReport> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        let mut found = Vec::new();
        for (source, device) in self.meant(&change.nodes, &change.settings) {
            if !seen.insert((&*device.device, source)) {
                continue;
            }
            let poller = device.poller.as_deref().unwrap_or_default();
            let report =
                reports.entry(poller).or_insert_with(|| app.pollers.of(poller).unwrap_or_default());
            let is_its =
                |one: &&PollerRejection| one.change == change.number && one.source == source;
            let rejected = report.rejected.iter().filter(is_its).map(rejection).collect();
            found.push((&*device.device, (change.number <= report.applied, rejected)));
        }
        found
    }

    /// The devices of a list with the sources of a change by which pollers read them.
    fn meant<'a>(
        &'a self,
        nodes: &NodeList,
        settings: &NodeSettings,
    ) -> impl Iterator<Item = (&'static str, &'a api::Device)> {
        let sources: Vec<&'static str> =
            control::polled_periods(settings).map(|(source, _)| source).collect();
        let devices = self.0.iter().filter(|one| nodes.has(&one.device));
        devices.filter_map(move |device| {
            let source = sources.iter().find(|one| device.protocol.as_deref() == Some(**one))?;
            Some((*source, device))
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

/// A rejection in the form of those of agents.
fn rejection(one: &PollerRejection) -> Rejection {
    let code = RejectionCode::ALL.iter().find(|code| code.word() == one.code);
    Rejection {
        setting: format!("sources.{}.period", one.source),
        code: code.copied().unwrap_or(RejectionCode::Invalid),
        reason: one.reason.clone(),
        until: one.until.and_then(seconds),
    }
}

/// An instant in seconds that a poller sends; `None` if it is none.
fn seconds(seconds: f64) -> Option<Timestamp> {
    let micros = seconds * 1e6;
    #[expect(clippy::cast_possible_truncation, reason = "bounded by the condition")]
    (micros.abs() < 9e18).then_some(Timestamp(micros as i64))
}
