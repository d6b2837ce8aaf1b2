//! A host: its messages, gaps and jobs.

pub(super) mod counter_files;

use super::jobs::{HostJob, HostJobs, JobMoment};
use super::message::Fault;
use super::plan::Plans;
use super::recent::{Order, Period};
use super::saved_hosts::SavedHost;
use super::series::{BackendSeries, Before, Moment, Sample};
use colmet::record::{NO_JOB, Record};
use counter_files::HostCounters;
use model::{ClusterId, DeviceId, JobEvent, Timestamp};

/// Messages that arrive in order, but all earlier than another one: then the host's clock was set back.
const SET_BACK_MESSAGES: u32 = 6;
/// Periods without a message that are a gap.
const GAP_PERIODS: i64 = 3;

/// Receives samples.
type Out<'a> = &'a mut dyn FnMut(Sample<'_>);

/// What the beginning of a message means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begun {
    /// It is the first one of this start.
    First,
    /// It follows the one before.
    Follows,
    /// Messages are missing between these instants.
    AfterGap(Timestamp, Timestamp),
    /// It is not later than the one before.
    Overtaken,
}

/// A message that is being read.
#[derive(Clone, Copy, Debug)]
struct Current {
    /// The instants of the first and the latest record.
    at: Timestamp,
    until: Timestamp,
    begun: Begun,
    previous: Option<Timestamp>,
    is_same_instant: bool,
}

/// Whether the host's own agent reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Agent {
    /// The server has not answered since this steady instant in microseconds.
    UnknownSince(i64),
    Known,
}

/// A host.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) device: DeviceId,
    /// The number of its group.
    pub(super) group: usize,
    pub(super) agent: Agent,
    /// Whether its agent reports, or what an earlier start knew of it.
    pub(super) has_agent: bool,
    /// Whether the log states this.
    is_agent_logged: bool,
    pub(super) jobs: HostJobs,
    node: Vec<BackendSeries>,
    counters: HostCounters,
    /// First and latest instant of the latest message of this start.
    latest: Option<(Timestamp, Timestamp)>,
    /// The latest message of an earlier start.
    saved: Option<Timestamp>,
    /// Whether an earlier start knew it.
    pub(super) is_restored: bool,
    /// The first instant of messages that wait until it is known whether it has an agent.
    pub(super) held_since: Option<Timestamp>,
    period: Period,
    /// When the last message arrived, by the wall clock of this machine.
    pub(super) arrived: Timestamp,
    /// Messages in order that are earlier than another one, and the last one's instant.
    set_back: (u32, Timestamp),
    /// The number of the message, and the gaps before it.
    number: u64,
    epoch: u64,
    current: Option<Current>,
}

impl Host {
    /// A host that was not known before.
    pub(super) fn new(device: DeviceId, group: usize, steady_us: i64) -> Self {
        Self {
            device,
            group,
            agent: Agent::UnknownSince(steady_us),
            has_agent: false,
            is_agent_logged: false,
            jobs: HostJobs::default(),
            node: Vec::new(),
            counters: HostCounters::default(),
            latest: None,
            saved: None,
            is_restored: false,
            held_since: None,
            period: Period::default(),
            arrived: Timestamp(0),
            set_back: (0, Timestamp(0)),
            number: 0,
            epoch: 0,
            current: None,
        }
    }

    /// A host of an earlier start.
    pub(super) fn restored(saved: &SavedHost, cluster: &ClusterId, steady_us: i64) -> Self {
        let mut host = Self::new(saved.device.clone(), saved.group, steady_us);
        host.is_restored = true;
        host.has_agent = saved.has_agent;
        host.period = Period::of(saved.period_us);
        host.saved = (saved.latest.0 > 0).then_some(saved.latest);
        for job in &saved.jobs {
            let key = model::JobKey { cluster: cluster.clone(), id: job.id };
            host.jobs.restore(key, job.start, job.is_rebased);
        }
        host
    }

    /// The instant of the latest message.
    pub(super) fn latest(&self) -> Option<Timestamp> {
        self.latest.map(|(at, _)| at).or(self.saved)
    }

    /// Up to which instant this start has records; `None` before its first message.
    pub(super) fn until(&self) -> Option<Timestamp> {
        self.latest.map(|(_, until)| until)
    }

    /// The period of its messages in microseconds.
    pub(super) fn period_us(&self) -> Option<i64> {
        self.period.micros()
    }

    /// Whether no message arrived for three periods.
    pub(super) fn is_silent(&self, now: Timestamp) -> bool {
        let period = self.period.micros().unwrap_or(Timestamp::SECOND);
        now.since(self.arrived) > period.max(Timestamp::SECOND).saturating_mul(GAP_PERIODS)
    }

    /// Sets whether its own agent reports: then no value has a name of jobmeter. Returns whether this is to be logged.
    pub(super) fn set_agent(&mut self, has_agent: bool, plans: &mut Plans) -> bool {
        self.agent = Agent::Known;
        if self.has_agent != has_agent {
            self.has_agent = has_agent;
            self.set_plans(plans);
        }
        has_agent && !std::mem::replace(&mut self.is_agent_logged, has_agent)
    }

    /// Sets the names of its counters.
    pub(super) fn set_counters(&mut self, counters: HostCounters, plans: &mut Plans) {
        if self.counters != counters {
            self.counters = counters;
            self.set_plans(plans);
        }
    }

    fn set_plans(&mut self, plans: &mut Plans) {
        let (counters, has_agent) = (&self.counters, self.has_agent);
        for series in self.node.iter_mut().chain(self.jobs.series_mut()) {
            series.set_plan(plans.of(series.backend(), counters, has_agent));
        }
    }

    /// Begins a message with the instant of its first record.
    pub(super) fn begin(&mut self, at: Timestamp, now: Timestamp) -> Begun {
        self.arrived = now;
        self.number += 1;
        let latest = self.latest;
        let is_later = latest.is_none_or(|(latest, _)| at > latest);
        let is_same_instant = latest.is_some_and(|(latest, _)| at == latest);
        let is_set_back = !is_later && !is_same_instant && self.is_set_back(at);
        let begun = match latest {
            None => Begun::First,
            Some(_) if is_set_back => {
                log::warn!(
                    "{}: its clock was set back; its counters wait for later instants",
                    self.device
                );
                Begun::Follows
            }
            Some(_) if !is_later => Begun::Overtaken,
            Some((before, until)) => {
                let interval = at.since(before);
                let period = self.period.micros();
                self.period.add(interval);
                let is_gap = |period: i64| interval > period.saturating_mul(GAP_PERIODS);
                match period.is_some_and(is_gap) && until < at {
                    true => Begun::AfterGap(until, at),
                    false => Begun::Follows,
                }
            }
        };
        if is_later {
            self.set_back = (0, Timestamp(0));
        }
        let is_continued = begun == Begun::Follows && !is_set_back;
        if begun != Begun::Overtaken && !is_continued {
            self.epoch += 1;
        }
        let previous = if is_set_back { None } else { self.latest() };
        self.current = Some(Current { at, until: at, begun, previous, is_same_instant });
        begun
    }

    fn is_set_back(&mut self, at: Timestamp) -> bool {
        let (count, last) = self.set_back;
        self.set_back = if at > last && count > 0 { (count + 1, at) } else { (1, at) };
        let is_set_back = self.set_back.0 >= SET_BACK_MESSAGES;
        if is_set_back {
            self.set_back = (0, Timestamp(0));
        }
        is_set_back
    }

    /// Takes a record of the message that has begun.
    pub(super) fn take(
        &mut self,
        record: &Record,
        (cluster, jobs_max): (&ClusterId, usize),
        plans: &mut Plans,
        (out, events): (Out<'_>, &mut Vec<JobEvent>),
    ) -> Result<(), Fault> {
        let Some(current) = &mut self.current else { return Ok(()) };
        current.until = current.until.max(record.at);
        let is_continued = current.begun == Begun::Follows;
        let previous = current.previous.filter(|_| is_continued);
        let moment = Moment { epoch: self.epoch, previous };
        let plan = |plans: &mut Plans| plans.of(record.backend, &self.counters, self.has_agent);
        let order = if record.job == NO_JOB {
            let series = series_of(&mut self.node, record, Before::default(), || plan(plans));
            series.map(|series| series.take((record, moment), None, out))
        } else {
            let job_moment = JobMoment {
                number: self.number,
                may_begin: current.begun != Begun::Overtaken || current.is_same_instant,
                previous: current.previous,
                is_followed: current.begun != Begun::First,
            };
            let of = (cluster, &self.device);
            let job = self.jobs.of_record(record, of, job_moment, jobs_max, events)?;
            let HostJob { key, series, before, .. } = job;
            let series = series_of(series, record, *before, || plan(plans));
            series.map(|series| series.take((record, moment), Some(key), out))
        };
        match order {
            Some(Order::Next) | None => Ok(()),
            Some(Order::Again) => Err(Fault::Repeated),
            Some(Order::Late) => Err(Fault::Late),
        }
    }

    /// Ends the message. A whole one ends the jobs that it does not have; returns these.
    pub(super) fn end(&mut self, is_whole: bool, events: &mut Vec<JobEvent>) -> Vec<JobEvent> {
        let Some(current) = self.current.take() else { return Vec::new() };
        if current.begun == Begun::Overtaken {
            self.latest = self.latest.map(|(at, until)| (at, until.max(current.until)));
            return Vec::new();
        }
        self.latest = Some((current.at, current.until));
        match is_whole {
            true => self.jobs.end_unseen(self.number, (&self.device, current.at), events),
            false => Vec::new(),
        }
    }
}

/// The series of a record's backend, which may be new.
fn series_of<'a>(
    all: &'a mut Vec<BackendSeries>,
    record: &Record,
    before: Before,
    plan: impl FnOnce() -> super::plan::BackendPlan,
) -> Option<&'a mut BackendSeries> {
    let place = all.iter().position(|one| one.is_of(record.backend)).unwrap_or(all.len());
    if place == all.len() {
        all.push(BackendSeries::new(record.backend, plan(), before));
    }
    all.get_mut(place)
}

#[cfg(test)]
mod tests;
