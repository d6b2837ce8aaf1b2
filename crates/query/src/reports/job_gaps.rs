//! Gaps in the samples of a job that make its totals lower bounds.
//!
//! A counter of a cgroup includes the time of a gap if the job was read after it. A gap counts if no reading of the job
//! on the node follows, or if the kernel's accounting of ended tasks was not received.

use model::{Cause, ClusterId, Gap, Job, Timestamp};

/// Tolerance between the last reading of a job and the start of a gap.
const SLACK: i64 = 2 * Timestamp::SECOND;
// Totals of jobs come from the metrics of these sources, see `totals`. The names in gaps are data of the store:
// this crate knows no source's declaration.
/// The source that reads the job's cgroup.
const CGROUP: &str = "cgroup";
/// The source that receives the accounting of ended tasks.
const EXITS: &str = "taskstats";
/// Causes of gaps in which that accounting is lost.
const EXITS_LOST: [Cause; 4] =
    [Cause::AgentDown, Cause::EventsLost, Cause::SourceBroken, Cause::PermissionLost];

/// The readings of a job on one node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Readings {
    /// The time of the last one.
    pub(crate) last: Timestamp,
    /// Whether the agent observed the end of the job there.
    pub(crate) has_end: bool,
}

/// What is known about the end of a job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JobEnd {
    /// Whether the job has ended.
    pub(crate) has_ended: bool,
    /// Whether its scheduler or its `jobmeter run` reported the time. Otherwise nodes did.
    pub(crate) is_stop_reported: bool,
}

impl JobEnd {
    pub(crate) fn of(job: &Job) -> Self {
        let is_local = job.key.cluster.as_str() == ClusterId::LOCAL;
        let is_stop_reported = is_local || job.facts.state_word.is_some();
        // The last sign of life is a bound of its own.
        let is_silent = job.facts.state_word.as_deref() == Some(jobs::SILENT);
        Self { has_ended: job.stop.is_some() && !is_silent, is_stop_reported }
    }
}

/// A time that totals do not include.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Missed {
    /// `None`: no agent observed the end of the job, although no gap is known.
    cause: Option<Cause>,
    pub(crate) seconds: f64,
}

impl Missed {
    /// The time without a reading; `None` if nothing shows that something was missed.
    pub(crate) fn unread_seconds(self) -> Option<f64> {
        self.cause.map(|_| self.seconds)
    }

    /// The note on a lower bound.
    pub(crate) fn note(self) -> String {
        let Self { cause, seconds } = self;
        let what = match cause {
            Some(Cause::AgentDown) => "no agent ran",
            Some(cause) => cause.words(),
            None => return format!("{}: the end was not observed", api::AT_LEAST),
        };
        let digits = if seconds < 10.0 { 1 } else { 0 };
        format!("{}: {what} for {seconds:.digits$} s", api::AT_LEAST)
    }

    pub(crate) fn longer(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        one.into_iter().chain(other).max_by(|a, b| a.seconds.total_cmp(&b.seconds))
    }
}

/// The times that the totals of a node do not include.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct NodeMissed {
    /// The end of the job.
    pub(crate) end: Option<Missed>,
    /// Times without the accounting of ended tasks.
    pub(crate) exits: Option<Missed>,
    /// Whether the job's stop is only the last time it was seen.
    pub(crate) is_stop_unknown: bool,
    /// Whether the agent observed the end of the job, or of its last process.
    pub(crate) has_end: bool,
    /// Whether the node has no recent samples of the job.
    pub(crate) is_silent: bool,
}

impl NodeMissed {
    /// The missed times of a job on a node. `gaps` are the node's; those of pollers do not concern its jobs.
    pub(crate) fn of<'a>(
        gaps: impl Iterator<Item = &'a Gap>,
        readings: Readings,
        (start, stop): (Timestamp, Timestamp),
        job_end: JobEnd,
    ) -> Self {
        let mut missed = Self::default();
        let seconds = |from: Timestamp, to: Timestamp| to.since(from).max(0) as f64 / 1e6;
        let gaps: Vec<&Gap> = gaps.filter(|gap| !gap.origin.is_poller_group()).collect();
        let within = |gap: &Gap| {
            let seconds = seconds(gap.from.max(start), gap.to.min(stop));
            Some(seconds).filter(|seconds| *seconds > 0.0)
        };
        for gap in gaps.iter().copied() {
            let cause = gap.cause;
            let is_after_last = readings.last <= gap.from.plus(SLACK) && gap.to > readings.last;
            // A short downtime between two ticks is a gap only of sources that receive events.
            let is_of_all =
                gap.source.is_empty() || &*gap.source == CGROUP || cause == Cause::AgentDown;
            let is_in_job = gap.from <= stop.plus(SLACK) && gap.to >= start;
            if !readings.has_end && is_of_all && is_after_last && is_in_job {
                let is_stop_unknown = !job_end.is_stop_reported && stop <= gap.from.plus(SLACK);
                let to = if is_stop_unknown { gap.to } else { gap.to.min(stop) };
                let one = Missed { cause: Some(cause), seconds: seconds(gap.from, to) };
                missed.end = Missed::longer(missed.end, Some(one));
                missed.is_stop_unknown |= is_stop_unknown;
            }
            if &*gap.source == EXITS
                && EXITS_LOST.contains(&cause)
                && let Some(lost) = within(gap)
            {
                // After a restart, the accounting of a job that is found late lacks more than the downtime.
                let is_same = |down: &&&Gap| {
                    let is_down = down.source.is_empty() && down.cause == Cause::AgentDown;
                    is_down && cause == down.cause && down.from < gap.to && gap.from < down.to
                };
                let down = gaps.iter().find(is_same).and_then(|down| within(down));
                let one = Missed { cause: Some(cause), seconds: down.unwrap_or(lost) };
                missed.exits = Missed::longer(missed.exits, Some(one));
            }
        }
        if job_end.has_ended && !readings.has_end && missed.end.is_none() {
            let seconds = seconds(readings.last, stop);
            missed.end = Some(Missed { cause: None, seconds });
            missed.is_stop_unknown = !job_end.is_stop_reported;
        }
        missed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{DeviceId, Origin};

    const S: i64 = Timestamp::SECOND;

    /// A stop that a scheduler reports.
    const REPORTED: i64 = 36;

    type GapOf = (&'static str, Cause, i64, i64);

    fn of(gap: GapOf, readings: (i64, bool), stop: i64) -> NodeMissed {
        of_all(&[gap], readings, stop)
    }

    fn of_all(gaps: &[GapOf], (last, has_end): (i64, bool), stop: i64) -> NodeMissed {
        let gaps = gaps.iter().map(|(source, cause, from, to)| Gap {
            origin: Origin::new("n1").unwrap(),
            device: DeviceId::new("n1").unwrap(),
            source: (*source).into(),
            from: Timestamp(from * S),
            to: Timestamp(to * S),
            cause: *cause,
            detail: "".into(),
        });
        let gaps: Vec<Gap> = gaps.collect();
        let readings = Readings { last: Timestamp(last * S), has_end };
        let span = (Timestamp(0), Timestamp(stop * S));
        let job_end = JobEnd { has_ended: true, is_stop_reported: stop == REPORTED };
        NodeMissed::of(gaps.iter(), readings, span, job_end)
    }

    #[test]
    fn an_end_that_no_agent_observed_is_missed() {
        let note = |missed: Option<Missed>| missed.map(Missed::note);
        let down = ("", Cause::AgentDown, 6, 60);
        // The stop is the last time that the job was seen.
        let seen = of(down, (6, false), 6);
        assert_eq!(note(seen.end).as_deref(), Some("at least: no agent ran for 54 s"));
        assert!(seen.is_stop_unknown && seen.exits.is_none());
        // A scheduler states the stop.
        let reported = of(down, (5, false), REPORTED);
        assert_eq!(note(reported.end).as_deref(), Some("at least: no agent ran for 30 s"));
        assert!(!reported.is_stop_unknown);
        let lost = of(("", Cause::BatchesLost, 6, 8), (6, false), 7);
        assert_eq!(note(lost.end).as_deref(), Some("at least: batches lost for 2.0 s"));
        // The job was read after the gap, or its end was observed before.
        for other in [of(down, (70, true), 70), of(down, (6, true), 6)] {
            assert_eq!(other, NodeMissed::default());
        }
        // Other sources missed nothing of it.
        let other = of(("infiniband", Cause::SourceBroken, 6, 60), (6, false), 6);
        assert_eq!(note(other.end).as_deref(), Some("at least: the end was not observed"));
        assert!(other.is_stop_unknown);
        // A short downtime between two ticks.
        let short = of(("taskstats", Cause::AgentDown, 6, 8), (6, false), 7);
        assert_eq!(note(short.end).as_deref(), Some("at least: no agent ran for 2.0 s"));
        assert!(of_all(&[], (6, false), REPORTED).end.is_some());
        assert!(!of_all(&[], (6, false), REPORTED).is_stop_unknown);
    }

    #[test]
    fn one_downtime_has_one_length() {
        let down = ("", Cause::AgentDown, 6, 23);
        let note = |to| {
            let gaps = [down, ("taskstats", Cause::AgentDown, 6, to)];
            of_all(&gaps, (70, true), 70).exits.map(Missed::note)
        };
        // The job was found again 3 s after the agent's start.
        for to in [23, 26] {
            assert_eq!(note(to).as_deref(), Some("at least: no agent ran for 17 s"));
        }
    }

    #[test]
    fn accounting_of_ended_tasks_is_missed_in_gaps_of_its_source() {
        let exits = |cause| of(("taskstats", cause, 6, 10), (70, true), 70).exits;
        assert_eq!(exits(Cause::EventsLost).map(|missed| missed.seconds), Some(4.0));
        assert_eq!(exits(Cause::MissedTicks), None);
        let before = of(("taskstats", Cause::EventsLost, -9, 0), (70, true), 70);
        assert_eq!(before.exits, None);
    }
}
