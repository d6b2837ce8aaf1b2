//! The processor time of a job that is proven: what its cgroup had counted when all its tasks were read, and what they
//! used since.
//!
//! A task that was moved into a job used some time before the move was noticed. The cgroup counts that time, the
//! task's accounting here begins later. A cgroup that is removed with the last process takes the last second of its
//! own account with it; the kernel's accounting of the ended tasks has that. The sum of both is exact as long as
//! neither counts what the other does: so the cgroup is read before the tasks are.

use super::Taskstats;
use crate::Context;
use crate::task_attribution::task_tree::{JobNo, TaskNo};
use kernel::taskstats::QueryReply;
use rustc_hash::FxHashMap;
use std::fmt::Write as _;

/// Most tasks of a job that are read to measure it: 2 ms. Beyond, the cgroup's own account has all but the last second.
const TASKS_MAX: usize = 1024;
/// The same for each task that joins: 0.3 ms.
const TASKS_JOINED_MAX: usize = 128;
/// Tries, while the agent is interrupted between two readings.
const TRIES: u32 = 3;
/// Drains after which a job is measured again, and most jobs that wait for it.
const AGAIN: u8 = 10;
const INEXACT_MAX: usize = 64;
/// Uncertainty of a measurement that is good enough, as a part of so many of the whole.
const EXACT: u64 = 1000;

impl Taskstats {
    /// Measures a job that was not measured since a task joined.
    pub(super) fn measure_once(&mut self, no: JobNo, cx: &Context<'_>) {
        if !self.sums.of(no).is_measured {
            self.measure(no, TASKS_MAX, cx);
        }
    }

    /// Measures a job after its last task has ended, if its cgroup still exists: the cgroup has counted the exits, too.
    pub(super) fn measure_last(&mut self, no: JobNo, cx: &Context<'_>) {
        let tree = &self.exits.tree;
        let can_measure = cx.root.is_live() && self.exits.drain_every().is_some();
        let is_last = tree.open_tasks(no).next().is_none();
        let Some(known) = self.exits.job(no).filter(|_| can_measure && is_last) else { return };
        let Some(job) = cx.jobs.get(&known.key) else { return };
        let Some(group_ns) = self.text.group_cpu_ns(job, cx.root) else { return };
        let is_whole = !known.is_old;
        self.sums.of(no).measure([group_ns, group_ns], is_whole);
    }

    /// Compares the cgroup's account of a job with that of its tasks.
    fn measure(&mut self, no: JobNo, tasks_max: usize, cx: &Context<'_>) {
        if !cx.root.is_live() || self.exits.drain_every().is_none() {
            return;
        }
        for _ in 0..TRIES {
            let Some((before_ns, after_ns)) = self.compare(no, tasks_max, cx) else { continue };
            let is_whole = self.exits.job(no).is_some_and(|job| !job.is_old);
            let sum = self.sums.of(no);
            sum.measure([before_ns, after_ns], is_whole);
            if after_ns.saturating_sub(before_ns) <= after_ns / EXACT {
                sum.is_measured = true;
                break;
            }
        }
    }

    /// Measures again what was measured while the agent was interrupted: a job that ends soon has no other reading.
    pub(super) fn measure_again(&mut self, cx: &Context<'_>) {
        for _ in 0..self.inexact.len() {
            let Some((no, tries)) = self.inexact.pop_front() else { break };
            if tries == 0 || self.exits.job(no).is_none() || self.sums.of(no).is_measured {
                continue;
            }
            self.measure(no, TASKS_JOINED_MAX, cx);
            self.inexact.push_back((no, tries - 1));
        }
    }

    /// Measures the jobs of tasks that just joined.
    pub(super) fn measure_joined(&mut self, tids: &[u32], cx: &Context<'_>) {
        let tree = &self.exits.tree;
        let mut jobs: Vec<JobNo> = tids.iter().filter_map(|tid| tree.job_of(*tid)).collect();
        jobs.sort_unstable();
        jobs.dedup();
        for no in jobs {
            self.sums.of(no).is_measured = false;
            self.measure(no, TASKS_JOINED_MAX, cx);
            if !self.sums.of(no).is_measured && self.inexact.len() < INEXACT_MAX {
                self.inexact.push_back((no, AGAIN));
            }
        }
    }

    /// The cgroup's account before all tasks of a job were read, and afterwards; `None` if one was not read, or ended
    /// and its accounting is on the way.
    fn compare(&mut self, no: JobNo, tasks_max: usize, cx: &Context<'_>) -> Option<(u64, u64)> {
        let job = cx.jobs.get(&self.exits.job(no)?.key)?;
        let before_ns = self.text.group_cpu_ns(job, cx.root)?;
        self.exits.list(no, cx, &mut self.sums).ok()?;
        if !self.exits.is_listed(no) {
            return None;
        }
        let tree = &self.exits.tree;
        let mut open: FxHashMap<TaskNo, u32> =
            tree.open_tasks(no).take(tasks_max + 1).map(|(tid, task)| (task, tid)).collect();
        if open.len() > tasks_max {
            return None;
        }
        let mut tids: Vec<u32> = open.values().copied().collect();
        tids.sort_unstable();
        tids.dedup();
        let read = |task| {
            open.remove(&task);
        };
        self.query_tasks(&tids, cx, read).ok()?;
        // One that is gone was accounted for before it went: what the list had was its remains.
        open.retain(|_, tid| self.text.exists(*tid, cx));
        self.exits.drain(cx, &mut self.sums).ok()?;
        let tree = &self.exits.tree;
        if tree.open_tasks(no).any(|(_, task)| open.contains_key(&task)) {
            return None;
        }
        let after_ns = self.text.group_cpu_ns(job, cx.root)?;
        // Those whose job is not known yet may turn out to be of this one, and are in the cgroup's account.
        let before_ns = before_ns.saturating_sub(tree.waiting_cpu_ns());
        Some((before_ns, after_ns))
    }

    /// Reads tasks; `read` is shown each that was.
    pub(super) fn query_tasks(
        &mut self,
        tids: &[u32],
        cx: &Context<'_>,
        mut read: impl FnMut(TaskNo),
    ) -> Result<(), crate::SourceError> {
        let (tree, sums, text) = (&mut self.exits.tree, &mut self.sums, &mut self.text);
        let query_errors = self.query.query_tasks(cx.root, tids, |tid, answer| {
            let QueryReply::Task(task, at_us) = answer else { return };
            let start_us = at_us.saturating_sub(task.stats.elapsed_us);
            let Some(reading) = tree.reading(tid, start_us, sums) else { return };
            let counts_whole = reading.from_start && !sums.has_read(reading.no);
            if counts_whole && reading.may_be_ending && text.is_ending(tid, cx.root) {
                return;
            }
            sums.read(reading, &task.stats);
            read(reading.no);
        });
        let query_errors =
            query_errors.map_err(|error| crate::SourceError::broken(error.to_string()))?;
        self.query_errors.unanswered =
            self.query_errors.unanswered.saturating_add(query_errors.unanswered);
        self.query_errors.malformed =
            self.query_errors.malformed.saturating_add(query_errors.malformed);
        Ok(())
    }
}

impl super::Text {
    fn exists(&mut self, tid: u32, cx: &Context<'_>) -> bool {
        self.path.clear();
        // Writing into a `String` cannot fail.
        write!(self.path, "proc/{tid}").ok();
        cx.root.stat(&self.path).is_ok()
    }
}
