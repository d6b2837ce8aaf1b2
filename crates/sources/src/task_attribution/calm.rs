//! Calm: nothing happens in any job, so that events of other tasks may wait in the kernel.
//!
//! Waking at each fork and exit of the node costs more than reading them. While no task of a job began, ended or
//! moved for a while, the next drain comes after a second, whatever the node's other tasks do. Three things end
//! the calm at once:
//!
//! - the kernel reports that a process is moved into a job or that a directory is made in it (inotify);
//! - a job begins or ends: the end of its last process is an event of version 2, so a job without a directory there
//!   permits no calm;
//! - a drain finds an event of a task of a job.
//!
//! Each second, [`scan`](super::scan) compares the number of tasks in each job with the known ones.

use super::{Exits, now_us};
use crate::{Context, IdleQueues};
use cgroups::Hierarchy;
use kernel::inotify::Inotify;
use std::os::fd::AsFd as _;
use std::time::Duration;

/// How long nothing must have happened in the jobs.
const CALM_AFTER_US: u64 = 3_000_000;
/// Maximum time between the drains of one reading: less than between two readings.
const READING_US: u64 = 50_000;
/// Interval of drains in calm.
const CALM_EVERY: Duration = Duration::from_secs(1);
/// Maximum number of events of a drain in calm: an eighth of what fits into the buffers.
const EVENTS_MAX: usize = 1500;
/// Maximum number of watched directories of a job.
const DIRECTORIES_MAX: usize = 64;
/// Maximum number of jobs with watched directories.
const JOBS_MAX: usize = 64;

/// Whether the jobs are calm.
#[derive(Debug, Default)]
pub(super) struct Calm {
    is_calm: bool,
    /// When something happened in a job, or when its directories could not be watched.
    touched_us: u64,
    /// Whether the last reading found something about a job.
    is_touched: bool,
    /// Whether the calm ends with this drain.
    is_over: bool,
    /// Whether the scan of this drain found no task that came to a job.
    none_moved: bool,
    /// Reports moves of processes into jobs. It stays open, because closing it takes the kernel long.
    moves: Option<Inotify>,
    path: String,
}

impl Calm {
    /// Ends the calm with the current drain: jobs began or ended, or events were lost.
    pub(super) const fn end(&mut self) {
        self.is_over = true;
    }

    pub(super) const fn set_none_moved(&mut self, none_moved: bool) {
        self.none_moved = none_moved;
    }

    fn saw_move(&self) -> bool {
        let mut saw = false;
        let drained = self.moves.as_ref().map_or(Ok(()), |it| it.drain(|_| saw = true));
        saw || drained.is_err()
    }

    /// Watches a directory of a job: the files by which a process is moved there, and new directories.
    fn watch(&mut self, dir: &str) -> Option<()> {
        let moves = self.moves.as_ref()?;
        for file in ["", "cgroup.procs", "tasks", "cgroup.threads"] {
            self.path.clear();
            ["/", dir, "/", file].into_iter().for_each(|part| self.path.push_str(part));
            let is_dir = file.is_empty();
            // A file that this version of cgroups lacks needs no watch.
            let watched =
                if is_dir { moves.watch_dir(&self.path) } else { moves.watch_file(&self.path) };
            watched.ok()?;
        }
        Some(())
    }
}

impl Exits {
    /// The events that the next drain may wait for. `None`: the last drain found something about a job, or a new job
    /// waits for its first process, so the next one follows at its usual time. The same holds for events of other tasks that came outside of a calm: with
    /// many events, waking at the first costs more than it saves.
    pub(crate) fn quiet(&self) -> Option<IdleQueues<'_>> {
        let (listener, forks) = (self.listener.as_ref()?.fd()?, self.forks.as_ref()?.fd());
        if self.calm.is_touched || self.awaits_tasks() {
            return None;
        }
        let moves = self.calm.moves.as_ref().map(|moves| moves.as_fd());
        let queues = [Some(listener), Some(forks)];
        let is_calm = self.calm.is_calm;
        Some(match (is_calm, self.found) {
            (true, _) => IdleQueues { queues, is_calm, moves, at_most: CALM_EVERY },
            (false, 0) => IdleQueues { queues, is_calm, moves, at_most: self.quiet_for },
            (false, _) => IdleQueues::default(),
        })
    }

    /// Skips the looks at tasks whose ends were received, if no job has counted a new task: they are in none.
    pub(super) fn skip_ended(&mut self) {
        if self.calm.is_calm && self.calm.none_moved {
            self.chunk.iter().for_each(|exit| self.tree.skip_look(exit.stats.tid));
        }
    }

    /// Updates the calm after a drain.
    pub(super) fn see_whether_calm(&mut self, cx: &Context<'_>) {
        let calm = &mut self.calm;
        let now_us = now_us(cx);
        let is_touched = self.tree.take_touched();
        if is_touched {
            self.jobs.iter_mut().for_each(|job| job.known_tasks = None);
        }
        let is_over = std::mem::take(&mut calm.is_over) | is_touched;
        let is_moved = calm.saw_move();
        // Unless every task of a job is known, each event may be of one.
        let events_max = if self.tree.is_complete() { EVENTS_MAX } else { 0 };
        if is_over || is_moved || self.found > events_max {
            (calm.is_calm, calm.touched_us) = (false, now_us);
        }
        // A reading may drain more than once.
        calm.is_touched = now_us.saturating_sub(calm.touched_us) < READING_US;
        if calm.is_touched || calm.is_calm || !self.tree.is_complete() || !cx.root.is_live() {
            return;
        }
        let is_late = now_us.saturating_sub(self.calm.touched_us) >= CALM_AFTER_US;
        if self.jobs.is_empty() || is_late {
            self.calm.is_calm = self.watch_jobs(cx).is_some();
            if !self.calm.is_calm {
                self.calm.touched_us = now_us;
            }
        }
    }

    /// Watches the directories of all jobs; `None` if their moves or ends may remain unseen.
    fn watch_jobs(&mut self, cx: &Context<'_>) -> Option<()> {
        if self.jobs.is_empty() {
            return Some(());
        }
        if self.calm.moves.is_none() {
            self.calm.moves = Some(Inotify::new().ok()?);
        }
        if self.jobs.len() > JOBS_MAX || self.jobs.iter().any(|job| job.listed_with.is_none()) {
            return None;
        }
        for place in 0..self.jobs.len() {
            let cgroup = cx.jobs.get(&self.jobs.get(place)?.key)?;
            let end = cgroup.dir(Hierarchy::Unified)?;
            let dir = cgroup.dir(Hierarchy::Pids).unwrap_or(end);
            let (mut watched, calm) = (Some(()), &mut self.calm);
            let show = |dir: &str| watched = watched.and_then(|()| calm.watch(dir));
            let all =
                cgroups::directories(cx.root, (dir, DIRECTORIES_MAX), &mut self.members, show);
            watched?;
            all.ok().filter(|all| *all)?;
        }
        Some(())
    }
}
