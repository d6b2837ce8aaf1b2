//! Evaluates value rules on the samples that nodes send about themselves and that pollers send of devices, as they
//! arrive. When a value is beyond a bound for long enough, the rule fires once: it flushes a burst or promotes metrics
//! on the node, or on the nodes that the device feeds.
//!
//! ```text
//!  above ─────────────╭───╮──────────╭──
//!   back ──────────╭──╯   ╰───╮╭─────╯
//!                  │  fires   ╰╯ may fire again
//! ```

use super::value_rule::ValueRule;
use jobs::{LATCHES_MAX, Latch};
use model::{DeviceId, Kind, NodeList, Origin, Point, Series, SeriesEntry, Timestamp, increase};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use tokio::sync::Notify;
use wire::{Decoded, Value};

/// Readings further from now are ignored: a spool delivers old readings, but a burst holds only recent
/// ones.
const FRESH_US: i64 = 2 * 60 * Timestamp::SECOND;
/// Readings further apart do not form one continuous interval.
const APART_US: i64 = 10 * 60 * Timestamp::SECOND;
/// Interval between cleanups while a limit is reached, in µs.
const LOOK_EVERY_US: u64 = 60_000_000;
/// Maximum number of watched series, and of nodes with remembered series tables.
const WATCHED_MAX: usize = 100_000;
/// Remembered tables per node: its ticks, its bursts, and the previous tables of both.
const TABLES_OF_NODE_MAX: usize = 4;

/// A series in a table that a rule watches.
#[derive(Debug)]
struct WatchedSeries {
    place: u32,
    rule: usize,
    series: Arc<Series>,
    metric: Arc<model::Metric>,
    start: Option<Timestamp>,
    nodes: Nodes,
}

/// The nodes on which a rule acts because of a series.
type Nodes = Arc<[DeviceId]>;

/// A value for a rule to evaluate.
#[derive(Clone, Debug)]
pub struct Reading {
    rule: usize,
    series: Arc<Series>,
    kind: Kind,
    point: Point,
    nodes: Nodes,
}

/// State of a series between its readings.
#[derive(Clone, Copy, Debug)]
struct SeriesState {
    last: Point,
    /// Time since when the value is beyond the bound.
    since: Option<Timestamp>,
    /// Whether the rule fired, or would have, and has not been reset since.
    latched: bool,
}

/// A fired rule and its devices.
#[derive(Clone, Debug, PartialEq)]
pub struct Fired {
    /// The rule.
    pub when: ValueRule,
    /// The nodes of the series on which it fired, or those that their devices feed.
    pub devices: BTreeSet<DeviceId>,
}

/// The running value rules.
#[derive(Debug, Default)]
pub struct RuleEvaluator {
    state: Mutex<State>,
    /// Notifies that a rule has fired.
    pub due: Notify,
}

/// Scanned tables of a node, by their hash.
type Tables = Vec<(u64, Arc<[WatchedSeries]>)>;

#[derive(Debug, Default)]
struct State {
    /// The rules to which the other fields refer.
    rules: Arc<[ValueRule]>,
    tables: HashMap<Origin, Tables>,
    series: HashMap<(usize, Arc<Series>), SeriesState>,
    /// Latest firing of a rule, by name, on a node.
    fired: HashMap<(Box<str>, DeviceId), Timestamp>,
    due: BTreeMap<usize, BTreeSet<DeviceId>>,
    /// Latches of series without readings since the server started, or since their state was evicted.
    latched: HashSet<Latch>,
    /// Latch changes not yet persisted: whether each was set or reset.
    news: HashMap<Latch, bool>,
    /// Time of the last cleanup.
    looked: Option<Timestamp>,
}

/// Outcome of readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evaluation {
    /// Rules fired.
    pub fired: usize,
    /// Rules that would have fired, but fired on that node a short time before.
    pub too_soon: usize,
    /// Readings of series beyond the limit of watched series.
    pub unwatched: usize,
}

impl RuleEvaluator {
    /// Returns the readings of a batch that rules evaluate: those that a node sends about itself, and those of a poller.
    pub fn readings(
        &self,
        rules: &Arc<[ValueRule]>,
        batch: &Decoded,
        now: Timestamp,
    ) -> Vec<Reading> {
        if batch.origin.as_run().is_some() {
            return Vec::new();
        }
        if rules.is_empty() {
            let mut state = self.lock();
            if !Arc::ptr_eq(&state.rules, rules) {
                state.restart(rules);
            }
            return Vec::new();
        }
        let Some(spots) = self.spots(rules, batch) else { return Vec::new() };
        if spots.is_empty() {
            return Vec::new();
        }
        let mut found = Vec::new();
        let mut samples = batch.index.iter().zip(&batch.values);
        for tick in &batch.ticks {
            let count = usize::try_from(tick.samples).unwrap_or(usize::MAX);
            let is_fresh = tick.at.since(now).unsigned_abs() <= FRESH_US.unsigned_abs();
            for (place, value) in samples.by_ref().take(count).filter(|_| is_fresh) {
                let first = spots.partition_point(|spot| spot.place < *place);
                let here = spots.iter().skip(first).take_while(|spot| spot.place == *place);
                found.extend(here.map(|spot| spot.reading(tick.at, *value)));
            }
        }
        found
    }

    /// Returns the watched series of a batch's table, by position; `None` if the table is unreadable.
    fn spots(&self, rules: &Arc<[ValueRule]>, batch: &Decoded) -> Option<Arc<[WatchedSeries]>> {
        let mut state = self.lock();
        if !Arc::ptr_eq(&state.rules, rules) {
            state.restart(rules);
        }
        let tables = state.tables.get(&batch.origin);
        let known = tables.and_then(|tables| tables.iter().find(|one| one.0 == batch.table_hash));
        if let Some((_, spots)) = known {
            return Some(Arc::clone(spots));
        }
        drop(state);
        let table = batch.table().ok()?;
        let is_poller = batch.origin.is_poller_group();
        let fed = if is_poller { FedNodes::of(&table.entries) } else { FedNodes::default() };
        let mut spots = Vec::new();
        for (place, entry) in table.entries.iter().enumerate() {
            let Ok(place) = u32::try_from(place) else { break };
            if !is_poller && entry.device.as_str() != batch.origin.as_str() {
                continue;
            }
            let measured = rules.iter().enumerate().filter(|(_, when)| when.measures(entry));
            for (rule, when) in measured {
                let nodes = fed.nodes(entry);
                let Some(nodes) = when.watched(&entry.device, nodes) else { continue };
                spots.push(WatchedSeries {
                    place,
                    rule,
                    series: Arc::new(entry.series()),
                    metric: Arc::clone(&entry.metric),
                    start: entry.start,
                    nodes,
                });
            }
        }
        let spots: Arc<[WatchedSeries]> = spots.into();
        let mut state = self.lock();
        if Arc::ptr_eq(&state.rules, rules) {
            state.remember(batch, &spots);
        }
        Some(spots)
    }

    /// Evaluates the readings of stored batches.
    pub fn evaluate(
        &self,
        rules: &Arc<[ValueRule]>,
        readings: &[Reading],
        now: Timestamp,
    ) -> Evaluation {
        let mut judged = Evaluation::default();
        if readings.is_empty() {
            return judged;
        }
        let mut state = self.lock();
        // The rules changed meanwhile, and these readings refer to the old ones.
        if !Arc::ptr_eq(&state.rules, rules) {
            return judged;
        }
        for reading in readings {
            let Some(when) = rules.get(reading.rule) else { continue };
            if state.look(when, reading, &mut judged) {
                for node in reading.nodes.iter() {
                    state.fire(when, reading.rule, node.clone(), now, &mut judged);
                }
            }
        }
        // Latches of suppressed firings must survive a restart, too.
        let fired = judged.fired + judged.too_soon > 0;
        drop(state);
        if fired {
            self.due.notify_one();
        }
        judged
    }

    /// Returns the rules fired since the last call.
    pub fn take(&self) -> Vec<Fired> {
        let mut state = self.lock();
        let (due, rules) = (std::mem::take(&mut state.due), Arc::clone(&state.rules));
        let fired = |(rule, devices): (usize, BTreeSet<DeviceId>)| {
            rules.get(rule).map(|when| Fired { when: when.clone(), devices })
        };
        due.into_iter().filter_map(fired).collect()
    }

    /// Creates an empty state with the latches of the previous server process.
    pub fn latched_before(latches: Vec<Latch>) -> Self {
        let latched = latches.into_iter().take(LATCHES_MAX).collect();
        Self { state: Mutex::new(State { latched, ..State::default() }), due: Notify::new() }
    }

    /// Returns latch changes since the last call, to be persisted.
    pub fn news(&self) -> Vec<(Latch, bool)> {
        std::mem::take(&mut self.lock().news).into_iter().collect()
    }

    /// Queues latch changes again that could not be persisted, without overwriting newer ones.
    pub fn not_kept(&self, news: Vec<(Latch, bool)>) {
        let mut state = self.lock();
        for (latch, is_latched) in news {
            state.news.entry(latch).or_insert(is_latched);
        }
    }

    /// Restores the time when a rule fired on nodes before this server started.
    pub fn fired_before(&self, name: &str, nodes: &NodeList, at: Timestamp) {
        let mut state = self.lock();
        for device in nodes.plain().into_iter().flatten() {
            let Ok(device) = DeviceId::new(device) else { continue };
            if state.fired.len() < WATCHED_MAX {
                let last = state.fired.entry((name.into(), device)).or_insert(at);
                *last = at.max(*last);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// The nodes that the devices of a table feed.
#[derive(Debug, Default)]
struct FedNodes<'a>(HashMap<&'a DeviceId, BTreeSet<DeviceId>>);

impl<'a> FedNodes<'a> {
    fn of(entries: &'a [SeriesEntry]) -> Self {
        let mut fed: HashMap<&DeviceId, BTreeSet<DeviceId>> = HashMap::new();
        for entry in entries {
            if let Some(node) = alias(entry) {
                fed.entry(&entry.device).or_default().insert(node);
            }
        }
        Self(fed)
    }

    /// The node that a series feeds by its label, else the nodes that its device feeds, else the device.
    fn nodes(&self, entry: &SeriesEntry) -> Vec<DeviceId> {
        let of_device = self.0.get(&entry.device);
        match (of_device, alias(entry)) {
            (Some(_), Some(node)) => vec![node],
            (Some(nodes), None) => nodes.iter().cloned().collect(),
            (None, _) => vec![entry.device.clone()],
        }
    }
}

/// The node whose consumption a series measures.
fn alias(entry: &SeriesEntry) -> Option<DeviceId> {
    DeviceId::new(&entry.labels.get("_device_alias")?).ok()
}

impl WatchedSeries {
    fn reading(&self, at: Timestamp, value: Value) -> Reading {
        let value = match value {
            Value::Steps(steps) => self.metric.from_steps(steps),
            Value::Real(value) => value,
        };
        Reading {
            rule: self.rule,
            series: Arc::clone(&self.series),
            kind: self.metric.kind,
            point: Point { at, value, start: self.start },
            nodes: Arc::clone(&self.nodes),
        }
    }
}

impl State {
    /// Installs other rules. Keeps the latest firings, and the latches of rules with an unchanged
    /// condition; drops everything else.
    fn restart(&mut self, rules: &Arc<[ValueRule]>) {
        let before = std::mem::replace(self, Self { rules: Arc::clone(rules), ..Self::default() });
        (self.fired, self.news) = (before.fired, before.news);
        let held = before.series.into_iter().filter(|(_, held)| held.latched);
        let latch = |((rule, series), _): ((usize, Arc<Series>), SeriesState)| {
            before.rules.get(rule).map(|when| when.latch(&series))
        };
        let same: HashSet<(&str, i64)> =
            rules.iter().map(|when| (&*when.name, when.digest())).collect();
        // Series still being received come first: many of the others belong to jobs that have ended.
        let held: Vec<_> = held.filter_map(latch).collect();
        for latch in held.into_iter().chain(before.latched) {
            if same.contains(&(&*latch.rule, latch.digest)) {
                self.keep(latch);
            } else {
                self.news.insert(latch, false);
            }
        }
    }

    /// Keeps the latch of a series without other state.
    fn keep(&mut self, latch: Latch) {
        if self.latched.len() < LATCHES_MAX {
            self.latched.insert(latch);
        } else {
            self.news.insert(latch, false);
        }
    }

    fn remember(&mut self, batch: &Decoded, spots: &Arc<[WatchedSeries]>) {
        if self.tables.len() >= WATCHED_MAX && !self.tables.contains_key(&batch.origin) {
            self.tables.clear();
        }
        let tables = self.tables.entry(batch.origin.clone()).or_default();
        if tables.len() >= TABLES_OF_NODE_MAX {
            tables.remove(0);
        }
        tables.push((batch.table_hash, Arc::clone(spots)));
    }

    /// Evaluates a reading. Returns whether its value is now beyond the bound for long enough.
    fn look(&mut self, when: &ValueRule, reading: &Reading, judged: &mut Evaluation) -> bool {
        let Reading { rule, series, kind, point, .. } = reading;
        let key = (*rule, Arc::clone(series));
        let Some(held) = self.series.get_mut(&key) else {
            self.make_space(point.at);
            if self.series.len() >= WATCHED_MAX {
                judged.unwatched += 1;
                return false;
            }
            let latched = !self.latched.is_empty() && self.latched.remove(&when.latch(series));
            let mut held = SeriesState { last: *point, since: None, latched };
            // A counter needs two readings.
            let first = (*kind == Kind::Gauge).then_some(point.value);
            let fires = first.is_some_and(|value| held.evaluate(when, value, point.at));
            if held.latched != latched {
                self.news.insert(when.latch(series), held.latched);
            }
            self.series.insert(key, held);
            return fires;
        };
        let passed = point.at.since(held.last.at);
        // The reading is late or a duplicate.
        if passed <= 0 {
            return false;
        }
        let value = match kind {
            Kind::Gauge => point.value,
            // An unknown increase is not an increase of zero.
            Kind::Counter if !(held.last.value.is_finite() && point.value.is_finite()) => f64::NAN,
            Kind::Counter => increase(held.last, *point).amount / (passed as f64 / 1e6),
        };
        held.last = *point;
        if passed > APART_US {
            held.since = None;
        }
        let latched = held.latched;
        let fires = held.evaluate(when, value, point.at);
        if held.latched != latched {
            self.news.insert(when.latch(series), held.latched);
        }
        fires
    }

    /// Evicts idle series, and firings older than their pause, if a limit is reached. It scans all entries,
    /// so it runs at most once per interval.
    fn make_space(&mut self, now: Timestamp) {
        let is_full = self.series.len() >= WATCHED_MAX || self.fired.len() >= WATCHED_MAX;
        let is_new = self.looked.is_none_or(|at| now.since(at).unsigned_abs() >= LOOK_EVERY_US);
        if !is_full || !is_new {
            return;
        }
        self.looked = Some(now);
        let rules = Arc::clone(&self.rules);
        let old = self.series.extract_if(|_, held| now.since(held.last.at) > APART_US);
        let old: Vec<_> = old.filter(|(_, held)| held.latched).map(|(key, _)| key).collect();
        for (rule, series) in old {
            rules.get(rule).into_iter().for_each(|when| self.keep(when.latch(&series)));
        }
        self.fired.retain(|(name, _), at| {
            let when = rules.iter().find(|when| when.name == *name);
            when.is_some_and(|when| now.since(*at) < when.again_us)
        });
    }

    fn fire(
        &mut self,
        when: &ValueRule,
        rule: usize,
        device: DeviceId,
        now: Timestamp,
        judged: &mut Evaluation,
    ) {
        let key = (when.name.clone(), device);
        let last = self.fired.get(&key);
        if last.is_some_and(|last| now.since(*last) < when.again_us) {
            judged.too_soon += 1;
            return;
        }
        self.make_space(now);
        if self.fired.len() >= WATCHED_MAX {
            judged.unwatched += 1;
            return;
        }
        self.due.entry(rule).or_default().insert(key.1.clone());
        self.fired.insert(key, now);
        judged.fired += 1;
    }
}

impl SeriesState {
    /// Whether a value makes the rule fire. NaN changes nothing.
    fn evaluate(&mut self, when: &ValueRule, value: f64, at: Timestamp) -> bool {
        if value.is_nan() {
            return false;
        }
        if !when.is_beyond(value) {
            self.since = None;
            self.latched &= !when.is_back(value);
            return false;
        }
        let since = *self.since.get_or_insert(at);
        let fires = !self.latched && at.since(since) >= when.lasts_us;
        self.latched |= fires;
        fires
    }
}

#[cfg(test)]
mod tests;
