//! Tasks that are moved into a job, out of one, or from one to another (`pam_slurm_adopt` moves a session).
//!
//! The kernel reports no move: the next list or look notices it. The values at that moment are the base of the
//! new job; what the task used before belongs to the job it left, or to no job. A task that ends between the move
//! and the notice counts for neither beyond its last reading.

use super::{Account, JobNo, Membership, Task, Tree};

/// Maximum number of moved tasks that wait to be read; the others are read with their job.
const MOVED_MAX: usize = 4096;

impl Task {
    /// A list or a look found it in a job.
    pub(super) fn join(&mut self, job: JobNo, tid: u32, moved: &mut Vec<u32>) {
        match self.place {
            Membership::Job(old) if old == job => return,
            // It descends from a task that was moved before its birth; it was not moved itself.
            Membership::Job(_) if !self.listed => {}
            Membership::Job(old) => {
                self.left.get_or_insert((old, !self.again));
                self.again = true;
            }
            Membership::Left => self.again = true,
            Membership::Doubt | Membership::Outside => {}
        }
        self.place = Membership::Job(job);
        if self.again && moved.len() < MOVED_MAX {
            moved.push(tid);
        }
    }

    /// No list contains it, although it lives: it left its job.
    pub(super) fn leave(&mut self, tid: u32, moved: &mut Vec<u32>) {
        if let Membership::Job(old) = self.place {
            self.left.get_or_insert((old, !self.again));
            self.place = Membership::Left;
            if moved.len() < MOVED_MAX {
                moved.push(tid);
            }
        }
    }
}

impl Tree {
    pub(super) fn is_known(&self, job: JobNo) -> bool {
        self.jobs.get(&job).is_some_and(|facts| facts.known)
    }

    /// The cgroups in which a look found a task outside of all jobs, as a hash.
    pub(crate) fn seen_outside(&self, tid: u32) -> Option<u64> {
        self.tasks.get(&tid).filter(|task| !matches!(task.place, Membership::Job(_)))?.seen
    }

    /// A look found a task outside, in these cgroups.
    pub(crate) fn set_seen(&mut self, tid: u32, seen: u64) {
        if let Some(task) = self.tasks.get_mut(&tid) {
            task.seen = Some(seen);
        }
    }

    /// A task is in other cgroups than when it was last seen outside: it was moved.
    pub(crate) fn has_moved(&mut self, tid: u32) {
        if let Some(task) = self.tasks.get_mut(&tid) {
            task.again = true;
        }
    }

    /// The job of a task.
    pub(crate) fn job_of(&self, tid: u32) -> Option<JobNo> {
        match self.tasks.get(&tid)?.place {
            Membership::Job(job) => Some(job),
            Membership::Doubt | Membership::Outside | Membership::Left => None,
        }
    }

    /// Tasks that were moved since the last call, in exchange for an empty list.
    pub(crate) const fn take_moved(&mut self, empty: Vec<u32>) -> Vec<u32> {
        std::mem::replace(&mut self.moved, empty)
    }

    /// A moved task was read, or is gone: one that left its job no longer counts.
    pub(crate) fn moved_read(&mut self, tid: u32, account: &mut impl Account) {
        if let Some(task) = self.tasks.get_mut(&tid)
            && task.place == Membership::Left
        {
            task.left = None;
            account.forgotten(task.no);
        }
    }
}
