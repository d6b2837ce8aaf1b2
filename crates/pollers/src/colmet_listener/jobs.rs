//! The jobs of a host: an allocation begins with the first record of a job there, and ends with the first message without it.

use super::message::Fault;
use super::series::{BackendSeries, Before};
use colmet::backends::TASKSTATS;
use colmet::record::{Record, Value};
use model::{ClusterId, DeviceId, JobEvent, JobId, JobKey, Timestamp};
use std::collections::{BTreeMap, VecDeque};

/// Jobs of a host.
pub(super) const JOBS_MAX: usize = 512;
/// Time for which the series of an ended job are remembered: after a restart of Colmet's agent, its first message has no jobs.
const ENDED_US: i64 = 600 * Timestamp::SECOND;

/// A job on a host.
#[derive(Debug)]
pub(super) struct HostJob {
    pub(super) key: JobKey,
    /// Start of the allocation.
    pub(super) start: Timestamp,
    pub(super) before: Before,
    pub(super) series: Vec<BackendSeries>,
    /// The number of the last message that has it; 0: none of this start.
    seen: u64,
}

impl HostJob {
    /// Whether something is subtracted from its counters.
    pub(super) fn is_rebased(&self) -> bool {
        let has_no_series = !self.series.iter().any(|one| one.is_of(&TASKSTATS));
        (has_no_series && self.before.is_rebased)
            || self.series.iter().any(BackendSeries::is_rebased)
    }
}

/// The message that a record is of.
#[derive(Clone, Copy, Debug)]
pub(super) struct JobMoment {
    /// The message's number, from 1.
    pub(super) number: u64,
    /// Whether jobs may begin: not in a message that was overtaken.
    pub(super) may_begin: bool,
    /// The message before, of this or of an earlier start.
    pub(super) previous: Option<Timestamp>,
    /// Whether this start received one before.
    pub(super) is_followed: bool,
}

/// The jobs.
#[derive(Debug, Default)]
pub(super) struct HostJobs {
    pub(super) running: BTreeMap<JobId, HostJob>,
    ended: VecDeque<(Timestamp, HostJob)>,
}

impl HostJobs {
    /// Adds a job that an earlier start saw.
    pub(super) fn restore(&mut self, key: JobKey, start: Timestamp, is_rebased: bool) {
        let before = Before { begin: None, has_values: true, is_rebased };
        let job = HostJob { start, before, series: Vec::new(), seen: 0, key };
        self.running.insert(job.key.id, job);
    }

    /// The job of a record, which may begin now.
    pub(super) fn of_record(
        &mut self,
        record: &Record,
        (cluster, device): (&ClusterId, &DeviceId),
        moment: JobMoment,
        jobs_max: usize,
        events: &mut Vec<JobEvent>,
    ) -> Result<&mut HostJob, Fault> {
        let id = i64::try_from(record.job).ok().and_then(JobId::new).ok_or(Fault::WrongName)?;
        let count = self.count();
        if let std::collections::btree_map::Entry::Vacant(entry) = self.running.entry(id) {
            if !moment.may_begin {
                return Err(Fault::Late);
            }
            if count >= jobs_max {
                return Err(Fault::TooMany);
            }
            let key = JobKey { cluster: cluster.clone(), id };
            let begun = begin_time(record).filter(|begun| *begun <= record.at);
            let after = |previous| begun.filter(|begun| *begun > previous);
            let start = moment.previous.and_then(after).unwrap_or(record.at);
            let place = self.ended.iter().position(|(_, job)| job.key.id == id);
            let job = match place.and_then(|place| self.ended.remove(place)) {
                Some((_, job)) => HostJob { start, seen: 0, ..job },
                None => {
                    // Only if it was not there before: then its counters began after that message.
                    let previous = moment.previous.filter(|_| moment.is_followed);
                    let begin = previous.map(|previous| after(previous).unwrap_or(previous));
                    let before = Before { begin, ..Before::default() };
                    HostJob { key, start, before, series: Vec::new(), seen: 0 }
                }
            };
            entry.insert(job);
        }
        let job = self.running.get_mut(&id).ok_or(Fault::TooMany)?;
        if job.seen == 0 {
            // A job of an earlier start is reported again: the report of its start may be lost.
            events.push(event(job, device, None));
        }
        job.seen = moment.number;
        Ok(job)
    }

    /// Ends the jobs that a whole message does not have. Returns them.
    pub(super) fn end_unseen(
        &mut self,
        number: u64,
        (device, at): (&DeviceId, Timestamp),
        events: &mut Vec<JobEvent>,
    ) -> Vec<JobEvent> {
        let is_unseen = |job: &&HostJob| job.seen != number;
        let unseen: Vec<JobId> =
            self.running.values().filter(is_unseen).map(|job| job.key.id).collect();
        let mut ended = Vec::new();
        self.ended.retain(|(stop, _)| at.since(*stop) < ENDED_US);
        for job in unseen.iter().filter_map(|id| self.running.remove(id)) {
            ended.push(event(&job, device, Some(at.max(job.start))));
            self.ended.push_back((at, job));
        }
        events.extend(ended.iter().cloned());
        ended
    }

    /// Jobs of which the series are in memory.
    pub(super) fn count(&self) -> usize {
        self.running.len() + self.ended.len()
    }

    /// The series of all jobs.
    pub(super) fn series_mut(&mut self) -> impl Iterator<Item = &mut BackendSeries> {
        let ended = self.ended.iter_mut().map(|(_, job)| job);
        let jobs = self.running.values_mut().chain(ended);
        jobs.flat_map(|job| &mut job.series)
    }
}

/// When the oldest task of a job began, as its record says.
fn begin_time(record: &Record) -> Option<Timestamp> {
    if record.backend != &TASKSTATS {
        return None;
    }
    match record.get("ac_btime") {
        Some(Value::Unsigned(seconds @ 1..)) => {
            Some(Timestamp::from_seconds(i64::try_from(*seconds).ok()?))
        }
        _ => None,
    }
}

/// A report about a job. It names no user: nothing that Colmet sends is authenticated.
fn event(job: &HostJob, device: &DeviceId, stop: Option<Timestamp>) -> JobEvent {
    job_event(&job.key, device, job.start, stop)
}

/// The same for a job that is not there any more.
pub(super) fn job_event(
    key: &JobKey,
    device: &DeviceId,
    start: Timestamp,
    stop: Option<Timestamp>,
) -> JobEvent {
    JobEvent {
        display_id: key.id.to_string().into(),
        key: key.clone(),
        device: device.clone(),
        user: None,
        uid: None,
        start,
        stop,
        monitor: None,
        oom_kills: Vec::new(),
    }
}
