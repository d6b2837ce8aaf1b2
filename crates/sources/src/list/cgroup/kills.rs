//! OOM kills that the kernel's log names, until each is reported for its job.
//!
//! The log names the task's cgroup, which is a job's or lies below it. A kill is reported once its size is known, or
//! after a second, or when its job ends. The counters of the cgroups count kills, too, also those that the log
//! does not name: the kernel prints ten in five seconds at most.
//!
//! The log also has what was charged to the full cgroup. That outlives the cgroup, which a scheduler may remove before
//! any other reading of the job's memory.

use super::metrics::{OOM_CHARGED, OOM_PART};
use super::subject::Subject;
use crate::{Context, PartState, Sink, SourceError};
use cgroups::{Hierarchies, Hierarchy};
use kernel::kmsg::{KernelLog, Line, Victim};
use kernel::{ReadError, Root, clock};
use model::{JobKey, OomKill, Timestamp};
use std::collections::BTreeMap;

/// Most records read in one call: the log of a machine that boots has some thousands.
const RECORDS_MAX: usize = 4096;
/// Most kills that wait for their job.
const WAITING_MAX: usize = 256;
/// How long a kill waits for the line that tells its size.
const SIZE_WAIT_US: i64 = Timestamp::SECOND;
/// How long a kill waits for its job to be found.
const JOB_WAIT_US: i64 = 10 * Timestamp::SECOND;
/// A limit from here on is none: it is more than any machine has.
const NO_LIMIT: u64 = 1 << 60;

/// The log, and what was read of it.
#[derive(Debug)]
pub(super) struct Kills {
    log: Option<KernelLog>,
    /// Why it is not read; `None` on a recorded machine, which has none.
    pub(super) state: Option<PartState>,
    /// Where the trees of memory are mounted.
    mounts: Vec<Box<str>>,
    /// The memory of a full cgroup that the log named last.
    full: Option<Full>,
    waiting: Vec<Waiting>,
}

/// What is charged to a full cgroup, and its limit.
#[derive(Clone, Copy, Debug)]
struct Full {
    charged: u64,
    limit: Option<u64>,
}

#[derive(Debug)]
struct Waiting {
    cgroup: String,
    /// The cgroup that was full, and what was charged to it.
    full: Option<(String, u64)>,
    kill: OomKill,
    since: Timestamp,
}

impl Kills {
    pub(super) fn open(root: &Root, hierarchies: &Hierarchies) -> Self {
        // What it has of before is of jobs that are still here, or is dropped.
        let (log, state) = match KernelLog::open(root, true) {
            Ok(log) => (Some(log), Some(PartState::Ok)),
            Err(_) if !root.is_live() => (None, None),
            Err(error) => (None, Some(PartState::Not(refused(&error)))),
        };
        let of_memory =
            |hierarchy: &Hierarchy| matches!(hierarchy, Hierarchy::Memory | Hierarchy::Unified);
        let mounts = hierarchies.mounts().iter();
        let mounts = mounts.filter(|mount| mount.hierarchies.iter().any(of_memory));
        let mounts = mounts.map(|mount| mount.path.as_str().into()).collect();
        Self { log, state, mounts, full: None, waiting: Vec::new() }
    }

    /// Reads what was logged, and reports the kills of these jobs; `ended`: one of them will be gone.
    pub(super) fn report(
        &mut self,
        jobs: &[(JobKey, Subject)],
        cx: &Context<'_>,
        ended: Option<&JobKey>,
        out: &mut Sink,
    ) {
        let Some(log) = &mut self.log else { return };
        let now_us = i64::try_from(clock::monotonic_us()).unwrap_or(i64::MAX);
        let (full, waiting) = (&mut self.full, &mut self.waiting);
        let read = log.read(RECORDS_MAX, |at_us, line| {
            let at = cx.now.plus(at_us.saturating_sub(now_us).min(0));
            take(full, waiting, line, (at, cx.now));
        });
        if let Err(errno) = read {
            let error = SourceError::broken(format!("/dev/kmsg: {errno}"));
            (self.log, self.state) = (None, Some(PartState::Not(error)));
        }
        let (mounts, mut proven) = (&self.mounts, BTreeMap::<&JobKey, Proven>::new());
        self.waiting.retain_mut(|waiting| {
            let age_us = cx.now.since(waiting.since);
            let found = jobs.iter().find(|(_, subject)| is_of(waiting, subject, mounts));
            let Some((key, subject)) = found else { return age_us < JOB_WAIT_US };
            if waiting.kill.task_bytes.is_none() && age_us < SIZE_WAIT_US && ended != Some(key) {
                return true;
            }
            if let Some(job) = cx.jobs.get(key) {
                out.oom_kill(job, waiting.kill.clone());
                proven.entry(key).or_default().take(waiting, subject, mounts);
            }
            false
        });
        for (key, Proven { charged, part }) in proven {
            let mut of_job = out.of_job(key);
            for (metric, bytes) in [(&OOM_CHARGED, charged), (&OOM_PART, part)] {
                if let Some(bytes) = bytes {
                    of_job.gauge(metric, &[], bytes as f64);
                }
            }
        }
    }
}

/// Memory of a job that its kills prove.
#[derive(Debug, Default, PartialEq, Eq)]
struct Proven {
    /// Charged to the job, as its own limit was met.
    charged: Option<u64>,
    /// A part of the job's: a killed task, or a full cgroup below the job's.
    part: Option<u64>,
}

impl Proven {
    fn take(&mut self, waiting: &Waiting, subject: &Subject, mounts: &[Box<str>]) {
        self.part = self.part.max(waiting.kill.task_bytes);
        let Some((full, charged)) = &waiting.full else { return };
        match below(full, subject, mounts) {
            Some("") => self.charged = self.charged.max(Some(*charged)),
            Some(_) => self.part = self.part.max(Some(*charged)),
            // Others use it, too.
            None => {}
        }
    }
}

fn refused(error: &ReadError) -> SourceError {
    match error {
        ReadError::Absent { .. } => SourceError::absent("this machine has no /dev/kmsg"),
        ReadError::Denied { .. } => {
            SourceError::denied("the kernel's log (/dev/kmsg)", "CAP_SYSLOG, or root")
        }
        ReadError::Failed { .. } => SourceError::broken(error.to_string()),
    }
}

/// Takes a line, logged at an instant and read at another.
fn take(
    named: &mut Option<Full>,
    waiting: &mut Vec<Waiting>,
    line: Line<'_>,
    (at, since): (Timestamp, Timestamp),
) {
    match line {
        Line::Full { charged, limit } => {
            *named = Some(Full { charged, limit: Some(limit).filter(|bytes| *bytes < NO_LIMIT) });
        }
        Line::Victim(Victim { cgroup, task, pid, uid, full }) => {
            if waiting.len() >= WAITING_MAX {
                waiting.remove(0);
            }
            // The line of the memory comes before that of the victim, and not where the node is out of memory.
            let full = full.zip(named.take());
            let limit_bytes = full.and_then(|(_, of)| of.limit);
            let full = full.map(|(full, of)| (full.to_owned(), of.charged));
            let (task, uid) = (task.into(), Some(uid));
            let kill = OomKill { at, pid, uid, task, task_bytes: None, limit_bytes };
            waiting.push(Waiting { cgroup: cgroup.to_owned(), full, kill, since });
        }
        Line::Killed { pid, bytes } => {
            let is_it = |one: &&mut Waiting| one.kill.pid == pid && one.kill.task_bytes.is_none();
            if let Some(one) = waiting.iter_mut().rev().find(is_it) {
                one.kill.task_bytes = Some(bytes);
            }
        }
    }
}

/// Whether the killed task was the subject's: its cgroup is the subject's, or below it, and was there already.
fn is_of(waiting: &Waiting, subject: &Subject, mounts: &[Box<str>]) -> bool {
    // The kernel dates a cgroup by a clock that lags by a tick.
    waiting.kill.at.plus(Timestamp::SECOND) >= subject.created()
        && below(&waiting.cgroup, subject, mounts).is_some()
}

/// The path of a cgroup below the subject's, empty for the subject's own; `None`: it is not in the subject's.
fn below<'a>(cgroup: &'a str, subject: &Subject, mounts: &[Box<str>]) -> Option<&'a str> {
    subject.memory_dirs().find_map(|dir| {
        mounts.iter().find_map(|mount| {
            let own = dir.strip_prefix(&**mount).filter(|own| own.len() > 1)?;
            let below = cgroup.strip_prefix(own)?;
            (below.is_empty() || below.starts_with('/')).then_some(below)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::super::files::OF_JOBS;
    use super::*;
    use cgroups::JobDir;

    fn subject(path: &str) -> Subject {
        let hierarchy = Hierarchy::Memory;
        Subject::new(Timestamp(10), &[JobDir { hierarchy, path: path.to_owned() }], OF_JOBS)
    }

    const FULL: Line<'_> = Line::Full { charged: 8191, limit: 8192 };

    fn victim<'a>(cgroup: &'a str, full: Option<&'a str>) -> Line<'a> {
        Line::Victim(Victim { cgroup, task: "solve", pid: 7, uid: 1000, full })
    }

    fn taken(lines: &[Line<'_>]) -> Vec<Waiting> {
        let (mut named, mut waiting) = (None, Vec::new());
        let at = (Timestamp(20), Timestamp(20));
        lines.iter().for_each(|line| take(&mut named, &mut waiting, *line, at));
        waiting
    }

    #[test]
    fn a_kill_has_its_size_and_the_limit_of_its_cgroup() {
        let killed = Line::Killed { pid: 7, bytes: 4096 };
        let waiting = taken(&[FULL, victim("/job_1", Some("/job_1")), killed]);
        let kill = &waiting[0].kill;
        assert_eq!((kill.task_bytes, kill.limit_bytes), (Some(4096), Some(8192)));
        assert_eq!((&*kill.task, kill.pid, kill.uid), ("solve", 7, Some(1000)));
        // The node is out of memory: the limit before was another's.
        let waiting = taken(&[FULL, victim("/job_1", None)]);
        assert_eq!((waiting[0].kill.limit_bytes, &waiting[0].full), (None, &None));
        assert_eq!(taken(&[killed]).len(), 0);
        let many = vec![victim("/job_1", None); WAITING_MAX + 9];
        assert_eq!(taken(&many).len(), WAITING_MAX);
    }

    #[test]
    fn a_kill_is_of_the_job_that_its_cgroup_is_of() {
        let mounts = ["sys/fs/cgroup/memory".into()];
        let of = |cgroup: &str, dir: &str| {
            let waiting = taken(&[victim(cgroup, None)]);
            is_of(&waiting[0], &subject(dir), &mounts)
        };
        let dir = "sys/fs/cgroup/memory/slurm/uid_1000/job_1";
        assert!(of("/slurm/uid_1000/job_1", dir));
        assert!(of("/slurm/uid_1000/job_1/step_0/task_0", dir));
        assert!(!of("/slurm/uid_1000/job_12", dir), "another's number");
        assert!(!of("/slurm/uid_1000", dir) && !of("/", dir));
        assert!(!of("/slurm/uid_1000/job_1", "elsewhere/slurm/uid_1000/job_1"));
        let mut early = taken(&[victim("/job_1", None)]);
        early[0].kill.at = Timestamp(-2 * Timestamp::SECOND);
        let job = subject("sys/fs/cgroup/memory/job_1");
        assert!(!is_of(&early[0], &job, &mounts), "the path was another run's");
    }
    #[test]
    fn a_kill_proves_what_was_charged_to_the_job_or_to_a_part_of_it() {
        let mounts = ["sys/fs/cgroup/memory".into()];
        let job = subject("sys/fs/cgroup/memory/uid_1/job_1");
        let step = "/uid_1/job_1/step_0";
        let proven = |full: Option<&str>| {
            let waiting = taken(&[FULL, victim(step, full), Line::Killed { pid: 7, bytes: 4096 }]);
            let mut proven = Proven::default();
            proven.take(&waiting[0], &job, &mounts);
            proven
        };
        let of = |charged, part| Proven { charged, part };
        assert_eq!(proven(Some("/uid_1/job_1")), of(Some(8191), Some(4096)));
        assert_eq!(proven(Some(step)), of(None, Some(8191)), "the job may have used more");
        assert_eq!(proven(Some("/uid_1")), of(None, Some(4096)), "the limit of all jobs of a user");
        assert_eq!(proven(None), of(None, Some(4096)), "the node's memory");
    }
}
