//! OOM kills in the kernel's log, held until each is reported for its job.
//!
//! The log names the task's cgroup, which is a job's or below it. Users choose names of cgroups, so that a cut record
//! could name another job's: see [`kernel::kmsg`]. The source therefore holds a victim until the next line confirms
//! it, `Killed process`, with the same process ID, name and user. It attributes the kill then. A victim without that
//! line, with an ambiguous record or with a record that continues its own counts in
//! `cgroup_oom_unattributed_total`, and for no job. The counters of the cgroups also count kills, including those
//! that the log omits: the kernel prints at most ten in 5 s.
//!
//! The log also contains the memory charged to the full cgroup. This information outlives the cgroup, which a
//! scheduler may remove before another reading of the job's memory.

use super::metrics::{OOM_CHARGED, OOM_PART};
use super::subject::Subject;
use crate::{Context, PartState, Sink, SourceError};
use cgroups::{Hierarchies, Hierarchy};
use kernel::kmsg::{KernelLog, Line, Victim};
use kernel::{ReadError, Root, clock};
use model::{JobKey, OomKill, Timestamp};
use std::collections::BTreeMap;

/// Maximum number of records read in one call: the log of a booting machine has some thousands.
const RECORDS_MAX: usize = 4096;
/// Maximum number of kills waiting for their job.
const WAITING_MAX: usize = 256;
/// Maximum wait until the job of a kill is found.
const JOB_WAIT_US: i64 = 10 * Timestamp::SECOND;
/// A limit from this value on means "no limit": it exceeds any machine's memory.
const NO_LIMIT: u64 = 1 << 60;

/// The kernel's log, and the kills read from it.
#[derive(Debug)]
pub(super) struct Kills {
    log: Option<KernelLog>,
    /// State of the log; `None` on a recorded machine, which has no log.
    pub(super) state: Option<PartState>,
    /// Mount points of the memory hierarchies.
    mounts: Vec<Box<str>>,
    /// When the whole log was read last.
    read_at: Option<Timestamp>,
    taken: Taken,
}

/// The kills of the log's lines.
#[derive(Debug, Default)]
struct Taken {
    /// Memory of the full cgroup in the latest such line of the log.
    full: Option<Full>,
    /// The latest victim, until the next line confirms that it was killed.
    victim: Option<Waiting>,
    /// Confirmed kills that wait for their job.
    waiting: Vec<Waiting>,
    /// Number of victims that no job is charged with.
    unattributed: u64,
}

/// Memory charged to a full cgroup, and its limit.
#[derive(Clone, Copy, Debug)]
struct Full {
    charged: u64,
    limit: Option<u64>,
}

#[derive(Debug)]
struct Waiting {
    cgroup: String,
    /// The full cgroup, and the memory charged to it.
    full: Option<(String, u64)>,
    kill: OomKill,
    since: Timestamp,
}

impl Kills {
    pub(super) fn open(root: &Root, hierarchies: &Hierarchies) -> Self {
        // Earlier records belong to jobs that still exist, or are dropped.
        let (log, state) = match KernelLog::open(root, true) {
            Ok(log) => (Some(log), Some(PartState::Ok)),
            Err(_) if !root.is_live() => (None, None),
            Err(error) => (None, Some(PartState::Not(rejected(&error)))),
        };
        let of_memory =
            |hierarchy: &Hierarchy| matches!(hierarchy, Hierarchy::Memory | Hierarchy::Unified);
        let mounts = hierarchies.mounts().iter();
        let mounts = mounts.filter(|mount| mount.hierarchies.iter().any(of_memory));
        let mounts = mounts.map(|mount| mount.path.as_str().into()).collect();
        Self { log, state, mounts, read_at: None, taken: Taken::default() }
    }

    /// Number of OOM kills that the log did not attribute beyond doubt.
    pub(super) const fn unattributed(&self) -> u64 {
        self.taken.unattributed
    }

    /// Reads new log records and reports kills of these jobs.
    pub(super) fn report(&mut self, jobs: &[(JobKey, Subject)], cx: &Context<'_>, out: &mut Sink) {
        let Some(log) = &mut self.log else { return };
        let now_us = i64::try_from(clock::monotonic_us()).unwrap_or(i64::MAX);
        let (taken, read_at) = (&mut self.taken, self.read_at);
        let read = log.read(RECORDS_MAX, |at_us, line| {
            let age_us = now_us.saturating_sub(at_us).max(0);
            taken.take(line, (time_of(age_us, read_at, cx.now), cx.now));
        });
        match read {
            Ok(true) => self.read_at = Some(cx.now),
            Ok(false) => {}
            Err(errno) => {
                let error = SourceError::broken(format!("/dev/kmsg: {errno}"));
                (self.log, self.state) = (None, Some(PartState::Not(error)));
            }
        }
        let (mounts, mut found_memory) = (&self.mounts, BTreeMap::<&JobKey, KillMemory>::new());
        taken.waiting.retain(|waiting| {
            let age_us = cx.now.since(waiting.since);
            let found = jobs.iter().find(|(_, subject)| is_of(waiting, subject, mounts));
            let Some((key, subject)) = found else { return age_us < JOB_WAIT_US };
            if let Some(job) = cx.jobs.get(key) {
                out.oom_kill(job, waiting.kill.clone());
                found_memory.entry(key).or_default().take(waiting, subject, mounts);
            }
            false
        });
        for (key, KillMemory { charged, part }) in found_memory {
            let mut of_job = out.of_job(key);
            for (metric, bytes) in [(&OOM_CHARGED, charged), (&OOM_PART, part)] {
                if let Some(bytes) = bytes {
                    of_job.gauge(metric, &[], bytes as f64);
                }
            }
        }
    }
}

/// Time of a record of this age. The log has its own clock, which no one corrects: on a machine that runs for weeks, it
/// is seconds off. A record is not older than the previous reading of the whole log.
fn time_of(age_us: i64, read_at: Option<Timestamp>, now: Timestamp) -> Timestamp {
    let at = now.plus(age_us.saturating_neg());
    read_at.map_or(at, |read_at| at.max(read_at)).min(now)
}

/// Memory use of a job as documented by its kills.
#[derive(Debug, Default, PartialEq, Eq)]
struct KillMemory {
    /// Memory charged to the job when it reached its own limit.
    charged: Option<u64>,
    /// Memory of a part of the job: a killed task, or a full cgroup below the job's.
    part: Option<u64>,
}

impl KillMemory {
    fn take(&mut self, waiting: &Waiting, subject: &Subject, mounts: &[Box<str>]) {
        self.part = self.part.max(waiting.kill.task_bytes);
        let Some((full, charged)) = &waiting.full else { return };
        match below(full, subject, mounts) {
            Some("") => self.charged = self.charged.max(Some(*charged)),
            Some(_) => self.part = self.part.max(Some(*charged)),
            // A cgroup above the job's: other jobs use it, too.
            None => {}
        }
    }
}

fn rejected(error: &ReadError) -> SourceError {
    match error {
        ReadError::Absent { .. } => SourceError::absent("this machine has no /dev/kmsg"),
        ReadError::Denied { .. } => {
            SourceError::denied("the kernel's log (/dev/kmsg)", "CAP_SYSLOG, or root")
        }
        ReadError::Failed { .. } => SourceError::broken(error.to_string()),
    }
}

impl Taken {
    /// Handles a line; `at` is its time in the log, `since` the time of reading.
    fn take(&mut self, line: Line<'_>, (at, since): (Timestamp, Timestamp)) {
        match line {
            Line::Full { charged, limit } => {
                let limit = Some(limit).filter(|bytes| *bytes < NO_LIMIT);
                self.full = Some(Full { charged, limit });
            }
            Line::Victim(Victim { cgroup, task, pid, uid, full }) => {
                self.reject();
                // The memory line precedes the victim's line; it is missing if the node itself is
                // out of memory.
                let full = full.zip(self.full.take());
                let limit_bytes = full.and_then(|(_, of)| of.limit);
                let full = full.map(|(full, of)| (full.to_owned(), of.charged));
                let (task, uid) = (task.into(), Some(uid));
                let kill = OomKill { at, pid, uid, task, task_bytes: None, limit_bytes };
                self.victim = Some(Waiting { cgroup: cgroup.to_owned(), full, kill, since });
            }
            Line::Ambiguous => {
                self.reject();
                self.full = None;
                self.unattributed = self.unattributed.saturating_add(1);
            }
            Line::Continued | Line::Lost => self.reject(),
            Line::Killed { pid, task, uid, bytes } => {
                let is_it = |kill: &OomKill| {
                    kill.pid == pid && &*kill.task == task && (uid.is_none() || kill.uid == uid)
                };
                match self.victim.take() {
                    Some(mut victim) if is_it(&victim.kill) => {
                        victim.kill.task_bytes = Some(bytes);
                        if self.waiting.len() >= WAITING_MAX {
                            self.waiting.remove(0);
                        }
                        self.waiting.push(victim);
                    }
                    // A kill of all tasks of a cgroup has one victim line and several of these.
                    None => {}
                    Some(_) => self.unattributed = self.unattributed.saturating_add(1),
                }
            }
        }
    }

    /// Drops a victim that no line confirmed.
    fn reject(&mut self) {
        if self.victim.take().is_some() {
            self.unattributed = self.unattributed.saturating_add(1);
        }
    }
}

/// Whether the killed task belonged to the subject: its cgroup is the subject's or below it, and the
/// subject existed then.
fn is_of(waiting: &Waiting, subject: &Subject, mounts: &[Box<str>]) -> bool {
    // The kernel's clock for cgroup creation lags by up to a tick.
    waiting.kill.at.plus(Timestamp::SECOND) >= subject.created()
        && below(&waiting.cgroup, subject, mounts).is_some()
}

/// Path of a cgroup relative to the subject's; empty for the subject's own, `None` if it is outside.
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

    const KILLED: Line<'_> = killed(7, "solve", Some(1000));

    const fn killed(pid: u32, task: &str, uid: Option<u32>) -> Line<'_> {
        Line::Killed { pid, task, uid, bytes: 4096 }
    }

    fn taken(lines: &[Line<'_>]) -> Taken {
        let mut taken = Taken::default();
        lines.iter().for_each(|line| taken.take(*line, (Timestamp(20), Timestamp(20))));
        taken
    }

    fn waiting_after(lines: &[Line<'_>]) -> Vec<Waiting> {
        taken(lines).waiting
    }

    #[test]
    fn a_kill_has_its_size_and_the_limit_of_its_cgroup() {
        let waiting = waiting_after(&[FULL, victim("/job_1", Some("/job_1")), KILLED]);
        let kill = &waiting[0].kill;
        assert_eq!((kill.task_bytes, kill.limit_bytes), (Some(4096), Some(8192)));
        assert_eq!((&*kill.task, kill.pid, kill.uid), ("solve", 7, Some(1000)));
        // The node is out of memory: the limit in the log belongs to another kill.
        let waiting = waiting_after(&[FULL, victim("/job_1", None), KILLED]);
        assert_eq!((waiting[0].kill.limit_bytes, &waiting[0].full), (None, &None));
        assert_eq!(waiting_after(&[KILLED]).len(), 0);
        let many = [victim("/job_1", None), KILLED].repeat(WAITING_MAX + 9);
        assert_eq!(waiting_after(&many).len(), WAITING_MAX);
    }

    #[test]
    fn a_kill_that_no_line_confirms_counts_for_no_job() {
        let victim = victim("/job_1", Some("/job_1"));
        let after = |lines: &[Line<'_>]| {
            let taken = taken(lines);
            (taken.waiting.len(), taken.unattributed)
        };
        assert_eq!(after(&[FULL, victim, KILLED]), (1, 0));
        assert_eq!(after(&[victim, killed(7, "solve", None)]), (1, 0), "before Linux 5.4");
        for (of, lines) in [
            ("the record was cut", &[victim, Line::Continued, KILLED][..]),
            ("records are missing", &[victim, Line::Lost, KILLED]),
            ("the record may be cut", &[FULL, Line::Ambiguous, KILLED]),
            ("another process", &[victim, killed(8, "solve", Some(1000))]),
            ("another name", &[victim, killed(7, "sleep", Some(1000))]),
            ("another user", &[victim, killed(7, "solve", Some(1001))]),
        ] {
            assert_eq!(after(lines), (0, 1), "{of}");
        }
        assert_eq!(after(&[victim, victim, KILLED]), (1, 1), "the first was already exiting");
        assert_eq!(after(&[victim]), (0, 0), "the next line is on its way");
    }

    #[test]
    fn a_kill_is_attributed_by_its_cgroup() {
        let mounts = ["sys/fs/cgroup/memory".into()];
        let of = |cgroup: &str, dir: &str| {
            let waiting = waiting_after(&[victim(cgroup, None), KILLED]);
            is_of(&waiting[0], &subject(dir), &mounts)
        };
        let dir = "sys/fs/cgroup/memory/slurm/uid_1000/job_1";
        assert!(of("/slurm/uid_1000/job_1", dir));
        assert!(of("/slurm/uid_1000/job_1/step_0/task_0", dir));
        assert!(!of("/slurm/uid_1000/job_12", dir), "another job's ID");
        assert!(!of("/slurm/uid_1000", dir) && !of("/", dir));
        assert!(!of("/slurm/uid_1000/job_1", "elsewhere/slurm/uid_1000/job_1"));
        let mut early = waiting_after(&[victim("/job_1", None), KILLED]);
        early[0].kill.at = Timestamp(-2 * Timestamp::SECOND);
        let job = subject("sys/fs/cgroup/memory/job_1");
        assert!(!is_of(&early[0], &job, &mounts), "the path belonged to an earlier run");
    }

    #[test]
    fn a_kill_is_not_older_than_the_previous_reading_of_the_log() {
        let now = Timestamp::from_seconds(1000);
        let second = Timestamp::SECOND;
        assert_eq!(time_of(second, None, now), now.plus(-second));
        // The log's clock is 40 s behind.
        assert_eq!(time_of(40 * second, Some(now.plus(-100_000)), now), now.plus(-100_000));
        assert_eq!(time_of(50_000, Some(now.plus(-100_000)), now), now.plus(-50_000));
        assert_eq!(time_of(0, Some(now.plus(second)), now), now, "the clock was set back");
    }

    #[test]
    fn a_kill_documents_the_memory_charged_to_the_job_or_a_part_of_it() {
        let mounts = ["sys/fs/cgroup/memory".into()];
        let job = subject("sys/fs/cgroup/memory/uid_1/job_1");
        let step = "/uid_1/job_1/step_0";
        let memory = |full: Option<&str>| {
            let lines = [FULL, victim(step, full), KILLED];
            let mut memory = KillMemory::default();
            memory.take(&waiting_after(&lines)[0], &job, &mounts);
            memory
        };
        let of = |charged, part| KillMemory { charged, part };
        assert_eq!(memory(Some("/uid_1/job_1")), of(Some(8191), Some(4096)));
        assert_eq!(memory(Some(step)), of(None, Some(8191)), "the job may have used more");
        assert_eq!(memory(Some("/uid_1")), of(None, Some(4096)), "the limit of all jobs of a user");
        assert_eq!(memory(None), of(None, Some(4096)), "the node's memory");
    }
}
