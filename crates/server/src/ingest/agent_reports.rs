//! State that agents report in the header of their requests: version, clock, applied settings and source status.

use crate::common::counts::Counter;
use api::{Node, RestrictedSource, SettingRejection, SourceError};
use axum::http::{HeaderMap, header};
use model::setting::{AgentStatus, Rejection, SourceStatus, UnreadSource};
use model::{DeviceId, NodeList, Origin, Timestamp};
use parking_lot::Mutex;
use std::collections::HashMap;
use wire::STATUS_HEADER;

/// Maximum accepted time until an agent's next batch: the longest period of a source.
const WAIT_MAX_US: u64 = 24 * 3600 * 1_000_000;
/// Maximum number of remembered agents; beyond it, the longest silent ones are evicted.
const AGENTS_MAX: usize = 100_000;
/// Part of them that is evicted at once, so that the search for them is rare.
const EVICTED_SHARE: usize = 64;
/// If all agents report, the next search for silent ones follows after this time.
const SEARCH_AGAIN_US: i64 = 10 * Timestamp::SECOND;
/// Maximum length of a remembered version, in characters.
const VERSION_CHARS_MAX: usize = 64;
/// Maximum number of remembered past errors of an agent's sources.
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
    /// Status headers that could not be decoded.
    pub(crate) malformed: Counter,
    /// Entries that did not fit into status headers.
    pub(crate) cut: Counter,
}

#[derive(Debug, Default)]
struct Agent {
    version: Option<String>,
    /// Clock offset by the latest request: agent minus server, minus the transfer time.
    offset_us: Option<i64>,
    /// Clock offset by the previous request.
    earlier_offset_us: Option<i64>,
    generation: Option<u64>,
    rejected: Vec<Rejection>,
    source_errors: Vec<SourceStatus>,
    unread: Vec<UnreadSource>,
    /// Time of the latest request with a status of the sources.
    source_errors_at: Timestamp,
    /// Latest past error of each source.
    ended: Vec<LastError>,
    wait_us: Option<u64>,
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
    pub(crate) error: SourceStatus,
}

impl LastError {
    /// Converts to the form of `/api/v1`.
    pub(crate) fn shown(self) -> api::LastError {
        let SourceStatus { state, reason, .. } = self.error;
        api::LastError { time: self.at.seconds(), state: state.word().to_owned(), reason }
    }
}

/// An agent seen since this server started, and its applied and rejected settings.
#[derive(Debug)]
pub(crate) struct AgentReport {
    pub(crate) device: DeviceId,
    pub(crate) generation: Option<u64>,
    pub(crate) rejected: Vec<Rejection>,
}

impl Agents {
    /// Returns the agents on a list of nodes.
    pub(crate) fn matching(&self, nodes: &NodeList) -> Vec<AgentReport> {
        let known = self.known.lock();
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
        self.known.lock().remove(&origin);
    }

    /// Counts the agents on a list of nodes.
    pub(crate) fn counted(&self, nodes: &NodeList, now: Timestamp) -> AgentCounts {
        let known = self.known.lock();
        let is_meant = |origin: &Origin| !origin.is_poller_group() && nodes.has(origin.as_str());
        let meant = known.iter().filter(|(origin, _)| is_meant(origin));
        let mut counted = AgentCounts::default();
        for (_, agent) in meant {
            counted.known += 1;
            counted.reporting += u64::from(agent.reports(now));
        }
        counted
    }

    /// Returns those of the names that have an agent which reports now.
    pub(crate) fn reporting_of(&self, names: Vec<String>, now: Timestamp) -> Vec<String> {
        let known = self.known.lock();
        let mut names = names;
        names.retain(|name| {
            let origin = Origin::new(name).ok();
            origin.and_then(|origin| known.get(&origin)).is_some_and(|agent| agent.reports(now))
        });
        names
    }

    /// Returns whether a node has an agent that reports now.
    pub(crate) fn has_reporting(&self, device: &DeviceId, now: Timestamp) -> bool {
        !self.reporting_of(vec![device.to_string()], now).is_empty()
    }

    /// Reads what a request's headers report. A status that cannot be decoded is counted, and the request is accepted
    /// without it.
    pub(crate) fn reported(&self, headers: &HeaderMap) -> Reported {
        let status = headers.get(STATUS_HEADER).and_then(|text| {
            let status = wire::decode_status(text.as_bytes());
            status.inspect_err(|_| self.malformed.add(1)).ok()
        });
        let cut = status.as_ref().map_or(0, |status| status.cut);
        self.cut.add(usize::try_from(cut).unwrap_or(usize::MAX));
        let program = headers.get(header::USER_AGENT).and_then(|text| text.to_str().ok());
        let version = program.map(|program| program.split_once('/').map_or(program, |(_, v)| v));
        let version = version.map(|version| version.chars().take(VERSION_CHARS_MAX).collect());
        Reported { version, status }
    }

    /// Records a request of an agent, not of `jobmeter run`. Returns whether the agent is shutting down, if this has
    /// changed.
    pub(crate) fn met(
        &self,
        origin: &Origin,
        reported: &Reported,
        received: Timestamp,
    ) -> Option<bool> {
        let mut known = self.known.lock();
        if !known.contains_key(origin) && !self.make_space(&mut known, AGENTS_MAX, received) {
            self.not_remembered.add(1);
            return None;
        }
        let agent = known.entry(origin.clone()).or_default();
        let offset_us = reported.offset_us(received);
        agent.earlier_offset_us = std::mem::replace(&mut agent.offset_us, offset_us);
        if let Some(offset) = agent.clock_offset_us()
            && offset.unsigned_abs() > OFFSET_REPORTED_US.unsigned_abs()
        {
            let seconds = offset as f64 / 1e6;
            log::warn!("the clock of {origin} is {seconds:+.1} s off ours; set both by NTP");
        }
        agent.version.clone_from(&reported.version);
        agent.generation = reported.generation();
        let status = reported.status.clone().unwrap_or_default();
        agent.note_source_errors(status.sources, received);
        agent.unread = status.unread;
        agent.wait_us = Some(status.wait_us).filter(|wait| (1..=WAIT_MAX_US).contains(wait));
        let stopped = std::mem::replace(&mut agent.stopped, status.stops);
        let news = Some(agent.stopped).filter(|now| *now != stopped);
        agent.seen = received;
        if agent.rejected != status.rejected {
            agent.rejected = status.rejected;
            if !agent.rejected.is_empty() {
                let why: Vec<String> = agent.rejected.iter().map(ToString::to_string).collect();
                log::warn!("{origin} rejects settings: {}", why.join("; "));
            }
        }
        news
    }

    /// Makes room for one more agent. Evicts the longest silent ones, never one that reports: otherwise invented
    /// agents would displace real ones. Returns false if there is no room.
    fn make_space(&self, known: &mut HashMap<Origin, Agent>, max: usize, now: Timestamp) -> bool {
        if known.len() < max {
            return true;
        }
        let mut all_reported = self.all_reported.lock();
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
        let known = self.known.lock();
        let Some(agent) = known.get(&origin) else { return };
        node.agent_version.clone_from(&agent.version);
        node.config_generation = agent.generation;
        node.config_rejected = agent.rejected.iter().cloned().map(shown_rejection).collect();
        node.stopped = agent.stopped;
        if let Some(wait_us) = agent.wait_us {
            node.period_seconds = Some(wait_us as f64 / 1e6);
            query::judge(node, now);
        }
        // After the last batch, none will follow.
        node.alive &= !agent.stopped;
        node.source_errors = agent.source_errors.iter().cloned().map(shown_error).collect();
        node.sources_restricted = agent.unread.iter().cloned().map(shown_restriction).collect();
        if let Some(offset) = agent.clock_offset_us() {
            node.clock_offset_seconds = Some(offset as f64 / 1e6);
        }
    }

    /// Returns the latest error of a source that a node's agent reported since this server started.
    pub(crate) fn last_error(&self, device: &str, source: &str) -> Option<LastError> {
        let origin = Origin::new(device).ok()?;
        let known = self.known.lock();
        let agent = known.get(&origin)?;
        let now = agent.source_errors.iter().cloned();
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
    fn note_source_errors(&mut self, now: Vec<SourceStatus>, received: Timestamp) {
        let at = std::mem::replace(&mut self.source_errors_at, received);
        if self.source_errors == now {
            return;
        }
        for error in std::mem::replace(&mut self.source_errors, now) {
            self.ended.retain(|last| last.error.source != error.source);
            self.ended.push(LastError { at, error });
        }
        let over = self.ended.len().saturating_sub(SOURCES_MAX);
        self.ended.drain(..over);
    }
}

/// What the headers of a request report.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reported {
    version: Option<String>,
    status: Option<AgentStatus>,
}

impl Reported {
    /// Returns the generation of the settings that the sender applies.
    pub(crate) fn generation(&self) -> Option<u64> {
        self.status.as_ref().map(|status| status.generation)
    }

    /// Returns the sender's clock minus the server's, minus the transfer time, in µs.
    fn offset_us(&self, received: Timestamp) -> Option<i64> {
        self.status.as_ref().map(|status| status.now.since(received))
    }

    /// Returns the clock offset if it is larger than a request's transfer time explains; otherwise 0.
    pub(crate) fn ahead_us(&self, received: Timestamp) -> i64 {
        let is_off = |us: &i64| us.unsigned_abs() > OFFSET_REPORTED_US.unsigned_abs();
        self.offset_us(received).filter(is_off).unwrap_or(0)
    }
}

fn shown_rejection(Rejection { setting, code, reason, .. }: Rejection) -> SettingRejection {
    SettingRejection { setting, code: code.word().to_owned(), reason }
}

fn shown_error(SourceStatus { source, state, reason }: SourceStatus) -> SourceError {
    SourceError { source, state: state.word().to_owned(), reason }
}

fn shown_restriction(UnreadSource { source, reason, optional }: UnreadSource) -> RestrictedSource {
    RestrictedSource { source, reason: reason.word().to_owned(), optional }
}

#[cfg(test)]
mod tests;
