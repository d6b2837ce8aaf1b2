//! Attributes tasks to jobs by the lists of the jobs' cgroups, and by descent.
//!
//! A child is in its parent's cgroup until it is moved. So a task reported by a fork event belongs to its
//! parent's job. If the parent belongs to no job, or is not known, the task may still join one and is looked
//! at while it is young. When a task ends, its entry determines its job. An end without an entry belongs to
//! the job of its thread group, or, while entries may be missing, of its parent; it waits if that is not
//! known yet. All times here are microseconds of [`kernel::clock::monotonic_us`].
//!
//! A task has one entry for its whole life, in any order of its fork, its lists, its readings and its end:
//! its readings are stored by the number of the entry, and a second entry would count them again. So reports
//! are compared with entries by the times at which tasks began and were seen. A fork from before a task was
//! first seen belongs to it; a fork from after it belongs to the next task with this ID.

mod ends;
mod lists;
mod moves;
mod open_tasks;
mod restored;
mod waiting;

pub(crate) use lists::{Looked, Reading};
pub(super) use restored::TaskIdentity;

use super::saved::Numbers;
use kernel::proc_connector::Fork;
use kernel::taskstats::TaskStats;
use rustc_hash::FxHashMap;
use std::num::NonZeroU64;
use waiting::{WaitingEnds, Who};

/// Maximum error of the reported times of forks and ends.
pub(super) const TOLERANCE_US: u64 = 1_000_000;
/// Ages at which a new task outside of all jobs is looked at, because it may have joined one.
const LOOK_AGES_US: [u64; 5] = [20_000, 100_000, 300_000, 1_000_000, 3_000_000];
/// How long the tree remembers that a parent belongs to no job.
const OUTSIDE_US: u64 = 1_000_000;
/// Maximum time that an end waits for its parent to become known.
const WAIT_US: u64 = 10_000_000;
/// Maximum number of tasks in doubt at a time: the number of forks that fit into a buffer.
const DOUBTS_MAX: usize = 8192;
/// Maximum number of tasks with reused IDs and missing ends.
const DISPLACED_MAX: usize = 256;
/// Maximum number of ended parents that are remembered while ends of their children may refer to them.
const RECENT_MAX: usize = 1024;
/// Maximum number of tasks of jobs: the kernel has 4 194 304 IDs, and uses far fewer by default.
const TASKS_MAX: usize = 1 << 20;
/// ID of the first process, the new parent of orphans.
const REAPER: u32 = 1;
/// The parent of the kernel's own threads.
const KTHREADD: u32 = 2;

/// Number of a watched job; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct JobNo(u32);

impl JobNo {
    /// A new number.
    pub(crate) const fn new(number: u32) -> Self {
        Self(number)
    }
}

/// Number of a watched task; never reused, unlike its task ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TaskNo(NonZeroU64);

impl TaskNo {
    /// A new number.
    pub(crate) const fn new(number: u64) -> Self {
        Self(NonZeroU64::MIN.saturating_add(number))
    }
}

/// The account of the use of the jobs' tasks.
pub(crate) trait Account {
    /// A task of a job ended.
    fn ended(&mut self, job: JobNo, task: &Ended<'_>);

    /// A task is no longer watched and its end was not received: it left its job, or the kernel dropped its
    /// end. Its known use stays with its job.
    fn forgotten(&mut self, task: TaskNo);

    /// A task changed its job and ended before it was read: its use since its last reading cannot be
    /// attributed to either job.
    fn unproven(&mut self, task: TaskNo) {
        self.forgotten(task);
    }

    /// Keeps only the jobs that still exist.
    fn keep(&mut self, is_there: impl Fn(JobNo) -> bool);

    /// Writes a job's sums for the next start of the agent.
    fn save_job(&self, _job: JobNo, _out: &mut Vec<u8>) {}

    /// Writes a living task's last values; false if it has none.
    fn save_task(&self, _tid: u32, _task: TaskNo, _out: &mut Vec<u8>) -> bool {
        false
    }

    /// Restores what [`Self::save_job`] wrote; `None` if it is damaged.
    fn restore_job(&mut self, _job: JobNo, _from: &mut Numbers<'_>) -> Option<()> {
        None
    }

    /// Restores what [`Self::save_task`] wrote; `None` if it is damaged.
    fn restore_task(&mut self, _: JobNo, _tid: u32, _: TaskNo, _: &mut Numbers<'_>) -> Option<()> {
        None
    }

    /// A restored task has ended: no further use of it counts.
    fn lost(&mut self, _tid: u32, task: TaskNo) {
        self.forgotten(task);
    }
}

/// The end of a task of a job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended<'a> {
    /// The number of the task; a new one if the task was not watched.
    pub(crate) no: TaskNo,
    /// Its last values.
    pub(crate) stats: &'a TaskStats,
    /// Its process, if known.
    pub(crate) tgid: Option<u32>,
    /// Whether its use before its first counted reading belongs to its job, because it began there.
    pub(crate) from_start: bool,
}

/// The time range in which a newly reported end happened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// When all earlier ends had been received.
    pub(crate) from_us: u64,
    /// Now.
    pub(crate) to_us: u64,
}

/// Counts of the tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TreeCounts {
    /// Reported ends.
    pub(crate) exits: u64,
    /// Ends without a known job.
    pub(crate) unattributed: u64,
    /// Their processor time in nanoseconds.
    pub(crate) unattributed_cpu_ns: u64,
    /// New tasks that were not looked at, because too many were in doubt.
    pub(crate) not_looked_at: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Membership {
    Job(JobNo),
    /// Its cgroup is not known yet.
    Doubt,
    /// In no job at the last look.
    Outside,
    /// It was in a job, and has left it.
    Left,
}

#[derive(Clone, Copy, Debug)]
struct Task {
    no: TaskNo,
    place: Membership,
    /// 0 if unknown.
    tgid: u32,
    /// The task that determines the job of this one.
    parent: Who,
    /// 0 if unknown.
    start_us: u64,
    /// Since when it is known, or outside. It existed then.
    since_us: u64,
    /// The last round of lists that contained it.
    round: u32,
    looks: u8,
    /// Whether a look found it in no job.
    outside: bool,
    /// Whether its fork was reported: it is new, and may join a job.
    announced: bool,
    /// Whether it joined its job after it began, so that its first values are not use of that job.
    again: bool,
    /// Whether a list has confirmed its place.
    listed: bool,
    /// The job that it left, to which the next reading still belongs, and whether its whole use counts there.
    left: Option<(JobNo, bool)>,
    /// A hash of its cgroups when a look found it outside.
    seen: Option<u64>,
}

impl Task {
    /// Distance of the end of a task with this lifetime from the window, and from the time at which its ID
    /// was reused; `None` if it is too far to be this task.
    fn misfit_us(&self, elapsed_us: u64, window: Window, until_us: u64) -> Option<u64> {
        let is_known = self.start_us != 0;
        // It began when it was first seen, or earlier.
        let end_us = if is_known { self.start_us } else { self.since_us };
        let end_us = end_us.saturating_add(elapsed_us);
        let early_us = window.from_us.saturating_sub(end_us.min(until_us));
        let late_us = end_us.saturating_sub(window.to_us.min(until_us));
        let misfit_us = if is_known { early_us.max(late_us) } else { early_us };
        (misfit_us <= TOLERANCE_US).then_some(misfit_us)
    }

    /// Whether a fork at this time was that of this task, which is known from a list or a reading.
    fn began_with(&self, fork_us: u64) -> bool {
        // For a task outside, the time at which it was last seen is known, not the first.
        let is_it = match self.start_us {
            0 => fork_us <= self.since_us && self.place != Membership::Outside,
            start_us => start_us.abs_diff(fork_us) <= TOLERANCE_US,
        };
        !self.announced && is_it
    }

    /// Whether a task forked at this time had this ID before this task.
    const fn began_after(&self, fork_us: u64) -> bool {
        let tolerance_us = if self.announced { 0 } else { TOLERANCE_US };
        fork_us.saturating_add(tolerance_us) < self.start_us
    }
}

/// A task with an ID that was reused before its end was reported.
#[derive(Clone, Copy, Debug)]
struct Displaced {
    tid: u32,
    task: Task,
    /// When its ID was reused: it ended before.
    until_us: u64,
}

/// Facts about a job.
#[derive(Clone, Copy, Debug)]
struct Facts {
    /// Use of the job's tasks before this time does not count.
    counts_from_us: u64,
    /// Whether every task born in it is known, so that an unknown one must have been moved into it.
    known: bool,
}

/// The tasks of jobs, and those that may be.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    tasks: FxHashMap<u32, Task>,
    /// Oldest first.
    displaced: Vec<Displaced>,
    /// The tasks in doubt or outside.
    doubts: Vec<u32>,
    /// Whether ended tasks have been removed from it since the last look.
    swept: bool,
    waiting: WaitingEnds,
    recent: Vec<(u32, JobNo, u64)>,
    jobs: FxHashMap<JobNo, Facts>,
    /// Tasks that joined or left a job, to be read soon.
    moved: Vec<u32>,
    settled: Vec<Who>,
    absent: Vec<u32>,
    next_task: u64,
    round: u32,
    /// Whether every task of a job is here or descends from one that is.
    complete: bool,
    /// A task of a job began, ended or moved since [`Tree::take_touched`].
    touched: bool,
    counts: TreeCounts,
}

impl Tree {
    /// An empty tree, with room for the usual number of tasks.
    pub(super) fn new() -> Self {
        let mut tree = Self::default();
        tree.tasks.reserve(512);
        tree.doubts.reserve(512);
        tree.displaced.reserve(16);
        tree.settled.reserve(16);
        tree.waiting.reserve(16);
        tree
    }

    /// Counts since the start.
    pub(crate) const fn counts(&self) -> TreeCounts {
        self.counts
    }

    /// Whether a task of a job began, ended or moved since the last call.
    pub(super) const fn is_touched(&self) -> bool {
        self.touched
    }

    /// As [`Self::is_touched`], and forgets it.
    pub(super) const fn take_touched(&mut self) -> bool {
        std::mem::replace(&mut self.touched, false)
    }

    /// Sets whether every task of a job is here or descends from one that is: all jobs were listed, and no
    /// fork was lost since. Then an end without an entry belongs to no job.
    pub(super) const fn set_complete(&mut self, complete: bool) {
        self.complete = complete;
    }

    /// Watches a job. Use of its tasks before this time does not count for it.
    pub(super) fn add_job(&mut self, job: JobNo, counts_from_us: u64) {
        self.jobs.insert(job, Facts { counts_from_us, known: false });
    }

    /// Sets whether every task born in a job is known.
    pub(super) fn set_known(&mut self, job: JobNo, known: bool) {
        if let Some(facts) = self.jobs.get_mut(&job) {
            facts.known = known;
        }
    }

    /// Stops watching a job and its tasks.
    pub(super) fn remove_job(&mut self, job: JobNo, account: &mut impl Account) {
        self.jobs.remove(&job);
        self.recent.retain(|(_, of, _)| *of != job);
        let mut keep = |task: &Task| {
            let keep = task.place != Membership::Job(job);
            if !keep {
                account.forgotten(task.no);
            }
            keep
        };
        self.displaced.retain(|it| keep(&it.task));
        self.tasks.retain(|_, task| keep(task));
    }

    /// Whether every task of a job is known or descends from a known one.
    pub(super) const fn is_complete(&self) -> bool {
        self.complete
    }

    /// The number of known tasks in a job.
    pub(super) fn tasks_of(&self, job: JobNo) -> usize {
        self.tasks.values().filter(|task| task.place == Membership::Job(job)).count()
    }

    fn place_of(&self, tid: u32) -> Option<(Membership, Who)> {
        let task = self.tasks.get(&tid)?;
        Some((task.place, Who { tid, no: Some(task.no) }))
    }

    /// The place of a task, even if its ID was reused since.
    fn place_of_who(&self, who: Who) -> Option<Membership> {
        let is_it = |task: &&Task| who.no.is_none_or(|no| no == task.no);
        let displaced = || self.displaced.iter().filter(|it| it.tid == who.tid);
        let task = self.tasks.get(&who.tid).filter(is_it);
        task.or_else(|| displaced().map(|it| &it.task).find(is_it)).map(|task| task.place)
    }

    const fn number(&mut self) -> TaskNo {
        self.next_task += 1;
        TaskNo::new(self.next_task)
    }

    /// A task was created.
    pub(super) fn fork(&mut self, fork: &Fork, account: &mut impl Account) {
        let known = self.tasks.get_mut(&fork.tid);
        if let Some(task) = known.filter(|task| task.began_with(fork.at_us)) {
            self.touched = true;
            (task.tgid, task.start_us, task.announced) = (fork.tgid, fork.at_us, true);
            return;
        }
        let Some((place, parent)) = self.descent(fork) else {
            return self.vacate(fork.tid, fork.at_us, account);
        };
        let task = Task {
            tgid: fork.tgid,
            parent,
            start_us: fork.at_us,
            announced: true,
            ..self.task(place, fork.at_us)
        };
        if let Some(next) = self.tasks.get(&fork.tid).filter(|next| next.began_after(fork.at_us)) {
            let until_us = next.start_us;
            return self.displace(Displaced { tid: fork.tid, task, until_us }, account);
        }
        self.vacate(fork.tid, fork.at_us, account);
        match place {
            Membership::Job(_) => {
                self.touched = true;
                self.insert(fork.tid, task);
            }
            _ => {
                self.doubt(fork.tid, task);
            }
        }
    }

    /// The place of a new task, from the task that it descends from; `None` if it is not to be watched.
    fn descent(&mut self, fork: &Fork) -> Option<(Membership, Who)> {
        let is_thread = fork.tid != fork.tgid;
        let parent = if is_thread {
            self.place_of(fork.tgid)
        } else {
            self.place_of(fork.parent_tid).or_else(|| self.place_of(fork.parent_tgid))
        };
        match parent {
            // The threads of a process outside of all jobs join a job with it, and are listed then.
            None | Some((Membership::Outside | Membership::Left, _)) if is_thread => None,
            Some((Membership::Job(job), parent)) => Some((Membership::Job(job), parent)),
            Some((_, parent)) => Some((Membership::Doubt, parent)),
            None => {
                let parent = self.doubt_parent(fork.parent_tgid, fork.at_us)?;
                Some((Membership::Doubt, parent))
            }
        }
    }

    /// A task with only its place known.
    const fn task(&mut self, place: Membership, now_us: u64) -> Task {
        Task {
            no: self.number(),
            place,
            tgid: 0,
            parent: Who { tid: 0, no: None },
            start_us: 0,
            since_us: now_us,
            round: self.round,
            looks: 0,
            outside: false,
            announced: false,
            again: false,
            listed: false,
            left: None,
            seen: None,
        }
    }

    fn insert(&mut self, tid: u32, task: Task) {
        if self.tasks.len() < TASKS_MAX {
            self.tasks.insert(tid, task);
        } else {
            self.counts.not_looked_at += 1;
        }
    }

    /// Watches a task without a known job; false if there is no room.
    fn doubt(&mut self, tid: u32, task: Task) -> bool {
        if self.doubts.len() >= DOUBTS_MAX && !self.swept {
            // It still contains tasks that ended since the last look; one removal until the next look is
            // enough.
            self.swept = true;
            let tasks = &self.tasks;
            let is_in_doubt = |place| matches!(place, Membership::Doubt | Membership::Outside);
            self.doubts.retain(|tid| tasks.get(tid).is_some_and(|task| is_in_doubt(task.place)));
        }
        let has_space = self.doubts.len() < DOUBTS_MAX;
        if has_space {
            self.tasks.insert(tid, task);
            self.doubts.push(tid);
        } else {
            self.counts.not_looked_at += 1;
        }
        has_space
    }

    /// Watches an unknown parent, if there is room.
    fn doubt_parent(&mut self, tid: u32, now_us: u64) -> Option<Who> {
        let task = self.task(Membership::Doubt, now_us);
        self.doubt(tid, task).then_some(Who { tid, no: Some(task.no) })
    }

    /// Takes the ID of a task that began at this time from its previous owner, which has ended; its end is on
    /// its way or was lost.
    fn vacate(&mut self, tid: u32, until_us: u64, account: &mut impl Account) {
        match self.tasks.get(&tid) {
            Some(task) if !task.began_after(until_us) => {}
            _ => return,
        }
        if let Some(task) = self.tasks.remove(&tid) {
            self.touched |= matches!(task.place, Membership::Job(_));
            self.displace(Displaced { tid, task, until_us }, account);
        }
    }

    fn displace(&mut self, displaced: Displaced, account: &mut impl Account) {
        if self.displaced.len() >= DISPLACED_MAX {
            let lost = self.displaced.remove(0);
            account.forgotten(lost.task.no);
        }
        self.displaced.push(displaced);
    }
}

#[cfg(test)]
mod tests;
