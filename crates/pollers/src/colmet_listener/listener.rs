//! Messages of all hosts on their way to the groups.

use super::fault_counts::FaultCounts;
use super::host::counter_files::HostCounters;
use super::host::{Agent, Begun, Host};
use super::hosts::{Admission, Hosts, HostsError};
use super::jobs::JOBS_MAX;
use super::message::{Arrival, Fault, Message, Records};
use super::plan::Plans;
use crate::running::{Demand, DemandNames, Names, follow_demand};
use crate::sending::Missing;
use colmet::record::Record;
use config::PollerConfig;
use delivery::{Clock, DeliveryError};
use model::{Cause, JobEvent, Labels, Metric, Timestamp, Unit};
use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// Source of gaps between messages.
const SOURCE: &str = "colmet";
/// A record further ahead is wrong: until its instant has come, the counters of its host would wait, and the host seem alive.
const AHEAD_MAX_US: i64 = 600 * Timestamp::SECOND;
/// An older record is wrong: no node keeps messages for longer without a receiver.
const BEHIND_MAX_US: i64 = 7 * 24 * 3600 * Timestamp::SECOND;
/// Longest wait for the server to report which hosts have an agent.
const AGENTS_WAIT_US: i64 = 60 * Timestamp::SECOND;
/// Bytes of messages that wait for this.
const HELD_BYTES_MAX: usize = 32 << 20;
/// Interval between values of the counter of messages.
const REPORT_US: i64 = 60 * Timestamp::SECOND;
/// Longest interval between writes of the file with the hosts.
const SAVE_US: i64 = 60 * Timestamp::SECOND;
/// Jobs of all hosts.
const JOBS_OF_ALL_MAX: usize = 32_768;
/// Colmet's own period, before that of a host is known.
const PERIOD: Duration = Duration::from_secs(5);

/// The listener.
#[derive(Debug)]
pub(super) struct Listener<'a> {
    config: &'a PollerConfig,
    clock: &'a Arc<dyn Clock>,
    pub(super) hosts: Hosts<'a>,
    plans: Plans,
    pub(super) faults: FaultCounts,
    messages: Arc<Metric>,
    /// Messages of hosts of which the agents are not known yet.
    held: VecDeque<Message>,
    held_bytes: usize,
    names: Names,
    demand: watch::Receiver<Arc<Demand>>,
    /// Whether hosts of an earlier start wait for the first response.
    waits_for_agents: bool,
    /// When the server responded last, or the start.
    answered_us: i64,
    begun: Timestamp,
    reported: Timestamp,
    saved: Timestamp,
    /// Jobs that began or ended since the last sealing.
    events: Vec<JobEvent>,
    /// Whether the file lacks something that the next start needs.
    is_unsaved: bool,
    is_save_failing: bool,
    are_names_old: bool,
    jobs: usize,
}

/// A message that is being stored.
#[derive(Default)]
struct Progress {
    /// The hosts that it has records of, each with its jobs before.
    hosts: Vec<(usize, usize)>,
    /// The host of the last record, as sent.
    last: Option<(String, usize)>,
    is_faulty: bool,
    /// Whether a record is missing, so that a job without one may be there.
    is_cut: bool,
}

impl<'a> Listener<'a> {
    /// A listener with the hosts of an earlier start.
    pub(super) fn new(
        config: &'a PollerConfig,
        clock: &'a Arc<dyn Clock>,
    ) -> Result<Self, HostsError> {
        let mut events = Vec::new();
        let hosts = Hosts::open(config, clock, &mut events)?;
        let names = Names::default();
        let demand = follow_demand(config, &hosts.poller, &names).map_err(DeliveryError::from)?;
        let (begun, answered_us) = (clock.wall(), clock.steady_us());
        let mut listener = Self {
            config,
            clock,
            plans: Plans::default(),
            faults: FaultCounts::default(),
            messages: Arc::new(Metric::counter(
                "colmet_messages_total",
                Unit::Count,
                "Messages of Colmet's nodes by state, since the listener began: ok, and one for each reason why a message, or a record of one, is not stored as sent.",
            )),
            held: VecDeque::new(),
            held_bytes: 0,
            names,
            demand,
            waits_for_agents: !hosts.list.is_empty(),
            answered_us,
            begun,
            reported: begun,
            saved: begun,
            events,
            is_unsaved: false,
            is_save_failing: false,
            are_names_old: !hosts.list.is_empty(),
            jobs: hosts.list.iter().map(|host| host.jobs.count()).sum(),
            hosts,
        };
        listener.read_counters();
        listener.set_names();
        Ok(listener)
    }

    /// Reads the files that name counters again.
    pub(super) fn read_counters(&mut self) {
        let dir = self.config.colmet.mapping_dir.as_deref();
        for host in &mut self.hosts.list {
            host.set_counters(HostCounters::read(dir, &host.device), &mut self.plans);
        }
    }

    /// Whether messages are read: not while the server has not reported which hosts have agents, and not while the spool is full.
    pub(super) fn is_open(&mut self) -> bool {
        if self.waits_for_agents && self.is_server_silent() {
            log::warn!(
                "the server does not report which hosts have an agent; what the last start knew counts"
            );
            self.waits_for_agents = false;
        }
        !self.waits_for_agents && self.held_bytes < HELD_BYTES_MAX && !self.hosts.is_full()
    }

    /// Whether the server has reported no agents for so long that nothing waits for it.
    fn is_server_silent(&self) -> bool {
        self.clock.steady_us().saturating_sub(self.answered_us) >= AGENTS_WAIT_US
    }

    /// Takes what arrived.
    pub(super) fn take(&mut self, arrival: Arrival) -> Result<(), HostsError> {
        let message = match arrival {
            Arrival::Message(message) => message,
            Arrival::Fault(peer, fault, what) => {
                self.faults.count(peer, fault, &what);
                return Ok(());
            }
        };
        let networks = &self.config.colmet.networks;
        if !networks.is_empty() && !networks.iter().any(|network| network.has(message.peer)) {
            self.faults.count(
                message.peer,
                Fault::ForeignAddress,
                "an address beyond the networks",
            );
            return Ok(());
        }
        if self.must_wait(&message)? {
            self.held_bytes += message.bytes.len();
            self.held.push_back(message);
            return Ok(());
        }
        self.store(&message)
    }

    /// Whether it is unknown whether the host of a message has an agent.
    fn must_wait(&mut self, message: &Message) -> Result<bool, HostsError> {
        let Some(Ok(first)) = Records::of(&message.bytes).next() else { return Ok(false) };
        let Ok(place) = self.place(&first)? else { return Ok(false) };
        let (now, is_silent) = (self.clock.steady_us(), self.is_server_silent());
        let Some(host) = self.hosts.list.get_mut(place) else { return Ok(false) };
        let must_wait = match host.agent {
            Agent::Known => false,
            Agent::UnknownSince(since) => !is_silent && now.saturating_sub(since) < AGENTS_WAIT_US,
        };
        if must_wait {
            host.held_since.get_or_insert(first.at);
        }
        Ok(must_wait)
    }

    /// The place of a record's host, which is added if it is new.
    fn place(&mut self, record: &Record) -> Result<Result<usize, Fault>, HostsError> {
        let name = record.host.split('.').next().unwrap_or_default();
        if let Some(place) = self.hosts.place(name) {
            return Ok(Ok(place));
        }
        let Ok(device) = record.device() else { return Ok(Err(Fault::WrongName)) };
        // The listener's own device is in the first group.
        if device == self.hosts.poller {
            return Ok(Err(Fault::WrongName));
        }
        match self.hosts.admits(&device) {
            Admission::Foreign => return Ok(Err(Fault::ForeignHost)),
            Admission::TooMany => return Ok(Err(Fault::TooMany)),
            Admission::Good => {}
        }
        let place = self.hosts.add_new(device)?;
        (self.is_unsaved, self.are_names_old) = (true, true);
        let dir = self.config.colmet.mapping_dir.as_deref();
        if let Some(host) = self.hosts.list.get_mut(place) {
            host.set_counters(HostCounters::read(dir, &host.device), &mut self.plans);
        }
        Ok(Ok(place))
    }

    /// Stores a message.
    fn store(&mut self, message: &Message) -> Result<(), HostsError> {
        let mut progress = Progress::default();
        for record in Records::of(&message.bytes) {
            let outcome = match record {
                Ok(record) => self.store_record(&record, &mut progress)?.map_err(|fault| {
                    let Record { backend, host, job, at, .. } = &record;
                    (fault, format!("{} of job {job} from {host} at {at}", backend.id))
                }),
                Err(error) => Err(error),
            };
            if let Err((fault, what)) = outcome {
                progress.is_faulty = true;
                progress.is_cut |= !matches!(fault, Fault::Repeated | Fault::Late);
                self.faults.count(message.peer, fault, &what);
            }
        }
        if !progress.is_faulty {
            self.faults.good += 1;
        }
        let (now, before) = (self.clock.wall(), self.events.len());
        for (place, jobs) in progress.hosts {
            let Some(host) = self.hosts.list.get_mut(place) else { continue };
            let ended = host.end(!progress.is_cut, &mut self.events);
            self.jobs = (self.jobs + host.jobs.count()).saturating_sub(jobs);
            self.hosts.remember_ended(ended, now);
        }
        self.is_unsaved |= self.events.len() > before;
        Ok(())
    }

    fn store_record(
        &mut self,
        record: &Record,
        progress: &mut Progress,
    ) -> Result<Result<(), Fault>, HostsError> {
        let now = self.clock.wall();
        if !(now.plus(-BEHIND_MAX_US)..=now.plus(AHEAD_MAX_US)).contains(&record.at) {
            return Ok(Err(Fault::WrongTime));
        }
        let place = match &progress.last {
            Some((host, place)) if *host == record.host => *place,
            _ => match self.place(record)? {
                Ok(place) => place,
                Err(fault) => return Ok(Err(fault)),
            },
        };
        progress.last = Some((record.host.clone(), place));
        if !progress.hosts.iter().any(|(one, _)| *one == place) {
            let jobs = self.begin(place, record.at, now);
            progress.hosts.push((place, jobs));
        }
        let free = JOBS_OF_ALL_MAX.saturating_sub(self.jobs);
        let (plans, events) = (&mut self.plans, &mut self.events);
        let before = events.len();
        let Some((host, group)) = self.hosts.with_group(place) else { return Ok(Ok(())) };
        let jobs_max = host.jobs.count().saturating_add(free).min(JOBS_MAX);
        let device = host.device.clone();
        let mut out = |sample: super::series::Sample<'_>| {
            let series = (&device, &sample.column.metric, &sample.column.labels);
            group.add_job_value(sample.at, sample.job, series, sample.start, sample.value);
        };
        let limits = (&self.config.colmet.cluster, jobs_max);
        let stored = host.take(record, limits, plans, (&mut out, events));
        self.is_unsaved |= events.len() > before;
        Ok(stored)
    }

    /// Begins a message of a host. Returns its jobs.
    fn begin(&mut self, place: usize, at: Timestamp, now: Timestamp) -> usize {
        let Some(host) = self.hosts.list.get(place) else { return 0 };
        let since = self.hosts.known_since(host, at);
        let Some((host, group)) = self.hosts.with_group(place) else { return 0 };
        match host.begin(at, now) {
            Begun::First => {
                let period = host.period_us().and_then(|micros| u64::try_from(micros).ok());
                let period = period.map_or(PERIOD, Duration::from_micros);
                group.note_down((&host.device, since), at, period);
            }
            Begun::AfterGap(from, to) => group.miss(Missing {
                device: host.device.clone(),
                source: SOURCE.to_owned(),
                span: (from, to),
                cause: Cause::SourceTimeout,
                detail: "no message of Colmet's node".to_owned(),
            }),
            Begun::Follows | Begun::Overtaken => {}
        }
        host.jobs.count()
    }

    /// Follows what the server reports of agents, and stores the messages that waited for it.
    pub(super) fn follow_agents(&mut self) -> Result<(), HostsError> {
        if !self.demand.has_changed().unwrap_or(false) {
            return Ok(());
        }
        let demand = Arc::clone(&self.demand.borrow_and_update());
        let Some(agents) = &demand.agents else { return Ok(()) };
        (self.answered_us, self.waits_for_agents) = (self.clock.steady_us(), false);
        for name in &demand.queried.names {
            let place = self.hosts.place(name);
            let Some(host) = place.and_then(|place| self.hosts.list.get_mut(place)) else {
                continue;
            };
            self.is_unsaved |= host.has_agent != agents.contains(name);
            if host.set_agent(agents.contains(name), &mut self.plans) {
                log::info!(
                    "{name}: its own agent reports, so all values of Colmet have names `colmet_…`"
                );
            }
        }
        self.release()
    }

    /// Stores the messages that wait no more.
    fn release(&mut self) -> Result<(), HostsError> {
        for message in std::mem::take(&mut self.held) {
            if self.must_wait(&message)? {
                self.held.push_back(message);
            } else {
                self.held_bytes = self.held_bytes.saturating_sub(message.bytes.len());
                self.store(&message)?;
            }
        }
        Ok(())
    }

    /// Sets the names that the server is queried for.
    fn set_names(&mut self) {
        if !std::mem::take(&mut self.are_names_old) {
            return;
        }
        let names = self.hosts.list.iter().map(|host: &Host| host.device.to_string()).collect();
        let names = DemandNames { names, count_agents: true, ..DemandNames::default() };
        *self.names.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(names);
    }

    /// Passes samples, gaps and jobs on.
    pub(super) fn seal(&mut self, now: Timestamp) -> Result<(), HostsError> {
        self.release()?;
        self.set_names();
        if !(0..REPORT_US).contains(&now.since(self.reported)) {
            self.report(now);
        }
        if let Some(line) = self.faults.line(now) {
            log::warn!("{line}");
        }
        // The file is written before the server receives of a job: the next start reports the same times.
        if self.is_unsaved || !(0..SAVE_US).contains(&now.since(self.saved)) {
            self.save(now);
        }
        self.hosts.put_jobs(std::mem::take(&mut self.events));
        self.hosts.seal(now);
        Ok(())
    }

    fn save(&mut self, now: Timestamp) {
        (self.is_unsaved, self.saved) = (false, now);
        let result = self.hosts.save();
        if let (Err(error), false) = (&result, self.is_save_failing) {
            log::error!("cannot store which jobs are on the hosts: {error}");
        }
        self.is_save_failing = result.is_err();
    }

    /// Stores the counts of messages.
    fn report(&mut self, now: Timestamp) {
        self.reported = now;
        let start = Some(self.begun.min(now));
        let Some(group) = self.hosts.groups.first_mut() else { return };
        for (state, count) in self.faults.states() {
            let labels = Labels::new([("state", state)]).unwrap_or_default();
            let series = (&self.hosts.poller, &self.messages, &labels);
            group.add_value(now, series, start, count as f64);
        }
    }

    /// Ends: what the server does not accept at once goes to the spool. Returns how many samples are lost.
    pub(super) fn end(mut self, now: Timestamp) -> Result<u64, HostsError> {
        // Messages that wait for the server are stored as if it did not respond.
        for message in std::mem::take(&mut self.held) {
            self.store(&message)?;
        }
        self.report(now);
        self.is_unsaved = true;
        self.seal(now)?;
        Ok(self.hosts.end())
    }
}

#[cfg(test)]
mod tests;
