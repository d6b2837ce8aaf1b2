//! The settings that each node receives with its acks: the server's agent file, changes,
//! promotions and flushes.
//!
//! A node's settings are composed on its first request and cached until something changes. An ack thus costs one
//! lookup in a map.

use super::agent_config::AgentConfig;
use super::compose::{Composed, NodeEntries, compose, flush_holds};
use super::feed_flushes::of_feed;
use super::poller_periods::polled_periods;
use crate::demand::{ActiveRequests, DemandError, DemandStore, FromJobs, Promotion, Rule, wanted};
use crate::rules::expression;
use model::{DeviceId, NodeList, Timestamp};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum number of nodes with cached settings.
const CACHED_MAX: usize = 100_000;
/// Maximum number of remembered generations of a node's settings.
const GENERATIONS_MAX: usize = 4;
/// Maximum number of remembered warnings; the log reports each once.
const LOGGED_MAX: usize = 1000;

/// On-demand requests to agents, as HTTP requests use them.
#[derive(Debug)]
pub struct NodeSettingsCache {
    demand: Arc<DemandStore>,
    state: Mutex<State>,
    /// Promotions that did not fit, counted whenever settings are composed.
    pub cut: AtomicU64,
    /// Sections of changes, and flushes, that did not fit.
    pub settings_cut: AtomicU64,
    /// Promotions that jobs request now and that exceed a limit.
    pub left_out: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// Version of the database from which `held` was read.
    version: Option<i64>,
    held: Arc<Active>,
    cached: HashMap<DeviceId, CachedSettings>,
    /// The latest generations of each node's settings, with the ID of the newest change in them.
    composed: HashMap<DeviceId, VecDeque<(u64, i64)>>,
    /// Warnings already logged, for example about invalid rows.
    config_for: BTreeSet<String>,
}

/// A node's cached settings, based on the server's agent file of that generation.
#[derive(Debug)]
struct CachedSettings {
    base: u64,
    config_for: Arc<AgentConfig>,
    valid_until: Timestamp,
    /// Sections of changes that the node does not receive, with the ID of their change.
    left_out: Vec<(i64, Box<str>)>,
}

/// Everything in effect, with indexes by node.
#[derive(Debug, Default)]
pub struct Active {
    /// The requests.
    pub held: ActiveRequests,
    pub(super) changes: Index,
    pub(super) promotions: Index,
    pub(super) flushes: Index,
    /// Hash of what pollers receive.
    pollers_version: u64,
}

/// Positions by node name: of entries with plain names, and of entries with patterns, which must be
/// matched.
#[derive(Debug, Default)]
pub(super) struct Index {
    plain: HashMap<Box<str>, Vec<usize>>,
    patterns: Vec<usize>,
}

impl NodeSettingsCache {
    /// Nothing is in effect until the first refresh.
    pub fn new(demand: Arc<DemandStore>) -> Self {
        Self {
            demand,
            state: Mutex::default(),
            cut: AtomicU64::new(0),
            settings_cut: AtomicU64::new(0),
            left_out: AtomicU64::new(0),
        }
    }

    /// Returns the database of on-demand requests.
    pub fn demand(&self) -> &DemandStore {
        &self.demand
    }

    /// Returns everything in effect.
    pub fn active(&self) -> Arc<Active> {
        Arc::clone(&self.lock().held)
    }

    /// Returns the configuration for a node.
    pub fn config_for(
        &self,
        device: &DeviceId,
        base: &Arc<AgentConfig>,
        now: Timestamp,
    ) -> Arc<AgentConfig> {
        let mut state = self.lock();
        if let Some(cached) = state.cached.get(device)
            && cached.base == base.generation
            && now < cached.valid_until
        {
            return Arc::clone(&cached.config_for);
        }
        let held = Arc::clone(&state.held);
        let concerned = held.of(device.as_str(), now);
        if concerned.is_empty() {
            return Arc::clone(base);
        }
        let Composed { settings, valid_until, cut, left_out, flushes_cut } =
            compose(&base.settings, &concerned, now);
        if cut > 0 {
            add(&self.cut, cut);
            state.log_once(format!(
                "{device} does not receive all promotions: its limit of promotions \
                                is reached"
            ));
        }
        add(&self.settings_cut, left_out.len() + flushes_cut);
        if flushes_cut > 0 {
            state.log_once(format!(
                "{device} does not receive all flushes: its limit of flushes is \
                                reached"
            ));
        }
        for (number, section) in &left_out {
            // `jobmeter set --list` shows all affected nodes.
            let what =
                format!("change {number}: nodes such as {device} do not receive [{section}]");
            state.log_error_of(&format!("{number} [{section}]"), || {
                format!("{what}: their limit is reached")
            });
        }
        let config_for = Arc::new(AgentConfig::of(settings));
        let newest = concerned.changes.iter().map(|change| change.number).max();
        state.note_composed(device, (config_for.generation, newest.unwrap_or(0)));
        if state.cached.len() >= CACHED_MAX {
            state.cached.clear();
        }
        let cached = CachedSettings {
            base: base.generation,
            config_for: Arc::clone(&config_for),
            valid_until,
            left_out,
        };
        state.cached.insert(device.clone(), cached);
        config_for
    }

    /// Returns the sections of a change that do not fit on a node. It is empty until the node's settings are
    /// composed.
    pub fn left_out(&self, device: &DeviceId, number: i64) -> Vec<Box<str>> {
        let state = self.lock();
        let left_out = state.cached.get(device).into_iter().flat_map(|cached| &cached.left_out);
        left_out.filter(|one| one.0 == number).map(|one| one.1.clone()).collect()
    }

    /// Returns the ID of the newest change in a generation of a node's settings. `None`: the generation is older
    /// than the remembered ones, or has no change.
    pub fn newest_change(&self, device: &DeviceId, generation: u64) -> Option<i64> {
        let state = self.lock();
        let of_it = state.composed.get(device)?.iter().filter(|one| one.0 == generation);
        of_it.map(|one| one.1).max()
    }

    /// Reloads everything in effect if the database has changed. May wait for the disk.
    pub fn refresh(&self, now: Timestamp) -> Result<(), DemandError> {
        let version = self.demand.version()?;
        if self.lock().version == Some(version) {
            return Ok(());
        }
        let (held, mut passed_over) = self.demand.held(now)?;
        for promotion in &held.promotions {
            if let Err(why) = expression::check(&promotion.metric) {
                let number = promotion.number;
                passed_over.push(format!("promotion {number} is skipped: {why}"));
            }
        }
        let active = Active::new(held);
        let mut state = self.lock();
        for why in passed_over {
            state.log_once(why);
        }
        state.held = Arc::new(active);
        state.cached.clear();
        state.version = Some(version);
        Ok(())
    }

    /// Ends entries that have expired.
    pub fn expire(&self, now: Timestamp) -> Result<(), DemandError> {
        if self.lock().held.next_end().is_some_and(|end| end <= now) {
            self.demand.expire(now)?;
        }
        self.refresh(now)
    }

    /// Updates promotions to match the running jobs and the rules.
    pub fn follow(
        &self,
        registry: &jobs::Registry,
        rules: &[Rule],
        now: Timestamp,
    ) -> Result<(), DemandError> {
        let jobs = registry.running_jobs()?;
        let running: BTreeSet<String> = jobs.iter().map(|job| job.key.to_string()).collect();
        let wanted = wanted(&jobs, rules);
        let FromJobs { began, ended, left_out } =
            self.demand.follow(&wanted, |job| running.contains(job), now)?;
        if began + ended > 0 {
            log::info!("{began} promotions began and {ended} ended with jobs and rules");
        }
        self.left_out.store(left_out, Ordering::Relaxed);
        if left_out > 0 {
            let config_for = "promotions requested by jobs are dropped: the limit of a user or of all \
                        users is reached";
            self.lock().log_once(config_for.to_owned());
        }
        self.refresh(now)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// Adds to a counter.
fn add(counter: &AtomicU64, amount: usize) {
    counter.fetch_add(u64::try_from(amount).unwrap_or(u64::MAX), Ordering::Relaxed);
}

impl State {
    /// Remembers which changes a generation of a node's settings has.
    fn note_composed(&mut self, device: &DeviceId, one: (u64, i64)) {
        if self.composed.len() >= CACHED_MAX && !self.composed.contains_key(device) {
            self.composed.clear();
        }
        let of_node = self.composed.entry(device.clone()).or_default();
        of_node.retain(|before| *before != one);
        of_node.push_back(one);
        let over = of_node.len().saturating_sub(GENERATIONS_MAX);
        of_node.drain(..over);
    }

    /// Logs a warning once.
    fn log_once(&mut self, what: String) {
        self.log_error_of(&what.clone(), || what);
    }

    /// Logs a warning once per subject.
    fn log_error_of(&mut self, subject: &str, what: impl FnOnce() -> String) {
        if self.config_for.len() < LOGGED_MAX && self.config_for.insert(subject.to_owned()) {
            log::warn!("{}", what());
        }
    }
}

impl Active {
    pub(super) fn new(held: ActiveRequests) -> Self {
        let changes = Index::of(held.changes.iter().map(|one| &one.nodes));
        let good = |one: &Promotion| expression::check(&one.metric).is_ok();
        let promotions =
            Index::where_good(held.promotions.iter().map(|one| (good(one), &one.nodes)));
        let flushes = Index::of(held.flushes.iter().map(|one| &one.nodes));
        let mut version = DefaultHasher::new();
        for Promotion { nodes, metric, until, origin, uid, .. } in &held.promotions {
            (nodes.as_str(), metric, until, origin.word(), uid).hash(&mut version);
        }
        for change in &held.changes {
            for period in polled_periods(&change.settings) {
                (change.number, period).hash(&mut version);
            }
        }
        for flush in held.flushes.iter().filter(|one| of_feed(one)) {
            flush.number.hash(&mut version);
        }
        Self { held, changes, promotions, flushes, pollers_version: version.finish() }
    }

    /// Returns a version of what pollers receive: it differs after each change.
    pub const fn pollers_version(&self) -> u64 {
        self.pollers_version
    }

    /// Returns the entries that concern a node at a time.
    fn of(&self, device: &str, now: Timestamp) -> NodeEntries<'_> {
        let ActiveRequests { changes, promotions, flushes } = &self.held;
        let mut of = NodeEntries {
            changes: self.changes.find(device, |at| changes.get(at).map(|one| (one, &one.nodes))),
            promotions: self
                .promotions
                .find(device, |at| promotions.get(at).map(|one| (one, &one.nodes))),
            flushes: self.flushes.find(device, |at| flushes.get(at).map(|one| (one, &one.nodes))),
        };
        of.changes.retain(|change| change.until > now);
        of.promotions.retain(|promotion| promotion.until.is_none_or(|until| until > now));
        of.flushes.retain(|flush| flush_holds(flush, now) && !of_feed(flush));
        of
    }

    /// Returns the earliest expiry of the entries in effect.
    fn next_end(&self) -> Option<Timestamp> {
        let changes = self.held.changes.iter().map(|change| change.until);
        changes.chain(self.held.promotions.iter().filter_map(|promotion| promotion.until)).min()
    }
}

impl Index {
    fn of<'a>(lists: impl Iterator<Item = &'a NodeList>) -> Self {
        Self::where_good(lists.map(|list| (true, list)))
    }

    fn where_good<'a>(lists: impl Iterator<Item = (bool, &'a NodeList)>) -> Self {
        let mut index = Self::default();
        for (at, (_, list)) in lists.enumerate().filter(|(_, (good, _))| *good) {
            match list.plain() {
                None => index.patterns.push(at),
                Some(names) => {
                    for name in names {
                        index.plain.entry(name.into()).or_default().push(at);
                    }
                }
            }
        }
        index
    }

    /// Returns the entries that concern a node, in their order.
    pub(super) fn find<'a, T>(
        &self,
        device: &str,
        get: impl Fn(usize) -> Option<(&'a T, &'a NodeList)>,
    ) -> Vec<&'a T> {
        let plain = self.plain.get(device).into_iter().flatten().copied();
        let is_meant = |at: &usize| get(*at).is_some_and(|(_, nodes)| nodes.has(device));
        let patterns = self.patterns.iter().copied().filter(is_meant);
        let places: BTreeSet<usize> = plain.chain(patterns).collect();
        places.into_iter().filter_map(|at| get(at).map(|(found, _)| found)).collect()
    }
}
