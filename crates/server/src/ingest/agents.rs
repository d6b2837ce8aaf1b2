//! State that agents report in the headers of their requests: version, clock, applied settings and source
//! status.

use crate::common::counts::Counter;
use api::{Node, RestrictedSource, SourceError};
use axum::http::{HeaderMap, header};
use model::{DeviceId, NodeList, Origin, Timestamp};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Request header: the sender's clock, in µs.
const NOW: &str = "x-jobmeter-now";
/// Request header: the generation of the server's settings that the agent has applied.
const GENERATION: &str = "x-jobmeter-config";
/// Request header: the settings that the agent rejected.
const REJECTED: &str = "x-jobmeter-refused";
/// Request header: sources with missing or incomplete samples.
const SOURCES: &str = "x-jobmeter-sources";
/// Request header: sources that the agent does not read, or only in part, each with the reason: `file`,
/// `server` or `optional`.
const UNREAD: &str = "x-jobmeter-unread";
/// Request header: the agent is shutting down.
const STOP: &str = "x-jobmeter-stop";
/// Request header: maximum time until the agent's next batch, in µs.
const WAIT: &str = "x-jobmeter-wait";
/// Maximum accepted value of this time: the longest period of a source.
const WAIT_MAX: i64 = 24 * 3600 * Timestamp::SECOND;
/// Maximum number of remembered agents; beyond it, the longest silent ones are evicted.
const AGENTS_MAX: usize = 100_000;
/// Part of them that is evicted at once, so that the search for them is rare.
const EVICTED_SHARE: usize = 64;
/// If all agents report, the next search for silent ones follows after this time.
const SEARCH_AGAIN_US: i64 = 10 * Timestamp::SECOND;
/// Maximum length of a remembered version, in characters.
const VERSION_CHARS_MAX: usize = 64;
/// Maximum length of a remembered rejection, in characters.
const REJECTED_CHARS_MAX: usize = 1024;
/// Maximum length of a remembered source status, in characters, and maximum number of sources.
const SOURCES_CHARS_MAX: usize = 1024;
const SOURCES_MAX: usize = 64;
/// The server logs clock offsets larger than this.
const OFFSET_REPORTED_US: i64 = 2 * Timestamp::SECOND;

/// The agents seen since this server started.
#[derive(Debug, Default)]
pub(crate) struct Agents {
    known: Mutex<HashMap<Origin, Agent>>,
    /// Time of the latest search for silent agents that found none.
    all_reported: Mutex<Timestamp>,
    /// Evicted agents.
    pub(crate) evicted: Counter,
    /// Requests of agents that are not remembered, because all others report.
    pub(crate) not_remembered: Counter,
}

#[derive(Debug, Default)]
struct Agent {
    version: Option<String>,
    /// Clock offset by the latest request: agent minus server, minus the transfer time.
    offset_us: Option<i64>,
    /// Clock offset by the previous request.
    earlier_offset_us: Option<i64>,
    generation: Option<u64>,
    rejected: Option<String>,
    /// Unparsed header.
    source_errors: Option<String>,
    /// Unparsed header.
    restricted: Option<String>,
    /// Time of the latest request with a status of the sources.
    source_errors_at: Timestamp,
    /// Latest past error of each source.
    ended: Vec<LastError>,
    wait_us: Option<i64>,
    /// Time of the latest request.
    seen: Timestamp,
    stopped: bool,
}

/// Number of agents seen since this server started, and of those that report now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AgentCounts {
    pub(crate) known: u64,
    pub(crate) reporting: u64,
}

/// An error of a source, and the time when its agent last reported it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LastError {
    pub(crate) at: Timestamp,
    pub(crate) error: SourceError,
}

impl LastError {
    /// Converts to the form of `/api/v1`.
    pub(crate) fn shown(self) -> api::LastError {
        let SourceError { state, reason, .. } = self.error;
        api::LastError { time: self.at.seconds(), state, reason }
    }
}

/// An agent seen since this server started, and its applied and rejected settings.
#[derive(Debug)]
pub(crate) struct AgentReport {
    pub(crate) device: DeviceId,
    pub(crate) generation: Option<u64>,
    pub(crate) rejected: Option<String>,
}

impl Agents {
    /// Returns the agents on a list of nodes.
    pub(crate) fn matching(&self, nodes: &NodeList) -> Vec<AgentReport> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let report_of = |(origin, agent): (&Origin, &Agent)| {
            if !nodes.has(origin.as_str()) {
                return None;
            }
            let device = DeviceId::new(origin.as_str()).ok()?;
            Some(AgentReport {
                device,
                generation: agent.generation,
                rejected: agent.rejected.clone(),
            })
        };
        let mut found: Vec<AgentReport> = known.iter().filter_map(report_of).collect();
        found.sort_unstable_by(|a, b| a.device.cmp(&b.device));
        found
    }

    /// Restores the agents that reported their shutdown before this server started.
    pub(crate) fn stopped_before(stopped: Vec<Origin>) -> Self {
        let agent = || Agent { stopped: true, ..Agent::default() };
        let known = stopped.into_iter().take(AGENTS_MAX).map(|origin| (origin, agent())).collect();
        Self { known: Mutex::new(known), ..Self::default() }
    }

    /// Forgets the agent of a node.
    pub(crate) fn forget(&self, device: &DeviceId) {
        let Ok(origin) = Origin::new(device.as_str()) else { return };
        self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(&origin);
    }

    /// Counts the agents on a list of nodes.
    pub(crate) fn counted(&self, nodes: &NodeList, now: Timestamp) -> AgentCounts {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let meant = known.iter().filter(|(origin, _)| nodes.has(origin.as_str()));
        let mut counted = AgentCounts::default();
        for (_, agent) in meant {
            counted.known += 1;
            counted.reporting += u64::from(agent.reports(now));
        }
        counted
    }

    /// Records the headers of an agent's request, not of `jobmeter run`. Returns whether the agent is
    /// shutting down, if this has changed.
    pub(crate) fn met(
        &self,
        origin: &Origin,
        headers: &HeaderMap,
        received: Timestamp,
    ) -> Option<bool> {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let offset_us = offset_us(headers, received);
        let program = text(header::USER_AGENT.as_str());
        let version = program.map(|program| program.split_once('/').map_or(program, |(_, v)| v));
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.contains_key(origin) && !self.make_space(&mut known, AGENTS_MAX, received) {
            self.not_remembered.add(1);
            return None;
        }
        let agent = known.entry(origin.clone()).or_default();
        agent.earlier_offset_us = std::mem::replace(&mut agent.offset_us, offset_us);
        if let Some(offset) = agent.clock_offset_us()
            && offset.unsigned_abs() > OFFSET_REPORTED_US.unsigned_abs()
        {
            let seconds = offset as f64 / 1e6;
            log::warn!("the clock of {origin} is {seconds:+.1} s off ours; set both by NTP");
        }
        agent.generation = generation(headers);
        remember(&mut agent.version, version, VERSION_CHARS_MAX);
        agent.note_source_errors(text(SOURCES), received);
        remember(&mut agent.restricted, text(UNREAD), SOURCES_CHARS_MAX);
        let wait = text(WAIT).and_then(|wait| wait.parse().ok());
        agent.wait_us = wait.filter(|wait| (1..=WAIT_MAX).contains(wait));
        let stopped = std::mem::replace(&mut agent.stopped, text(STOP).is_some());
        let news = Some(agent.stopped).filter(|now| *now != stopped);
        agent.seen = received;
        let rejected = text(REJECTED);
        if remember(&mut agent.rejected, rejected, REJECTED_CHARS_MAX)
            && let Some(why) = &agent.rejected
        {
            log::warn!("{origin} rejected settings: {why}");
        }
        news
    }

    /// Makes room for one more agent. Evicts the longest silent ones, never one that reports: otherwise invented
    /// agents would displace real ones. Returns false if there is no room.
    fn make_space(&self, known: &mut HashMap<Origin, Agent>, max: usize, now: Timestamp) -> bool {
        if known.len() < max {
            return true;
        }
        let mut all_reported = self.all_reported.lock().unwrap_or_else(PoisonError::into_inner);
        if (0..SEARCH_AGAIN_US).contains(&now.since(*all_reported)) {
            return false;
        }
        let silent = known.iter().filter(|(_, agent)| !agent.reports(now));
        let mut silent: Vec<(Timestamp, Origin)> =
            silent.map(|(origin, agent)| (agent.seen, origin.clone())).collect();
        silent.sort_unstable();
        silent.truncate(max.div_ceil(EVICTED_SHARE));
        for (_, origin) in &silent {
            known.remove(origin);
        }
        self.evicted.add(silent.len());
        if silent.is_empty() {
            *all_reported = now;
        }
        known.len() < max
    }

    /// Adds the state reported by its agent to a node. The reported clock offset replaces the estimate from
    /// batches, which may have waited. The reported wait time replaces the observed interval of batches,
    /// which is wrong just after the agent's period has changed.
    pub(crate) fn add_status(&self, node: &mut Node, now: Timestamp) {
        let Ok(origin) = Origin::new(&node.device) else { return };
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(agent) = known.get(&origin) else { return };
        node.agent_version.clone_from(&agent.version);
        node.config_generation = agent.generation;
        node.config_rejected.clone_from(&agent.rejected);
        node.stopped = agent.stopped;
        if let Some(wait_us) = agent.wait_us {
            node.period_seconds = Some(wait_us as f64 / 1e6);
            query::judge(node, now);
        }
        // After the last batch, none will follow.
        node.alive &= !agent.stopped;
        node.source_errors = agent.source_errors.as_deref().map_or_else(Vec::new, source_errors);
        node.sources_restricted =
            agent.restricted.as_deref().map_or_else(Vec::new, restricted_sources);
        if let Some(offset) = agent.clock_offset_us() {
            node.clock_offset_seconds = Some(offset as f64 / 1e6);
        }
    }

    /// Returns the latest error of a source that a node's agent reported since this server started.
    pub(crate) fn last_error(&self, device: &str, source: &str) -> Option<LastError> {
        let origin = Origin::new(device).ok()?;
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let agent = known.get(&origin)?;
        let now = agent.source_errors.as_deref().map_or_else(Vec::new, source_errors).into_iter();
        let now = now.map(|error| LastError { at: agent.source_errors_at, error });
        now.chain(agent.ended.iter().cloned()).find(|last| last.error.source == source)
    }
}

impl Agent {
    /// Returns the clock offset: agent minus server. A delayed request, for example during a server
    /// restart, makes the offset too small, never too large. The larger of two requests therefore counts. A
    /// single request counts only if its offset is at least −2 s.
    fn clock_offset_us(&self) -> Option<i64> {
        let offset = self.offset_us?;
        match self.earlier_offset_us {
            Some(earlier) => Some(offset.max(earlier)),
            None => Some(offset).filter(|offset| *offset >= -OFFSET_REPORTED_US),
        }
    }

    /// Whether the agent neither is silent, by its reported wait time, nor has shut down.
    fn reports(&self, now: Timestamp) -> bool {
        let wait = self.wait_us.map(|wait_us| wait_us as f64 / 1e6);
        !self.stopped && now.since(self.seen) as f64 / 1e6 <= query::patience(wait)
    }

    /// Records the source errors of a request; keeps the previous errors as past errors.
    fn note_source_errors(&mut self, header: Option<&str>, received: Timestamp) {
        let at = std::mem::replace(&mut self.source_errors_at, received);
        let before = self.source_errors.clone();
        if !remember(&mut self.source_errors, header, SOURCES_CHARS_MAX) {
            return;
        }
        for error in before.as_deref().map_or_else(Vec::new, source_errors) {
            self.ended.retain(|last| last.error.source != error.source);
            self.ended.push(LastError { at, error });
        }
        let over = self.ended.len().saturating_sub(SOURCES_MAX);
        self.ended.drain(..over);
    }
}

/// Parses source errors: `perf denied: counters; grant CAP_PERFMON | exec broken: …`.
fn source_errors(text: &str) -> Vec<SourceError> {
    let one = |text: &str| {
        let (words, why) = text.split_once(": ").unwrap_or((text, ""));
        let (source, state) = words.trim().split_once(' ')?;
        let (source, state, why) = (source.to_owned(), state.to_owned(), why.to_owned());
        Some(SourceError { source, state, reason: why })
    };
    text.split(" | ").filter_map(one).take(SOURCES_MAX).collect()
}

/// Parses disabled sources: `load file | process optional process_io_.*`. Ignores reasons that this version
/// does not know.
fn restricted_sources(text: &str) -> Vec<RestrictedSource> {
    let one = |text: &str| {
        let mut words = text.split_ascii_whitespace().map(str::to_owned);
        let (source, why) = words.next().zip(words.next())?;
        let is_known = matches!(&*why, "file" | "server" | "optional");
        is_known.then(|| RestrictedSource { source, reason: why, optional: words.collect() })
    };
    text.split(" | ").filter_map(one).take(SOURCES_MAX).collect()
}

/// Returns the sender's clock minus the server's, minus the transfer time, in µs, as a request reports it.
fn offset_us(headers: &HeaderMap, received: Timestamp) -> Option<i64> {
    let now = headers.get(NOW)?.to_str().ok()?.parse().ok().map(Timestamp)?;
    Some(now.since(received))
}

/// Returns the clock offset if it is larger than a request's transfer time explains; otherwise 0.
pub(crate) fn ahead_us(headers: &HeaderMap, received: Timestamp) -> i64 {
    let is_off = |us: &i64| us.unsigned_abs() > OFFSET_REPORTED_US.unsigned_abs();
    offset_us(headers, received).filter(is_off).unwrap_or(0)
}

/// Returns the generation in a request's headers.
pub(crate) fn generation(headers: &HeaderMap) -> Option<u64> {
    headers.get(GENERATION)?.to_str().ok()?.parse().ok()
}

/// Stores a header, truncated to `chars_max` characters. Returns whether it has changed.
fn remember(kept: &mut Option<String>, header: Option<&str>, chars_max: usize) -> bool {
    let cut = |text: &str| text.char_indices().nth(chars_max).map_or(text.len(), |(at, _)| at);
    let header = header.and_then(|text| text.get(..cut(text)));
    let is_news = kept.as_deref() != header;
    if is_news {
        *kept = header.map(str::to_owned);
    }
    is_news
}

#[cfg(test)]
mod tests;
