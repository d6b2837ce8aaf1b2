//! Evaluates the lists of the jobs' cgroups, and looks at tasks.

use super::{
    Account, JobNo, LOOK_AGES_US, Membership, OUTSIDE_US, TOLERANCE_US, Task, TaskNo, Tree,
    WAIT_US, Who,
};

/// A reading of a living task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) no: TaskNo,
    pub(crate) job: JobNo,
    /// Whether its whole use so far counts for its job.
    pub(crate) from_start: bool,
    /// Whether it is known only from a list, so that its end may have been reported before: if it is ending
    /// now, its values must not count.
    pub(crate) may_be_ending: bool,
}

impl Tree {
    /// Starts a round of lists.
    pub(crate) const fn begin_round(&mut self) {
        self.round = self.round.wrapping_add(1);
    }

    /// A list of this time contains this task in this job. All earlier forks have been applied.
    pub(crate) fn listed(&mut self, tid: u32, job: JobNo, now_us: u64, account: &mut impl Account) {
        let (round, is_known) = (self.round, self.is_known(job));
        if let Some(task) = self.tasks.get_mut(&tid) {
            if task.announced && task.start_us > now_us {
                return; // the list contains the previous task of this ID
            }
            task.round = round;
            self.touched |= task.place != Membership::Job(job);
            let settles = matches!(task.place, Membership::Doubt | Membership::Outside);
            task.again |= settles && !task.announced && is_known;
            task.join(job, tid, &mut self.moved);
            task.listed = true;
            if settles {
                let no = Some(task.no);
                self.settled.push(Who { tid, no });
                self.settle(Some(job), account);
            }
            return;
        }
        // A task without a reported fork was not born there.
        let mut task =
            Task { again: is_known, listed: true, ..self.task(Membership::Doubt, now_us) };
        task.join(job, tid, &mut self.moved);
        self.touched = true;
        self.insert(tid, task);
        // Ends with this parent ID wait for any task with this ID.
        self.settled.push(Who { tid, no: None });
        self.settle(Some(job), account);
    }

    /// Ends a round: stops watching the tasks of completely listed jobs that no list contained. `by_process`:
    /// the lists were of processes, and do not contain their threads.
    pub(crate) fn end_round(
        &mut self,
        by_process: bool,
        listed: impl Fn(JobNo) -> bool,
        mut lives: impl FnMut(u32) -> bool,
        account: &mut impl Account,
    ) {
        let round = self.round;
        self.absent.clear();
        for (tid, task) in &self.tasks {
            let absent = match task.place {
                Membership::Job(job) => task.round != round && listed(job),
                Membership::Left => task.round != round,
                Membership::Doubt | Membership::Outside => false,
            };
            let leader = || self.tasks.get(&task.tgid).is_some_and(|it| it.round == round);
            if absent && !(by_process && task.tgid != *tid && leader()) {
                self.absent.push(*tid);
            }
        }
        self.touched |= !self.absent.is_empty();
        while let Some(tid) = self.absent.pop() {
            let Some(task) = self.tasks.get_mut(&tid) else { continue };
            // It is remembered while it lives, so that it does not count twice if it returns.
            if lives(tid) {
                task.leave(tid, &mut self.moved);
            } else {
                account.forgotten(task.no);
                self.tasks.remove(&tid);
            }
        }
    }

    /// A task that began at about `start_us` is read; `None` if it belongs to no job.
    pub(crate) fn reading(
        &mut self,
        tid: u32,
        start_us: u64,
        account: &mut impl Account,
    ) -> Option<Reading> {
        let task = *self.tasks.get(&tid)?;
        let ((Membership::Job(place), _) | (Membership::Left, Some((place, _)))) =
            (task.place, task.left)
        else {
            return None;
        };
        if task.start_us != 0 && task.start_us.abs_diff(start_us) > TOLERANCE_US {
            // The ID was reused, and neither the end nor the fork was reported so far.
            self.vacate(tid, start_us, account);
            if self.complete {
                return None; // its fork will be reported, and determines its job
            }
            let next = self.task(task.place, start_us);
            self.insert(tid, next);
        }
        let task = self.tasks.get_mut(&tid)?;
        if task.start_us == 0 {
            task.start_us = start_us;
        }
        let (no, may_be_ending) = (task.no, !task.announced);
        let (again, start_us) = (task.again, task.start_us);
        // Its use until now belongs to the job that it left.
        let (job, whole) = task.left.take().unwrap_or((place, !again));
        let from_start = whole && self.counts_whole(job, start_us);
        Some(Reading { no, job, from_start, may_be_ending })
    }

    /// The next task in doubt after the first `passed` ones that is due for a look; increases `passed`.
    pub(crate) fn due(&self, passed: &mut usize, now_us: u64) -> Option<u32> {
        let rest = self.doubts.get(*passed..).unwrap_or_default();
        let is_due = |tid: &u32| {
            *passed += 1;
            self.look_in_us(*tid, now_us) == Some(0)
        };
        rest.iter().copied().find(is_due)
    }

    /// Skips the looks at a new task that has ended in no job.
    pub(crate) fn skip_look(&mut self, tid: u32) {
        let task = self.tasks.get_mut(&tid);
        if let Some(task) = task.filter(|it| it.announced && it.place == Membership::Doubt) {
            task.looks = u8::MAX;
        }
    }

    /// Time until the next look at a task in doubt is due.
    pub(crate) fn next_look_us(&self, now_us: u64) -> Option<u64> {
        self.doubts.iter().filter_map(|tid| self.look_in_us(*tid, now_us)).min()
    }

    fn look_in_us(&self, tid: u32, now_us: u64) -> Option<u64> {
        let task = self.tasks.get(&tid).filter(|task| task.place == Membership::Doubt)?;
        let ages: &[u64] = if task.announced { &LOOK_AGES_US } else { &[0] };
        let age = now_us.saturating_sub(task.since_us);
        Some(ages.get(usize::from(task.looks))?.saturating_sub(age))
    }

    /// Result of a look at a task: it is in a job, in none, or gone.
    pub(crate) fn looked(
        &mut self,
        tid: u32,
        found: Looked,
        now_us: u64,
        account: &mut impl Account,
    ) {
        let (round, is_known) = match found {
            Looked::In(job) => (self.round, self.is_known(job)),
            _ => (self.round, false),
        };
        let Some(task) = self.tasks.get_mut(&tid) else { return };
        // A late look replaces those of earlier ages.
        let age_us = now_us.saturating_sub(task.since_us);
        let passed = LOOK_AGES_US.partition_point(|look_us| *look_us <= age_us);
        task.looks = task.looks.saturating_add(1).max(u8::try_from(passed).unwrap_or(u8::MAX));
        match found {
            Looked::In(job) => {
                task.again |= !task.announced && is_known;
                task.join(job, tid, &mut self.moved);
                task.round = round;
                self.touched = true;
                self.settled.push(Who { tid, no: Some(task.no) });
                self.settle(Some(job), account);
            }
            Looked::Outside if !task.announced => {
                (task.place, task.since_us) = (Membership::Outside, now_us);
                self.settled.push(Who { tid, no: Some(task.no) });
                self.settle(None, account);
            }
            Looked::Outside => task.outside = true,
            // Its end is on its way, and determines the rest.
            Looked::Gone => task.looks = u8::MAX,
        }
    }

    /// Removes tasks that were in doubt for too long, or outside for a while.
    pub(crate) fn expire(&mut self, now_us: u64, account: &mut impl Account) {
        self.swept = false;
        let last_look = LOOK_AGES_US.last().copied().unwrap_or(0);
        let mut place = 0;
        while let Some(tid) = self.doubts.get(place).copied() {
            let task = self.tasks.get(&tid);
            let age = task.map_or(0, |task| now_us.saturating_sub(task.since_us));
            let (keep, no) = match task.map(|task| (task.place, task.no)) {
                None | Some((Membership::Job(_) | Membership::Left, _)) => (false, None),
                Some((Membership::Doubt, no)) => (age <= last_look + OUTSIDE_US, Some(no)),
                Some((Membership::Outside, no)) => (age <= OUTSIDE_US, Some(no)),
            };
            if keep {
                place += 1;
                continue;
            }
            self.doubts.swap_remove(place);
            if no.is_some() {
                self.tasks.remove(&tid);
                self.settled.push(Who { tid, no });
                self.settle(None, account);
            }
        }
        while let Some(end) = self.waiting.take_old(now_us, WAIT_US) {
            self.give_up(&end.stats);
        }
        self.recent.retain(|(_, _, at)| now_us.saturating_sub(*at) <= OUTSIDE_US);
    }
}

/// Result of a look at a task's cgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Looked {
    /// It is in this job.
    In(JobNo),
    /// It is in no job.
    Outside,
    /// It no longer exists.
    Gone,
}
