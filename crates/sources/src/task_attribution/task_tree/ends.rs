//! Attributes the ends of tasks as far as possible.

use super::waiting::{End, Who};
use super::{
    Account, Ended, JobNo, KTHREADD, Membership, REAPER, RECENT_MAX, TOLERANCE_US, Task, Tree,
    Window,
};
use kernel::taskstats::{Counter, TaskMessage, TaskStats};

impl Tree {
    /// A task ended that began at about `start_us`.
    pub(crate) fn exit(
        &mut self,
        exit: &TaskMessage,
        start_us: u64,
        window: Window,
        account: &mut impl Account,
    ) {
        self.counts.exits += 1;
        let stats = exit.stats;
        let Some(task) = self.take(&stats, start_us, window, account) else {
            let end = End { no: self.number(), start_us, tgid: stats.tgid, stats };
            return self.stranger(end, window.to_us, account);
        };
        let start_us = if task.start_us == 0 { start_us } else { task.start_us };
        let tgid = stats.tgid.or((task.tgid != 0).then_some(task.tgid));
        let end = End { no: task.no, start_us, tgid, stats };
        match task.place {
            Membership::Job(job) => {
                self.touched = true;
                if task.left.is_some() {
                    account.unproven(task.no);
                }
                let from_start = !task.again && self.counts_whole(job, start_us);
                account.ended(job, &Ended { no: task.no, stats: &stats, tgid, from_start });
                self.remember(stats.tid, job, window.to_us);
                self.settle_waiting(&end, Some(job), account);
            }
            Membership::Doubt if !task.announced => self.stranger(end, window.to_us, account),
            // A look found it in no job after its fork: its parent does not determine its job.
            Membership::Doubt if !task.outside => {
                self.child(end, task.parent, window.to_us, account)
            }
            Membership::Doubt | Membership::Outside | Membership::Left => {
                if task.left.is_some() {
                    account.unproven(task.no);
                }
                self.settle_waiting(&end, None, account)
            }
        }
    }

    /// Removes and returns the entry of an ended task.
    fn take(
        &mut self,
        stats: &TaskStats,
        start_us: u64,
        window: Window,
        account: &mut impl Account,
    ) -> Option<Task> {
        let (tid, elapsed_us) = (stats.tid, stats.elapsed_us);
        // Ends arrive in the order in which tasks ended: of two equal fits, the older task is chosen. But a
        // task without a known start fits nearly always.
        let misfit = |task: &Task, until_us| {
            let misfit_us = task.misfit_us(elapsed_us, window, until_us)?;
            Some((misfit_us, task.start_us == 0))
        };
        let displaced = self.displaced.iter().enumerate().filter(|(_, it)| it.tid == tid);
        let displaced =
            displaced.filter_map(|(place, it)| Some((misfit(&it.task, it.until_us)?, place))).min();
        let living = self.tasks.get(&tid).and_then(|task| misfit(task, u64::MAX));
        match (displaced, living) {
            (Some((old, place)), living) if living.is_none_or(|living| old <= living) => {
                return Some(self.displaced.remove(place).task);
            }
            (_, Some(_)) => return self.tasks.remove(&tid),
            (_, None) => {}
        }
        let task = *self.tasks.get(&tid)?;
        // It began before the current owner of the ID, and had no entry.
        if start_us.saturating_add(TOLERANCE_US) < task.start_us {
            return None;
        }
        // The previous owner of the ID has ended; neither its end nor the fork of the next one was reported.
        self.tasks.remove(&tid);
        self.touched = true;
        account.forgotten(task.no);
        None
    }

    /// The end of a new task before any look: it belongs to the job of its parent.
    fn child(&mut self, end: End, parent: Who, now_us: u64, account: &mut impl Account) {
        match self.place_of_who(parent) {
            Some(Membership::Job(job)) => self.belongs(job, end, now_us, account),
            Some(Membership::Doubt) => self.wait(parent, end, now_us),
            None if self.waiting.has(parent.no) => {
                self.wait(parent, end, now_us);
            }
            None | Some(Membership::Outside | Membership::Left) => {
                self.settle_waiting(&end, None, account)
            }
        }
    }

    /// An end of an unwatched task.
    fn stranger(&mut self, end: End, now_us: u64, account: &mut impl Account) {
        let (tid, ppid) = (end.stats.tid, end.stats.ppid);
        let group = end.stats.tgid.filter(|tgid| *tgid != tid).and_then(|tgid| self.place_of(tgid));
        let of = match group {
            None if self.complete => return self.settle_waiting(&end, None, account),
            None => self.place_of(ppid),
            group => group,
        };
        match of {
            Some((Membership::Job(job), _)) => return self.belongs(job, end, now_us, account),
            Some((Membership::Doubt, of)) => return self.wait(of, end, now_us),
            Some((Membership::Outside | Membership::Left, _)) => {
                return self.settle_waiting(&end, None, account);
            }
            None => {}
        }
        let recent = self.recent.iter().rev().find(|(tid, _, _)| *tid == ppid);
        match recent.map(|(_, job, _)| *job) {
            Some(job) => self.belongs(job, end, now_us, account),
            None if ppid == KTHREADD => self.settle_waiting(&end, None, account),
            // Its parent ended before it, and is not reported.
            None if ppid <= REAPER => self.give_up(&end.stats),
            None => match self.doubt_parent(ppid, now_us) {
                Some(parent) => self.wait(parent, end, now_us),
                None => self.give_up(&end.stats),
            },
        }
    }

    /// Attributes the end of a task without an entry to a job.
    fn belongs(&mut self, job: JobNo, end: End, now_us: u64, account: &mut impl Account) {
        self.touched = true;
        self.count(job, &end, account);
        self.remember(end.stats.tid, job, now_us);
        self.settle_waiting(&end, Some(job), account);
    }

    fn count(&self, job: JobNo, end: &End, account: &mut impl Account) {
        let from_start = self.counts_whole(job, end.start_us);
        let End { no, tgid, stats, .. } = end;
        account.ended(job, &Ended { no: *no, stats, tgid: *tgid, from_start });
    }

    pub(super) fn counts_whole(&self, job: JobNo, start_us: u64) -> bool {
        self.jobs.get(&job).is_none_or(|facts| start_us >= facts.counts_from_us)
    }

    /// Keeps an end until the place of another task is known.
    fn wait(&mut self, on: Who, end: End, now_us: u64) {
        if let Some(given_up) = self.waiting.push(on, end, now_us) {
            self.give_up(&given_up.stats);
        }
    }

    pub(super) fn give_up(&mut self, stats: &TaskStats) {
        let cpu_ns = stats.counters.get(Counter::CpuRunVirtual);
        self.counts.unattributed += 1;
        self.counts.unattributed_cpu_ns = self.counts.unattributed_cpu_ns.saturating_add(cpu_ns);
    }

    fn remember(&mut self, tid: u32, job: JobNo, now_us: u64) {
        if self.complete {
            return; // never needed
        }
        if self.recent.len() >= RECENT_MAX {
            self.recent.remove(0);
        }
        self.recent.push((tid, job, now_us));
    }

    /// The job of an ended task is known: attributes the ends that waited for it, and those that waited for
    /// them.
    fn settle_waiting(&mut self, end: &End, job: Option<JobNo>, account: &mut impl Account) {
        if self.waiting.is_empty() {
            return;
        }
        self.settled.push(Who { tid: end.stats.tid, no: Some(end.no) });
        while let Some(who) = self.settled.pop() {
            self.settle_ends(who, job, account);
        }
    }

    /// The job of the tasks in `settled` is known: attributes the ends that waited for them, and their
    /// children without a look.
    pub(super) fn settle(&mut self, job: Option<JobNo>, account: &mut impl Account) {
        while let Some(who) = self.settled.pop() {
            self.settle_ends(who, job, account);
            let Some(job) = job else { continue };
            for tid in &self.doubts {
                let Some(task) = self.tasks.get_mut(tid) else { continue };
                if task.place == Membership::Doubt && task.parent == who && !task.outside {
                    task.place = Membership::Job(job);
                    task.round = self.round;
                    self.settled.push(Who { tid: *tid, no: Some(task.no) });
                }
            }
        }
    }

    fn settle_ends(&mut self, who: Who, job: Option<JobNo>, account: &mut impl Account) {
        while let Some(end) = self.waiting.take(who) {
            if let Some(job) = job {
                self.count(job, &end, account);
            }
            self.settled.push(Who { tid: end.stats.tid, no: Some(end.no) });
        }
    }
}
