//! Tasks that a job's sum is still to grow by: what a comparison with the cgroup's own account has to know.

use super::{JobNo, Membership, Task, TaskNo, Tree};

impl Tree {
    /// The tasks of which a later reading or the end adds to this job's sum.
    pub(crate) fn open_tasks(&self, job: JobNo) -> impl Iterator<Item = (u32, TaskNo)> {
        let adds = move |task: &Task| match task.place {
            Membership::Job(own) => own == job,
            Membership::Doubt | Membership::Outside | Membership::Left => false,
        } || task.left.is_some_and(|(left, _)| left == job);
        let living = self.tasks.iter().map(|(tid, task)| (*tid, task));
        let displaced = self.displaced.iter().map(|it| (it.tid, &it.task));
        let open = living.chain(displaced).filter(move |(_, task)| adds(task));
        open.map(|(tid, task)| (tid, task.no))
    }

    /// Nanoseconds of processor time of the ends that wait for their job to be known.
    pub(crate) fn waiting_cpu_ns(&self) -> u64 {
        self.waiting.cpu_ns()
    }
}
