//! Tasks across a restart of the agent.

use super::{JobNo, Membership, Task, TaskNo, Tree};

/// What identifies a task across a restart of the agent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaskIdentity {
    pub(crate) tid: u32,
    pub(crate) tgid: u32,
    pub(crate) start_us: u64,
}

/// The saved facts of a task besides its values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaskFacts {
    pub(crate) no: TaskNo,
    pub(crate) tgid: u32,
    pub(crate) start_us: u64,
}

impl Tree {
    /// Tasks of a job count completely from this time on.
    pub(crate) fn counts_from_us(&self, job: JobNo) -> u64 {
        self.jobs.get(&job).map_or(u64::MAX, |facts| facts.counts_from_us)
    }

    /// The tasks of all jobs.
    pub(crate) fn tasks_of_jobs(&self) -> impl Iterator<Item = (JobNo, u32, TaskFacts)> {
        self.tasks.iter().filter_map(|(tid, task)| {
            let Membership::Job(job) = task.place else { return None };
            let Task { no, tgid, start_us, .. } = *task;
            Some((job, *tid, TaskFacts { no, tgid, start_us }))
        })
    }

    /// A number for a task of an earlier agent; it is watched if it lives.
    pub(crate) fn restored(
        &mut self,
        job: JobNo,
        origin: &TaskIdentity,
        now_us: u64,
        lives: bool,
    ) -> TaskNo {
        let TaskIdentity { tid, tgid, start_us } = *origin;
        let task =
            Task { tgid, start_us, announced: true, ..self.task(Membership::Job(job), now_us) };
        if lives {
            self.insert(tid, task);
        }
        task.no
    }
}
