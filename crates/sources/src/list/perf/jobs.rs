//! The counters of jobs: opened when a job arrives (by its cgroup if possible), closed when it has ended.

use super::plan::Plan;
use super::subject::{Budget, NotOpened, Subject};
use super::tasks::{Lists, Tasks};
use super::{begin, lacking_events, not_opened};
use crate::{Context, PartState, Sink, SourceError};
use cgroups::{Hierarchies, Hierarchy, JobCgroup};
use kernel::perf::PerfError;
use model::{JobKey, Timestamp};

/// Interval of attempts to open rejected counters again.
const RETRY_US: i64 = 60 * Timestamp::SECOND;
const PART: &str = "jobs";

/// A job, counted or not.
#[derive(Debug)]
struct Job {
    key: JobKey,
    created: Timestamp,
    /// Its directory in the counting hierarchy, if any.
    dir: Option<Box<str>>,
    counts: Counts,
    /// Why it is not counted completely.
    fault: Option<SourceError>,
}

#[derive(Debug)]
enum Counts {
    Cgroup(Subject),
    Tasks(Subject, Tasks),
    /// Not counted; time of the last attempt.
    Not(Timestamp),
}

/// Faults in the counting of jobs, with the first job affected.
#[derive(Debug)]
struct Faults {
    rejected: Option<SourceError>,
    /// Number of further jobs with a fault.
    others: usize,
    /// A job that is counted by its processes.
    followed: Option<JobKey>,
}

/// The counters of all jobs.
#[derive(Debug, Default)]
pub(super) struct OfJobs {
    generation: u64,
    /// Generation of the job list at the last call of [`Self::discover`].
    discovered: Option<u64>,
    /// Ordered by key.
    jobs: Vec<Job>,
    hierarchies: Hierarchies,
    lists: Lists,
    /// The faults reported last.
    faults: Option<Faults>,
}

impl OfJobs {
    /// Number of jobs that are not counted completely.
    pub(super) fn uncounted(&self) -> usize {
        self.jobs.iter().filter(|job| job.fault.is_some()).count()
    }

    /// Reads all jobs.
    pub(super) fn collect(
        &mut self,
        (plan, online): (&Plan, &[u32]),
        cx: &Context<'_>,
        budget: &mut Budget,
        out: &mut Sink,
    ) {
        self.follow(cx, budget);
        for job in &mut self.jobs {
            let Some(cgroup) = cx.jobs.get(&job.key) else { continue };
            job.open(cgroup, (plan, online), cx, budget);
            job.read(cgroup, (plan, cx), budget, &mut self.lists);
            job.push(cgroup, plan, cx, out);
        }
        self.report_faults(out);
    }

    /// Opens the counters of new jobs, and of the first processes of jobs without a cgroup for counters.
    pub(super) fn discover(
        &mut self,
        (plan, online): (&Plan, &[u32]),
        cx: &Context<'_>,
        budget: &mut Budget,
    ) {
        if self.discovered.replace(cx.jobs.generation()) == Some(cx.jobs.generation()) {
            return;
        }
        self.follow(cx, budget);
        for job in &mut self.jobs {
            let Some(cgroup) = cx.jobs.get(&job.key) else { continue };
            job.open(cgroup, (plan, online), cx, budget);
            if let Counts::Tasks(subject, tasks) = &mut job.counts
                && tasks.is_empty()
                && let Err(error) =
                    tasks.follow((cx.root, plan), cgroup, (subject, budget), &mut self.lists)
            {
                job.rejected(error, *budget);
            }
        }
    }

    /// Adds new jobs, and closes the counters of removed ones.
    fn follow(&mut self, cx: &Context<'_>, budget: &mut Budget) {
        let is_same = self.generation == cx.jobs.generation()
            && self.jobs.len() == cx.jobs.iter().len()
            && self.jobs.iter().zip(cx.jobs.iter()).all(|(job, now)| job.key == now.key);
        if is_same {
            return;
        }
        self.generation = cx.jobs.generation();
        // If the hierarchies cannot be read, jobs have no directories either.
        self.hierarchies = Hierarchies::read(cx.root).unwrap_or_default();
        let mut old = std::mem::take(&mut self.jobs);
        for now in cx.jobs.iter() {
            let dir = dir_of(now, &self.hierarchies);
            let is_it = |job: &mut Job| job.key == now.key;
            let known = old.extract_if(.., is_it).next();
            let is_ending = now.dirs.is_empty();
            self.jobs.push(match known {
                // A job that is ending loses its directory before its counters are closed.
                Some(job)
                    if job.created == now.created && (is_ending || job.dir.as_deref() == dir) =>
                {
                    job
                }
                known => {
                    known.into_iter().for_each(|mut job| job.counts.close(budget));
                    let dir = dir.map(Into::into);
                    let counts = Counts::Not(Timestamp(i64::MIN));
                    Job { key: now.key.clone(), created: now.created, dir, counts, fault: None }
                }
            });
        }
        old.iter_mut().for_each(|job| job.counts.close(budget));
    }

    /// Reads a job for the last time: its last process or its cgroup has ended. Closes its counters if
    /// the cgroup is gone.
    pub(super) fn ended(
        &mut self,
        key: &JobKey,
        plan: &Plan,
        cx: &Context<'_>,
        budget: &mut Budget,
        out: &mut Sink,
    ) {
        let Ok(place) = self.jobs.binary_search_by(|job| job.key.cmp(key)) else { return };
        let (Some(job), Some(cgroup)) = (self.jobs.get_mut(place), cx.jobs.get(key)) else {
            return;
        };
        job.read(cgroup, (plan, cx), budget, &mut self.lists);
        job.push(cgroup, plan, cx, out);
        if cgroup.dirs.is_empty() {
            job.counts.close(budget);
            self.jobs.remove(place);
        }
    }

    /// Closes all counters; the next reading reopens them.
    pub(super) fn close(&mut self, budget: &mut Budget) {
        self.jobs.iter_mut().for_each(|job| job.counts.close(budget));
        self.jobs.clear();
    }

    /// Reports the faults if they changed.
    fn report_faults(&mut self, out: &mut Sink) {
        let is_followed = |job: &&Job| matches!(job.counts, Counts::Tasks(..));
        let mut all = self.jobs.iter().filter_map(|job| job.fault.as_ref());
        let (rejected, others) = (all.next(), all.count());
        let followed = self.jobs.iter().find(is_followed).map(|job| &job.key);
        let reported = self.faults.as_ref();
        if reported.is_some_and(|old| {
            (old.rejected.as_ref(), old.others, old.followed.as_ref())
                == (rejected, others, followed)
        }) {
            return;
        }
        let faults = Faults { rejected: rejected.cloned(), others, followed: followed.cloned() };
        let state = match (&faults.rejected, &faults.followed) {
            (Some(error), _) if others > 0 => {
                PartState::Not(error.clone().with(&format!("; further jobs: {others}")))
            }
            (Some(error), _) => PartState::Not(error.clone()),
            (None, Some(key)) => PartState::Not(SourceError::absent(format!(
                "job {key} has no cgroup for counters: its processes are counted from their discovery, which can miss some; let the scheduler create its directory in the hierarchy perf_event, or use version 2 without that hierarchy"
            ))),
            (None, None) => PartState::Ok,
        };
        out.part(PART, state);
        self.faults = Some(faults);
    }
}

impl Job {
    /// Opens its counters, if they are closed and an attempt is due.
    fn open(
        &mut self,
        cgroup: &JobCgroup,
        (plan, online): (&Plan, &[u32]),
        cx: &Context<'_>,
        budget: &mut Budget,
    ) {
        let Counts::Not(tried) = &self.counts else { return };
        let is_due = cx.now.0.saturating_sub(tried.0) >= RETRY_US || cx.now < *tried;
        if !is_due || cgroup.dirs.is_empty() {
            return;
        }
        self.fault = None;
        let start = begin(cx.now, self.created);
        let followed = || Counts::Tasks(Subject::new(plan, start), Tasks::default());
        let Some(path) = self.dir.as_deref() else {
            self.counts = followed();
            return;
        };
        let opened = match cx.root.open(path) {
            Ok(dir) => Subject::of_cgroup(cx.root, plan, online, start, (&dir, path), budget),
            Err(_) => Err(PerfError::Gone.into()),
        };
        self.counts = match opened {
            Ok((subject, lacking)) => {
                self.fault = lacking_events(plan, lacking, &format!("job {}", self.key));
                Counts::Cgroup(subject)
            }
            // The kernel does not count such cgroups, or such events of a cgroup.
            Err(NotOpened::Kernel(PerfError::Absent | PerfError::Rejected)) => followed(),
            Err(error) => {
                self.rejected(error, *budget);
                Counts::Not(cx.now)
            }
        };
    }

    /// Reads its counters; a failure remains a fault, because data is missing from then on.
    fn read(
        &mut self,
        cgroup: &JobCgroup,
        (plan, cx): (&Plan, &Context<'_>),
        budget: &mut Budget,
        lists: &mut Lists,
    ) {
        let read = match &mut self.counts {
            Counts::Cgroup(subject) => subject.read().map_err(NotOpened::from),
            Counts::Tasks(subject, tasks) => {
                let followed = tasks.follow((cx.root, plan), cgroup, (subject, budget), lists);
                let read = subject.read();
                tasks.end(subject, budget);
                followed.and(read.map_err(NotOpened::from))
            }
            Counts::Not(_) => Ok(()),
        };
        if let Err(error) = read {
            self.rejected(error, *budget);
        }
    }

    fn rejected(&mut self, error: NotOpened, budget: Budget) {
        self.fault = Some(not_opened(&format!("job {}", self.key), error, budget));
    }

    /// Pushes the counts of a job that has or had a process.
    fn push(&self, cgroup: &JobCgroup, plan: &Plan, cx: &Context<'_>, out: &mut Sink) {
        let (Counts::Cgroup(subject) | Counts::Tasks(subject, _)) = &self.counts else { return };
        // The time of a late tick may be before the job's creation.
        if cgroup.populated && cgroup.created <= cx.now {
            subject.push(plan, &mut out.of_job(&self.key));
        }
    }
}

impl Counts {
    fn close(&mut self, budget: &mut Budget) {
        if let Self::Cgroup(subject) | Self::Tasks(subject, _) = self {
            subject.close(budget);
        }
        *self = Self::Not(Timestamp(i64::MIN));
    }
}

/// The job's directory with tasks that the kernel can count: version 1's hierarchy if it is mounted, else
/// version 2.
fn dir_of<'a>(job: &'a JobCgroup, hierarchies: &Hierarchies) -> Option<&'a str> {
    let is_v1 =
        hierarchies.mounts().iter().any(|mount| mount.hierarchies.contains(&Hierarchy::PerfEvent));
    job.dir(if is_v1 { Hierarchy::PerfEvent } else { Hierarchy::Unified })
}
