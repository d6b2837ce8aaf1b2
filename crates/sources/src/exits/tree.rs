//! Which task is of which job: by the lists of the jobs' cgroups, and by descent.
//!
//! A child is in its parent's cgroup until somebody moves it. So a task that is announced by a fork
//! event is of its parent's job; one whose parent is of no job, or not known, may still join one and is
//! looked at while it is young. When a task ends, its entry says whose it was; an end without an entry
//! goes to its thread group, or, while entries may be missing, to its parent, and waits if that is not
//! known yet. All times here are microseconds of [`kernel::clock::monotonic_us`].
//!
//! A task has one entry for as long as it lives, in whichever order its fork, its lists, its readings and
//! its end are told: what it was read to have used is known by the entry's number, and a second entry
//! would count it again. So what is told is compared with what is known by the instants at which tasks
//! began and were seen: a fork from before a task was first seen is its own, one from after it is that of
//! the next task of the number.

mod ends;
mod lists;
mod moves;
mod open_tasks;
mod restored;
mod waiting;

pub(crate) use lists::{Looked, Reading};
pub(super) use restored::Origin;

use super::saved::Numbers;
use kernel::proc_connector::Fork;
use kernel::taskstats::TaskStats;
use rustc_hash::FxHashMap;
use std::num::NonZeroU64;
use waiting::{WaitingEnds, Who};

/// By how much the instants at which a fork and an end are told may be off.
pub(super) const TOLERANCE_US: u64 = 1_000_000;
/// At which ages a new task that is of no job is looked at, to see whether it has joined one.
const LOOK_AGES_US: [u64; 5] = [20_000, 100_000, 300_000, 1_000_000, 3_000_000];
/// How long it is remembered that a parent is of no job.
const OUTSIDE_US: u64 = 1_000_000;
/// How long an end waits for its parent to be known.
const WAIT_US: u64 = 10_000_000;
/// Most tasks that are in doubt at a time: as many as forks wait in a buffer.
const DOUBTS_MAX: usize = 8192;
/// Most tasks that gave their numbers away and whose ends have not been heard.
const DISPLACED_MAX: usize = 256;
/// Most ended parents that are remembered while their children's ends may still name them.
const RECENT_MAX: usize = 1024;
/// Most tasks of jobs: the kernel has numbers for 4 194 304, and gives a machine far fewer by default.
const TASKS_MAX: usize = 1 << 20;
/// The number of the first process, and whom orphans get for a parent.
const REAPER: u32 = 1;
/// The parent of the kernel's own threads.
const KTHREADD: u32 = 2;

/// A job for as long as it is watched; never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct JobNo(u32);

impl JobNo {
    /// A number that was not given yet.
    pub(crate) const fn new(number: u32) -> Self {
        Self(number)
    }
}

/// A task for as long as it is watched; never given twice, as its number is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TaskNo(NonZeroU64);

impl TaskNo {
    /// A number that was not given yet.
    pub(crate) const fn new(number: u64) -> Self {
        Self(NonZeroU64::MIN.saturating_add(number))
    }
}

/// Who keeps what the tasks of jobs used.
pub(crate) trait Account {
    /// A task of a job ended.
    fn ended(&mut self, job: JobNo, task: &Ended<'_>);

    /// A task is watched no more and its end was not heard: it left its job, or the kernel dropped its
    /// exit. What it is known to have used stays with its job.
    fn forgotten(&mut self, task: TaskNo);

    /// A task changed its job and ended before it was read: what it used since it was last read belongs to
    /// neither job as far as can be proven.
    fn unproven(&mut self, task: TaskNo) {
        self.forgotten(task);
    }

    /// Keeps the jobs that are still there.
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

    /// A restored task turns out to have ended: nothing more of it counts.
    fn lost(&mut self, _tid: u32, task: TaskNo) {
        self.forgotten(task);
    }
}

/// The end of a task of a job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended<'a> {
    /// The task; of one that was not watched while it lived, a number that nobody else has.
    pub(crate) no: TaskNo,
    /// Its last values.
    pub(crate) stats: &'a TaskStats,
    /// Its process, if known.
    pub(crate) tgid: Option<u32>,
    /// Whether what it used before the first reading was counted counts for its job, as it began there.
    pub(crate) from_start: bool,
}

/// Within which an end that is told now came about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// When all earlier ends had been taken.
    pub(crate) from_us: u64,
    /// Now.
    pub(crate) to_us: u64,
}

/// What the tree counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TreeCounts {
    /// Ends told.
    pub(crate) exits: u64,
    /// Of these, the ends whose job could not be told.
    pub(crate) unattributed: u64,
    /// Nanoseconds of processor time of these.
    pub(crate) unattributed_cpu_ns: u64,
    /// New tasks that were not looked at, as too many were in doubt.
    pub(crate) not_looked_at: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Membership {
    Job(JobNo),
    /// Its cgroup is not known yet.
    Doubt,
    /// Of no job when it was last looked at.
    Outside,
    /// It was in a job, and has left.
    Left,
}

#[derive(Clone, Copy, Debug)]
struct Task {
    no: TaskNo,
    place: Membership,
    /// 0 if not known.
    tgid: u32,
    /// Whose place was to decide this one's.
    parent: Who,
    /// 0 if not known.
    start_us: u64,
    /// Since when it is known, or outside. It lived then.
    since_us: u64,
    /// The last round of lists that had it.
    round: u32,
    looks: u8,
    /// Whether a look found it in no job.
    outside: bool,
    /// Whether its fork was told: it is new, and may join a job.
    announced: bool,
    /// Whether it joined its job later than it began, so that its first values are no use of that job.
    again: bool,
    /// Whether a list has confirmed its place.
    listed: bool,
    /// The job that it left, to which the next reading still belongs, and whether all it used counts there.
    left: Option<(JobNo, bool)>,
    /// A hash of its cgroups when a look found it outside.
    seen: Option<u64>,
}

impl Task {
    /// How far from the window, and from the time until which it had its number, a task like this would
    /// have ended that lived so long; `None` if too far to be this one.
    fn misfit_us(&self, elapsed_us: u64, window: Window, until_us: u64) -> Option<u64> {
        let is_known = self.start_us != 0;
        // It began no later than it was first seen.
        let end_us = if is_known { self.start_us } else { self.since_us };
        let end_us = end_us.saturating_add(elapsed_us);
        let early_us = window.from_us.saturating_sub(end_us.min(until_us));
        let late_us = end_us.saturating_sub(window.to_us.min(until_us));
        let misfit_us = if is_known { early_us.max(late_us) } else { early_us };
        (misfit_us <= TOLERANCE_US).then_some(misfit_us)
    }

    /// Whether a fork at this instant was that of this task, which is known from a list or a reading.
    fn began_with(&self, fork_us: u64) -> bool {
        // Of one that is outside it is known when it was last seen, not when it was first.
        let is_it = match self.start_us {
            0 => fork_us <= self.since_us && self.place != Membership::Outside,
            start_us => start_us.abs_diff(fork_us) <= TOLERANCE_US,
        };
        !self.announced && is_it
    }

    /// Whether a task that was forked at this instant was an earlier one of the same number.
    const fn began_after(&self, fork_us: u64) -> bool {
        let tolerance_us = if self.announced { 0 } else { TOLERANCE_US };
        fork_us.saturating_add(tolerance_us) < self.start_us
    }
}

/// A task whose number was given to another before its end was told.
#[derive(Clone, Copy, Debug)]
struct Displaced {
    tid: u32,
    task: Task,
    /// When its number was given to another: it ended before.
    until_us: u64,
}

/// What the tree knows of a job.
#[derive(Clone, Copy, Debug)]
struct Facts {
    /// Before which instant what a task of the job used is not counted.
    counts_from_us: u64,
    /// Whether each task born in it is known, so that another one was moved into it.
    known: bool,
}

/// The tasks of jobs, and those that may be.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    tasks: FxHashMap<u32, Task>,
    /// The oldest first.
    displaced: Vec<Displaced>,
    /// The tasks in doubt or outside.
    doubts: Vec<u32>,
    /// Whether those that ended have been taken out of it since tasks were last looked at.
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
    counts: TreeCounts,
}

impl Tree {
    /// An empty tree, with room for what goes on at any time on a machine.
    pub(super) fn new() -> Self {
        let mut tree = Self::default();
        tree.tasks.reserve(512);
        tree.doubts.reserve(512);
        tree.displaced.reserve(16);
        tree.settled.reserve(16);
        tree.waiting.reserve(16);
        tree
    }

    /// What was counted since the start.
    pub(crate) const fn counts(&self) -> TreeCounts {
        self.counts
    }

    /// Says whether every task of a job is here or descends from one that is: all jobs were listed, and
    /// no fork was missed since. Then an end without an entry is of no job.
    pub(super) const fn set_complete(&mut self, complete: bool) {
        self.complete = complete;
    }

    /// Watches a job. What its tasks used before this instant does not count for it.
    pub(super) fn add_job(&mut self, job: JobNo, counts_from_us: u64) {
        self.jobs.insert(job, Facts { counts_from_us, known: false });
    }

    /// Says whether each task that is born in a job is known.
    pub(super) fn set_known(&mut self, job: JobNo, known: bool) {
        if let Some(facts) = self.jobs.get_mut(&job) {
            facts.known = known;
        }
    }

    /// Watches a job no more, nor its tasks.
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

    fn place_of(&self, tid: u32) -> Option<(Membership, Who)> {
        let task = self.tasks.get(&tid)?;
        Some((task.place, Who { tid, no: Some(task.no) }))
    }

    /// The place of a task, also if its number was given to another since.
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

    /// A task was made.
    pub(super) fn fork(&mut self, fork: &Fork, account: &mut impl Account) {
        let known = self.tasks.get_mut(&fork.tid);
        if let Some(task) = known.filter(|task| task.began_with(fork.at_us)) {
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
            Membership::Job(_) => self.insert(fork.tid, task),
            _ => {
                self.doubt(fork.tid, task);
            }
        }
    }

    /// The place of a new task by that of whom it descends from; `None` if it is not to be watched.
    fn descent(&mut self, fork: &Fork) -> Option<(Membership, Who)> {
        let is_thread = fork.tid != fork.tgid;
        let parent = if is_thread {
            self.place_of(fork.tgid)
        } else {
            self.place_of(fork.parent_tid).or_else(|| self.place_of(fork.parent_tgid))
        };
        match parent {
            // The threads of a process that is of no job join one with it, and are listed then.
            None | Some((Membership::Outside | Membership::Left, _)) if is_thread => None,
            Some((Membership::Job(job), parent)) => Some((Membership::Job(job), parent)),
            Some((_, parent)) => Some((Membership::Doubt, parent)),
            None => {
                let parent = self.doubt_parent(fork.parent_tgid, fork.at_us)?;
                Some((Membership::Doubt, parent))
            }
        }
    }

    /// A task of which only its place is known.
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

    /// Watches a task whose job is not known; false if there is no room.
    fn doubt(&mut self, tid: u32, task: Task) -> bool {
        if self.doubts.len() >= DOUBTS_MAX && !self.swept {
            // Those that ended since the last look around are still named; once is enough until then.
            self.swept = true;
            let tasks = &self.tasks;
            let is_in_doubt = |place| matches!(place, Membership::Doubt | Membership::Outside);
            self.doubts.retain(|tid| tasks.get(tid).is_some_and(|task| is_in_doubt(task.place)));
        }
        let has_room = self.doubts.len() < DOUBTS_MAX;
        if has_room {
            self.tasks.insert(tid, task);
            self.doubts.push(tid);
        } else {
            self.counts.not_looked_at += 1;
        }
        has_room
    }

    /// Watches a parent of which nothing is known, if there is room.
    fn doubt_parent(&mut self, tid: u32, now_us: u64) -> Option<Who> {
        let task = self.task(Membership::Doubt, now_us);
        self.doubt(tid, task).then_some(Who { tid, no: Some(task.no) })
    }

    /// Takes the number of a task that began then from whoever had it: that one has ended, and its end is
    /// on its way or was lost.
    fn vacate(&mut self, tid: u32, until_us: u64, account: &mut impl Account) {
        match self.tasks.get(&tid) {
            Some(task) if !task.began_after(until_us) => {}
            _ => return,
        }
        if let Some(task) = self.tasks.remove(&tid) {
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
