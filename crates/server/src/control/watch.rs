//! Rules about values: what nodes send of themselves is looked at as it comes, and where a value goes beyond a
//! bound for long enough, once, a burst is flushed there or metrics are promoted.
//!
//! ```text
//!  above ─────────────╭───╮──────────╭──
//!   back ──────────╭──╯   ╰───╮╭─────╯
//!                  │  fires   ╰╯ may fire again
//! ```

use crate::control::value_rule::When;
use jobs::{LATCHES_MAX, Latch};
use model::{DeviceId, Kind, NodeList, Origin, Point, Series, Timestamp, increase};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use wire::{Decoded, Value};

/// A reading further from now is passed over: a spool tells of what was, and a burst has what is.
const FRESH_US: i64 = 2 * 60 * Timestamp::SECOND;
/// Readings further apart are not one stretch of time.
const APART_US: i64 = 10 * 60 * Timestamp::SECOND;
/// How often is looked for what can be forgotten, where there is no room for more.
const LOOK_EVERY_US: u64 = 60_000_000;
/// Most series that are watched at a time, and most nodes whose tables of series are remembered.
const WATCHED_MAX: usize = 100_000;
/// Tables remembered of a node: its ticks, its bursts, and what they were before.
const TABLES_OF_NODE_MAX: usize = 4;

/// A series that a rule watches, in a table.
#[derive(Debug)]
struct Spot {
    place: u32,
    rule: usize,
    series: Arc<Series>,
    metric: Arc<model::Metric>,
    start: Option<Timestamp>,
}

/// A value that a rule is to look at.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    rule: usize,
    series: Arc<Series>,
    kind: Kind,
    point: Point,
}

/// What is remembered of a series between its readings.
#[derive(Clone, Copy, Debug)]
struct Held {
    last: Point,
    /// Since when it is beyond.
    since: Option<Timestamp>,
    /// It fired, or would have, and has not been back since.
    latched: bool,
}

/// What a rule brings about, and where.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fired {
    pub(crate) when: When,
    pub(crate) devices: BTreeSet<DeviceId>,
}

/// The rules at work.
#[derive(Debug, Default)]
pub(crate) struct Watching {
    state: Mutex<State>,
    /// Something is due.
    pub(crate) due: Notify,
}

/// The tables of a node that were looked through, by their hash.
type Tables = Vec<(u64, Arc<[Spot]>)>;

#[derive(Debug, Default)]
struct State {
    /// For which the rest holds.
    rules: Arc<[When]>,
    tables: HashMap<Origin, Tables>,
    series: HashMap<(usize, Arc<Series>), Held>,
    /// When a rule of that name fired on a node.
    fired: HashMap<(Box<str>, DeviceId), Timestamp>,
    due: BTreeMap<usize, BTreeSet<DeviceId>>,
    /// What had fired on series of which nothing has come since: before the server started, or before they were
    /// forgotten.
    latched: HashSet<Latch>,
    /// What has fired since it was written down last, or was back.
    news: HashMap<Latch, bool>,
    /// When it was looked for what can be forgotten.
    looked: Option<Timestamp>,
}

/// What became of readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Judged {
    /// A rule fired.
    pub(crate) fired: usize,
    /// It would have, and did so a short time ago.
    pub(crate) too_soon: usize,
    /// No room for one more series.
    pub(crate) unwatched: usize,
}

impl Watching {
    /// The readings of a batch that rules look at: those that a node sends of itself.
    pub(crate) fn readings(
        &self,
        rules: &Arc<[When]>,
        batch: &Decoded,
        now: Timestamp,
    ) -> Vec<Reading> {
        if batch.origin.as_run().is_some() {
            return Vec::new();
        }
        if rules.is_empty() {
            let mut state = self.lock();
            if !Arc::ptr_eq(&state.rules, rules) {
                state.begin_anew(rules);
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

    /// Where in a batch's table the watched series stand, by place; `None`: the table cannot be read.
    fn spots(&self, rules: &Arc<[When]>, batch: &Decoded) -> Option<Arc<[Spot]>> {
        let mut state = self.lock();
        if !Arc::ptr_eq(&state.rules, rules) {
            state.begin_anew(rules);
        }
        let tables = state.tables.get(&batch.origin);
        let known = tables.and_then(|tables| tables.iter().find(|one| one.0 == batch.table_hash));
        if let Some((_, spots)) = known {
            return Some(Arc::clone(spots));
        }
        drop(state);
        let table = batch.table().ok()?;
        let mut spots = Vec::new();
        for (place, entry) in table.entries.iter().enumerate() {
            let Ok(place) = u32::try_from(place) else { break };
            let is_own = entry.device.as_str() == batch.origin.as_str();
            let watched =
                rules.iter().enumerate().filter(|(_, when)| is_own && when.watches(entry));
            spots.extend(watched.map(|(rule, _)| Spot {
                place,
                rule,
                series: Arc::new(entry.series()),
                metric: Arc::clone(&entry.metric),
                start: entry.start,
            }));
        }
        let spots: Arc<[Spot]> = spots.into();
        let mut state = self.lock();
        if Arc::ptr_eq(&state.rules, rules) {
            state.remember(batch, &spots);
        }
        Some(spots)
    }

    /// Looks at the readings of batches that were stored.
    pub(crate) fn judge(
        &self,
        rules: &Arc<[When]>,
        readings: &[Reading],
        now: Timestamp,
    ) -> Judged {
        let mut judged = Judged::default();
        if readings.is_empty() {
            return judged;
        }
        let mut state = self.lock();
        // Other rules hold by now: these readings are of rules that are gone.
        if !Arc::ptr_eq(&state.rules, rules) {
            return judged;
        }
        for reading in readings {
            let Some(when) = rules.get(reading.rule) else { continue };
            let Some(device) = state.look(when, reading, &mut judged) else { continue };
            state.fire(when, reading.rule, device, now, &mut judged);
        }
        // What has fired too soon is to be known after a restart, too.
        let fired = judged.fired + judged.too_soon > 0;
        drop(state);
        if fired {
            self.due.notify_one();
        }
        judged
    }

    /// What has fired since the last time.
    pub(crate) fn take(&self) -> Vec<Fired> {
        let mut state = self.lock();
        let (due, rules) = (std::mem::take(&mut state.due), Arc::clone(&state.rules));
        let fired = |(rule, devices): (usize, BTreeSet<DeviceId>)| {
            rules.get(rule).map(|when| Fired { when: when.clone(), devices })
        };
        due.into_iter().filter_map(fired).collect()
    }

    /// Nothing has come yet, and these had fired before this server started.
    pub(crate) fn latched_before(latches: Vec<Latch>) -> Self {
        let latched = latches.into_iter().take(LATCHES_MAX).collect();
        Self { state: Mutex::new(State { latched, ..State::default() }), due: Notify::new() }
    }

    /// What has fired since the last time, and what was back, to be known after a restart.
    pub(crate) fn news(&self) -> Vec<(Latch, bool)> {
        std::mem::take(&mut self.lock().news).into_iter().collect()
    }

    /// These could not be written down, and are to be again; what came meanwhile is newer.
    pub(crate) fn not_kept(&self, news: Vec<(Latch, bool)>) {
        let mut state = self.lock();
        for (latch, is_latched) in news {
            state.news.entry(latch).or_insert(is_latched);
        }
    }

    /// Remembers that a rule fired on nodes before this server started.
    pub(crate) fn fired_before(&self, name: &str, nodes: &NodeList, at: Timestamp) {
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
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Spot {
    fn reading(&self, at: Timestamp, value: Value) -> Reading {
        let value = match value {
            Value::Steps(steps) => self.metric.from_steps(steps),
            Value::Real(value) => value,
        };
        let point = Point { at, value, start: self.start };
        Reading { rule: self.rule, series: Arc::clone(&self.series), kind: self.metric.kind, point }
    }
}

impl State {
    /// Other rules: of what was remembered only this means the same: when which of them fired, and on which series
    /// those have fired that are as they were.
    fn begin_anew(&mut self, rules: &Arc<[When]>) {
        let before = std::mem::replace(self, Self { rules: Arc::clone(rules), ..Self::default() });
        (self.fired, self.news) = (before.fired, before.news);
        let held = before.series.into_iter().filter(|(_, held)| held.latched);
        let latch = |((rule, series), _): ((usize, Arc<Series>), Held)| {
            before.rules.get(rule).map(|when| when.latch(&series))
        };
        let same: HashSet<(&str, i64)> =
            rules.iter().map(|when| (&*when.name, when.digest())).collect();
        // Of what is still heard first: of the rest much is of jobs that ended meanwhile.
        let held: Vec<_> = held.filter_map(latch).collect();
        for latch in held.into_iter().chain(before.latched) {
            if same.contains(&(&*latch.rule, latch.digest)) {
                self.keep(latch);
            } else {
                self.news.insert(latch, false);
            }
        }
    }

    /// Keeps that a rule has fired on a series of which nothing is remembered any more.
    fn keep(&mut self, latch: Latch) {
        if self.latched.len() < LATCHES_MAX {
            self.latched.insert(latch);
        } else {
            self.news.insert(latch, false);
        }
    }

    fn remember(&mut self, batch: &Decoded, spots: &Arc<[Spot]>) {
        if self.tables.len() >= WATCHED_MAX && !self.tables.contains_key(&batch.origin) {
            self.tables.clear();
        }
        let tables = self.tables.entry(batch.origin.clone()).or_default();
        if tables.len() >= TABLES_OF_NODE_MAX {
            tables.remove(0);
        }
        tables.push((batch.table_hash, Arc::clone(spots)));
    }

    /// Takes a reading in; the node, if it has now been beyond for long enough.
    fn look(&mut self, when: &When, reading: &Reading, judged: &mut Judged) -> Option<DeviceId> {
        let Reading { rule, series, kind, point } = reading;
        let key = (*rule, Arc::clone(series));
        let Some(held) = self.series.get_mut(&key) else {
            self.make_room(point.at);
            if self.series.len() >= WATCHED_MAX {
                judged.unwatched += 1;
                return None;
            }
            let latched = !self.latched.is_empty() && self.latched.remove(&when.latch(series));
            let mut held = Held { last: *point, since: None, latched };
            // Of a counter one reading says nothing.
            let first = (*kind == Kind::Gauge).then_some(point.value);
            let fires = first.is_some_and(|value| held.judge(when, value, point.at));
            if held.latched != latched {
                self.news.insert(when.latch(series), held.latched);
            }
            self.series.insert(key, held);
            return fires.then(|| series.device.clone());
        };
        let passed = point.at.since(held.last.at);
        // Late, or twice.
        if passed <= 0 {
            return None;
        }
        let value = match kind {
            Kind::Gauge => point.value,
            // That nothing is known of its growth is not that there was none.
            Kind::Counter if !(held.last.value.is_finite() && point.value.is_finite()) => f64::NAN,
            Kind::Counter => increase(held.last, *point).amount / (passed as f64 / 1e6),
        };
        held.last = *point;
        if passed > APART_US {
            held.since = None;
        }
        let latched = held.latched;
        let fires = held.judge(when, value, point.at);
        if held.latched != latched {
            self.news.insert(when.latch(series), held.latched);
        }
        fires.then(|| series.device.clone())
    }

    /// Forgets, when there is no room for more, series of which nothing has come for long, and when rules
    /// fired that may fire again. It looks at all of them, so not for each that finds no room.
    fn make_room(&mut self, now: Timestamp) {
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
        when: &When,
        rule: usize,
        device: DeviceId,
        now: Timestamp,
        judged: &mut Judged,
    ) {
        let key = (when.name.clone(), device);
        let last = self.fired.get(&key);
        if last.is_some_and(|last| now.since(*last) < when.again_us) {
            judged.too_soon += 1;
            return;
        }
        self.make_room(now);
        if self.fired.len() >= WATCHED_MAX {
            judged.unwatched += 1;
            return;
        }
        self.due.entry(rule).or_default().insert(key.1.clone());
        self.fired.insert(key, now);
        judged.fired += 1;
    }
}

impl Held {
    /// Whether a value makes the rule fire. What is no number says nothing.
    fn judge(&mut self, when: &When, value: f64, at: Timestamp) -> bool {
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
