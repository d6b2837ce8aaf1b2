//! Rounds of lists of all jobs, and the scan of the jobs' lists that detects moved tasks. A list costs the kernel and the agent time for each task, so a
//! job is listed only if the number of its tasks (`pids.current`) does not follow from forks and ends.

use super::task_tree::{Account, JobNo};
use super::{Exits, ListKind, now_us};
use crate::Context;
use cgroups::Hierarchy;
use kernel::clock;
use std::fmt::Write as _;
use std::sync::Arc;

/// Minimum interval of scans: a second, less tolerance for a drain that begins early.
const SCAN_EVERY_US: u64 = 950_000;
/// Maximum time without a list of a job.
const LIST_EVERY_US: u64 = 30_000_000;
/// Maximum number of jobs with an open count of tasks: opening a file takes longer than reading it.
const OPEN_COUNTS_MAX: usize = 64;
/// A scan uses at most one part in so many of a processor.
const SCAN_COST: u64 = 500;

impl Exits {
    /// Whether jobs are scanned for moved tasks: all other tasks are reported by forks.
    const fn scans(&self) -> bool {
        self.forks.is_some() && !self.jobs.is_empty()
    }

    /// Lists all jobs if a scan is due; returns whether it did.
    pub(super) fn scan(&mut self, cx: &Context<'_>, account: &mut impl Account) -> bool {
        self.calm.set_none_moved(false);
        if !self.scans() || now_us(cx) < self.scan_us {
            return false;
        }
        let began_us = clock::thread_cpu_us();
        let mut none_moved = true;
        self.jobs.iter_mut().for_each(|job| job.listed = false);
        self.tree.begin_round();
        // Forks up to now come first: the cgroups count their tasks, too.
        if matches!(self.take_forks(now_us(cx), account), Ok(true)) {
            self.note_loss();
        }
        for place in 0..self.jobs.len() {
            let Some(no) = self.jobs.get(place).map(|job| job.no) else { break };
            if self.is_as_listed(place, cx) {
                continue;
            }
            none_moved = false;
            // Failed lists are detected and reported by the next reading.
            self.list(no, cx, account).ok();
            self.note_surplus(place, cx);
        }
        let cost_us = clock::thread_cpu_us().saturating_sub(began_us);
        self.scan_us = now_us(cx) + SCAN_EVERY_US.max(cost_us.saturating_mul(SCAN_COST));
        self.calm.set_none_moved(none_moved);
        true
    }

    /// Whether as many tasks came to a job's cgroup since its last list as forks and ends account for: then none was moved
    /// into it or out of it. Moves in the same second may hide each other, so a list counts for [`LIST_EVERY_US`].
    fn is_as_listed(&mut self, place: usize, cx: &Context<'_>) -> bool {
        let surplus = self.surplus(place, cx);
        let Some(job) = self.jobs.get(place).filter(|job| job.known) else { return false };
        job.listed_with.is_some_and(|(listed_us, then)| {
            surplus == Some(then) && now_us(cx).saturating_sub(listed_us) < LIST_EVERY_US
        })
    }

    /// Notes what a job's cgroup counts beyond its known tasks, right after its list.
    fn note_surplus(&mut self, place: usize, cx: &Context<'_>) {
        let surplus = self.surplus(place, cx);
        if let Some(job) = self.jobs.get_mut(place) {
            job.listed_with = surplus.filter(|_| job.listed).map(|surplus| (now_us(cx), surplus));
        }
    }

    /// The tasks that a job's cgroup counts, beyond those that are known: processes whose parents have not waited for
    /// them, and threads where only processes are listed. `None` if its cgroup does not count them.
    fn surplus(&mut self, place: usize, cx: &Context<'_>) -> Option<i64> {
        let counted = self.counted(place, cx)?;
        let job = self.jobs.get_mut(place)?;
        let is_touched = self.tree.is_touched();
        let known = job.known_tasks.filter(|_| !is_touched);
        let known = known.unwrap_or_else(|| self.tree.tasks_of(job.no));
        debug_assert_eq!(known, self.tree.tasks_of(job.no), "each change touches the tree");
        job.known_tasks = Some(known).filter(|_| !is_touched);
        Some(i64::try_from(counted).ok()?.saturating_sub(i64::try_from(known).ok()?))
    }

    /// The number of tasks that a job's cgroup counts.
    fn counted(&mut self, place: usize, cx: &Context<'_>) -> Option<u64> {
        let are_few = self.jobs.len() <= OPEN_COUNTS_MAX;
        let job = self.jobs.get_mut(place)?;
        let open = job.count.as_ref().filter(|_| are_few);
        if let Some(number) = open.and_then(|file| self.looks.number(file)) {
            return Some(number);
        }
        job.count = None;
        let cgroup = cx.jobs.get(&job.key)?;
        let dir = cgroup.dir(Hierarchy::Pids).or_else(|| cgroup.dir(Hierarchy::Unified))?;
        self.path.clear();
        // Writing into a `String` cannot fail.
        write!(self.path, "{dir}/pids.current").ok();
        let file = cx.root.open(&self.path).ok()?;
        let number = self.looks.number(&file)?;
        job.count = are_few.then(|| Arc::new(file));
        Some(number)
    }

    /// Time until the next scan, if there is one.
    pub(super) fn scan_in_us(&self, cx: &Context<'_>) -> Option<u64> {
        self.scans().then(|| self.scan_us.saturating_sub(now_us(cx)))
    }

    /// Whether this round has listed a job completely.
    pub(crate) fn is_listed(&self, no: JobNo) -> bool {
        self.job(no).is_some_and(|job| job.listed)
    }

    /// Starts a round of lists of all jobs.
    pub(crate) fn begin_round(&mut self) {
        self.wants_lists = false;
        self.jobs.iter_mut().for_each(|job| job.listed = false);
        self.tree.begin_round();
    }

    /// Ends a round of lists: tasks that no list contained are no longer watched. The waiting ends must have
    /// been received since the last list.
    pub(crate) fn end_round(&mut self, cx: &Context<'_>, account: &mut impl Account) {
        let (jobs, path) = (&self.jobs, &mut self.path);
        let listed = |no| jobs.iter().any(|job| job.no == no && job.listed);
        let lives = |tid: u32| {
            path.clear();
            // Writing into a `String` cannot fail.
            write!(path, "proc/{tid}").ok();
            cx.root.stat(path).is_ok()
        };
        self.tree.end_round(self.lists == ListKind::Processes, listed, lives, account);
    }

    /// Whether forks were lost, so that all jobs need to be listed soon.
    pub(crate) const fn wants_lists(&self) -> bool {
        self.wants_lists
    }
}
