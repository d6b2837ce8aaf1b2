//! Nodes: which of them report, since when the others are unavailable, and their load.

use crate::engine::access_filter::{AccessFilter, ListedAs};
use crate::lists::devices::PolledNode;
use crate::{QueryContext, QueryEngine, QueryError};
use jobs::Window;
use model::{DeviceId, Origin, Point, Timestamp, increase};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use storage::{BootInfo, JobSelector, OriginInfo, Selector};

/// Counters of busy processor time, without idle, I/O wait and steal.
const BUSY: [&str; 5] = [
    "cpu_user_seconds_total",
    "cpu_nice_seconds_total",
    "cpu_system_seconds_total",
    "cpu_irq_seconds_total",
    "cpu_softirq_seconds_total",
];
const CORES: &str = "cpu_online";
const MEMORY: &str = "memory_total_bytes";
const MEMORY_AVAILABLE: &str = "memory_available_bytes";

/// Window from which a node's load and period are computed.
const RECENT: i64 = 120 * Timestamp::SECOND;
/// Minimum overlap of the sample times of two agent starts that indicates two agents. A shorter overlap may come
/// from a clock that was set back.
const AT_ONCE: i64 = 10 * Timestamp::SECOND;
/// Maximum age in seconds of the last sample of a live node with unknown period.
const ALIVE: f64 = 60.0;
/// Minimum period in seconds for the silence limit: shorter periods do not shorten the limit.
pub(crate) const PERIOD_MIN: f64 = 2.0;

impl QueryEngine {
    /// Nodes with samples, by name, without forgotten ones: devices with an agent, and devices that a scheduler gives
    /// to jobs. The reader must be permitted to see the node samples of the device now.
    ///
    /// Fields that only the agent itself reports are `None`. Liveness is computed from the period of the
    /// samples; [`judge`] recomputes it with the agent's own data.
    ///
    /// # Errors
    /// A block cannot be read; the registry fails; the query was cancelled.
    pub fn nodes(&self, context: &QueryContext) -> Result<Vec<api::Node>, QueryError> {
        let mut nodes: BTreeMap<DeviceId, api::Node> = BTreeMap::new();
        // A user's run, a poller and inserted rows are not a node's agent: their samples neither create a node nor keep
        // one alive.
        let is_agent = |origin: &Origin| {
            origin.as_run().is_none() && !origin.is_poller_group() && !origin.is_push()
        };
        let mut agents = self.store.origins();
        let names = self.node_names(&agents)?;
        let of_colmet = agents.iter().filter(|one| one.origin.as_colmet_group().is_some());
        let of_colmet: Vec<DeviceId> =
            of_colmet.flat_map(|one| one.devices.iter().cloned()).collect();
        agents.retain(|agent| is_agent(&agent.origin));
        for agent in &agents {
            for device in agent.devices.iter().filter(|device| names.contains(*device)) {
                let node = nodes.entry(device.clone()).or_insert_with(|| unknown(device));
                seen(node, agent);
            }
        }
        // A node with an agent of its own is alive as long as this agent reports, regardless of other agents
        // that measure it.
        for agent in &agents {
            let own = DeviceId::new(agent.origin.as_str()).ok();
            if let Some(node) = own.and_then(|device| nodes.get_mut(&device)) {
                node.last_seen = None;
                seen(node, agent);
                node.conflict = are_several(agent, context.now);
            }
        }
        let without: BTreeSet<DeviceId> =
            names.into_iter().filter(|device| !nodes.contains_key(device)).collect();
        for device in of_colmet {
            if without.contains(&device) {
                let reported_by = Some(api::COLMET.to_owned());
                let node = api::Node { reported_by, ..unknown(&device) };
                nodes.insert(device, node);
            }
        }
        for PolledNode { device, last_good, period_seconds } in
            self.polled_nodes(without, context.now)?
        {
            let node = nodes.entry(device.clone()).or_insert_with(|| unknown(&device));
            (node.last_seen, node.period_seconds) = (last_good, period_seconds);
        }
        for (device, at) in self.registry.forgotten_nodes()? {
            let is_back = |node: &api::Node| node.last_seen.is_some_and(|seen| seen > at.seconds());
            if !nodes.get(&device).is_some_and(is_back) {
                nodes.remove(&device);
            }
        }
        let access =
            AccessFilter::new(self, context, (context.now.plus(-RECENT), context.now), None);
        for device in self.unseen(&nodes, &access, context)? {
            nodes.remove(&device);
        }
        self.add_last_values(&mut nodes, &access, context)?;
        self.add_load(&mut nodes, &access, context)?;
        self.add_jobs(&mut nodes, context)?;
        for node in nodes.values_mut() {
            judge(node, context.now);
        }
        Ok(nodes.into_values().collect())
    }

    /// Adds each node's number of series, its cores and its memory.
    fn add_last_values(
        &self,
        nodes: &mut BTreeMap<DeviceId, api::Node>,
        access: &AccessFilter,
        context: &QueryContext,
    ) -> Result<(), QueryError> {
        for last in self.store.snapshot().last(&Selector::default()) {
            let Some(node) = nodes.get_mut(&last.series.series.device) else { continue };
            let series = &last.series.series;
            let may_be_hidden = series.job.is_some() || !context.reader.sees_every_node();
            if may_be_hidden
                && !context.reader.sees_every_job()
                && !access.of(&series.device, series.job.as_ref())?.at(last.at.0)
            {
                continue;
            }
            node.series += 1;
            if node.reported_by.is_some() {
                // Nothing else shows when its latest message was.
                let seen = last.at.min(context.now).seconds();
                node.last_seen = Some(node.last_seen.map_or(seen, |before| before.max(seen)));
            }
            if last.series.series.job.is_none() {
                let value = Some(last.value).filter(|value| value.is_finite());
                match &*last.series.series.metric {
                    CORES => node.cpu_cores = value,
                    MEMORY => node.memory_bytes = value,
                    // An older value does not show the node's current usage.
                    MEMORY_AVAILABLE if last.at >= context.now.plus(-RECENT) => {
                        node.memory_used_bytes = value;
                    }
                    _ => {}
                }
            }
        }
        for node in nodes.values_mut() {
            // Up to here the field holds the available memory.
            let available = node.memory_used_bytes.take();
            node.memory_used_bytes =
                node.memory_bytes.zip(available).map(|(all, available)| all - available);
        }
        Ok(())
    }

    /// Nodes that are not visible to a reader now.
    fn unseen(
        &self,
        nodes: &BTreeMap<DeviceId, api::Node>,
        access: &AccessFilter,
        context: &QueryContext,
    ) -> Result<Vec<DeviceId>, QueryError> {
        let mut unseen = Vec::new();
        for device in nodes.keys() {
            if !access.of_node(device)?.at(context.now.0) {
                unseen.push(device.clone());
            }
        }
        Ok(unseen)
    }

    /// Adds each node's recent load in cores, and its period.
    fn add_load(
        &self,
        nodes: &mut BTreeMap<DeviceId, api::Node>,
        access: &AccessFilter,
        context: &QueryContext,
    ) -> Result<(), QueryError> {
        let metrics: BTreeSet<Arc<str>> = BUSY.into_iter().map(Arc::from).collect();
        let select =
            Selector { metrics: Some(metrics), job: JobSelector::None, ..Selector::default() };
        let from = context.now.plus(-RECENT);
        let snapshot = access.limit(&self.store.snapshot(), ListedAs::Device);
        for chunk in snapshot.scan(&select, from, context.now) {
            context.cancel.check()?;
            let chunk = chunk?;
            let Some(node) = nodes.get_mut(&chunk.series.series.device) else { continue };
            let seen = access.of_node(&chunk.series.series.device)?;
            // What is visible now has been visible since one instant: earlier samples do not count.
            let rows = chunk.rows().filter(|(at, ..)| seen.joins(at.0, context.now.0));
            let points = rows.map(|(at, value, start)| Point { at, value, start });
            if let Some(rate) = rate(points) {
                *node.cpu_cores_used.get_or_insert(0.0) += rate;
            }
            let times: Vec<i64> =
                chunk.times.into_iter().filter(|at| seen.joins(*at, context.now.0)).collect();
            if let Some(period) = usual_distance(&times) {
                node.period_seconds = Some(period);
            }
        }
        Ok(())
    }

    fn add_jobs(
        &self,
        nodes: &mut BTreeMap<DeviceId, api::Node>,
        context: &QueryContext,
    ) -> Result<(), QueryError> {
        let now = Some(context.now);
        let window = Window { from: now, to: now, ..Window::default() };
        let running = match self.allocations(&window, context) {
            // Records may name more nodes than have an agent: look up the nodes of this list.
            Err(QueryError::TooMuch(_)) => {
                let mut running = Vec::new();
                for device in nodes.keys() {
                    context.cancel.check()?;
                    let window = Window { device: Some(device.clone()), ..window.clone() };
                    running.append(&mut self.allocations(&window, context)?);
                }
                running
            }
            running => running?,
        };
        for allocation in running {
            if let (Some(node), None) = (nodes.get_mut(&allocation.device), allocation.stop) {
                node.jobs.push(allocation.key.to_string());
            }
        }
        Ok(())
    }
}

/// Sets whether a node is alive: its last batch is not older than three of its periods.
pub fn judge(node: &mut api::Node, now: Timestamp) {
    let silent = node.last_seen.map(|seen| now.seconds() - seen);
    node.alive = silent.is_some_and(|silent| silent <= patience(node.period_seconds));
}

/// Maximum silence in seconds of a live node: three periods, or 60 s if the period is unknown.
pub fn patience(period_seconds: Option<f64>) -> f64 {
    period_seconds.map_or(ALIVE, |period| 3.0 * period.max(PERIOD_MIN))
}

fn unknown(device: &DeviceId) -> api::Node {
    api::Node {
        device: device.to_string(),
        alive: false,
        stopped: false,
        conflict: false,
        last_seen: None,
        period_seconds: None,
        clock_offset_seconds: None,
        agent_version: None,
        reported_by: None,
        config_generation: None,
        config_rejected: Vec::new(),
        source_errors: Vec::new(),
        sources_restricted: Vec::new(),
        series: 0,
        jobs: Vec::new(),
        cpu_cores_used: None,
        cpu_cores: None,
        memory_used_bytes: None,
        memory_bytes: None,
    }
}

/// Records an origin of the node's samples; the latest sender wins.
fn seen(node: &mut api::Node, origin: &OriginInfo) {
    let received = origin.received.seconds();
    if node.last_seen.is_none_or(|seen| seen < received) {
        node.last_seen = Some(received);
        node.clock_offset_seconds = Some(origin.clock_offset_us as f64 / 1e6);
    }
}

/// Whether several agents send under one name: samples of two recent starts overlap in time. A restarted agent
/// also sends its spool, but the spool's samples are older.
fn are_several(origin: &OriginInfo, now: Timestamp) -> bool {
    let sends = |boot: &BootInfo| now.since(boot.received) <= RECENT;
    let mut spans: Vec<_> =
        origin.boots.iter().filter(|boot| sends(boot)).filter_map(|boot| boot.instants).collect();
    spans.sort_unstable();
    let ends = spans.iter().scan(Timestamp(i64::MIN), |end, (_, to)| {
        *end = (*end).max(*to);
        Some(*end)
    });
    let mut pairs = ends.zip(spans.iter().skip(1));
    pairs.any(|(end, (from, to))| end.min(*to).since(*from) >= AT_ONCE)
}

/// Growth per second of a counter from its first to its last point.
fn rate(points: impl Iterator<Item = Point>) -> Option<f64> {
    let (mut amount, mut ends): (f64, Option<(Point, Point)>) = (0.0, None);
    for point in points {
        let first = ends.map_or(point, |(first, before)| {
            amount += increase(before, point).amount;
            first
        });
        ends = Some((first, point));
    }
    let (first, last) = ends?;
    let seconds = last.at.since(first.at) as f64 / 1e6;
    (seconds > 0.0).then_some(amount / seconds)
}

/// The median interval between adjacent times, in seconds.
pub(crate) fn usual_distance(times: &[i64]) -> Option<f64> {
    let pairs = times.iter().zip(times.iter().skip(1));
    let mut distances: Vec<i64> = pairs.map(|(a, b)| b.saturating_sub(*a)).collect();
    distances.sort_unstable();
    distances.get(distances.len() / 2).map(|distance| *distance as f64 / 1e6)
}
