//! Use by the tasks of each job, living and ended.

use super::commands::Commands;
use crate::task_attribution::saved::{Numbers, put};
use crate::task_attribution::task_tree::{Account, Ended, JobNo, Reading, TaskNo};
use kernel::taskstats::{Counter, Counters, TaskStats};
use rustc_hash::FxHashMap;

/// Maximum processor time that tasks that started a job can have used before they joined it.
const BEFORE_JOB_NS: u64 = 2_000_000_000;

/// A job is measured again if its processor time is behind that of its cgroup by more than this time, and by more than
/// this part of the whole.
const BEHIND_NS: u64 = 10_000_000;
const BEHIND_PART: u64 = 100;

/// Use by a job's tasks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum {
    /// Sum over all tasks since the start of the counters.
    pub(super) counters: Counters,
    /// Start of the first task, in seconds since 1970.
    pub(super) begin_s: Option<u64>,
    /// The longest life, in microseconds.
    pub(super) elapsed_us: u64,
    /// Largest resident memory, in KiB.
    pub(super) hiwater_rss_kib: u64,
    /// Largest virtual memory, in KiB.
    pub(super) hiwater_vm_kib: u64,
    /// Number of ended tasks.
    pub(super) ended: u64,
    /// Whether its tasks have been read once.
    pub(super) is_read: bool,
    /// Use by the cgroup at the start of the counters, in nanoseconds.
    pub(super) group_base_ns: u64,
    /// Processor time of the job beyond that of its tasks here, in nanoseconds; `None`: unknown.
    pub(super) ahead_ns: Option<i64>,
    /// Whether that was measured well, and no task joined since.
    pub(super) is_measured: bool,
    /// The job's processor time as last published, in nanoseconds.
    pub(super) whole_ns: u64,
    /// Processor time in user mode and in the kernel as last published, in nanoseconds.
    pub(super) shares_ns: (u64, u64),
}

impl Sum {
    /// Use by the cgroup beyond its tasks. Reduces the tasks' sum by the time that tasks used before they
    /// joined the job. `None` if the difference is too large, so that the cgroup's account must be of
    /// other tasks.
    pub(super) fn residual_ns(&mut self, group_ns: u64) -> Option<u64> {
        let group_ns = group_ns.saturating_sub(self.group_base_ns);
        let published_ns = self.shares_ns.0.saturating_add(self.shares_ns.1);
        let tasks_ns = self.counters.0.get_mut(Counter::CpuRunVirtual.place())?;
        if tasks_ns.saturating_sub(group_ns) > BEFORE_JOB_NS {
            return None;
        }
        // Not below the published value: a counter does not fall.
        let cut_ns = *tasks_ns - group_ns.clamp(published_ns.min(*tasks_ns), *tasks_ns);
        *tasks_ns -= cut_ns;
        self.ahead_ns = self.ahead_ns.map(|ahead_ns| ahead_ns.saturating_add_unsigned(cut_ns));
        Some(group_ns.saturating_sub(*tasks_ns))
    }

    /// Takes two readings of the cgroup's processor time, before and after reading all tasks. The first one was used
    /// by then; what the tasks add from now on was used later. So their sum is proven; it does not exceed the second
    /// reading, as far as the tasks have been read.
    pub(super) fn measure(&mut self, [before_ns, after_ns]: [u64; 2], is_whole: bool) {
        let tasks_ns = self.counters.get(Counter::CpuRunVirtual);
        let ahead = |group_ns: u64| {
            let ahead = i128::from(group_ns) - i128::from(tasks_ns);
            i64::try_from(ahead).unwrap_or(if ahead < 0 { i64::MIN } else { i64::MAX })
        };
        let (least, most) = (ahead(before_ns), ahead(after_ns.max(before_ns)));
        // If every task was observed from its beginning, the sum of the tasks is proven, too.
        let known = self.ahead_ns.or(is_whole.then_some(0)).unwrap_or(least);
        self.ahead_ns = Some(known.clamp(least, most));
    }

    /// Processor time of the job: that of its tasks, plus what its cgroup counted beyond them. Never more than that of
    /// the cgroup, if it can be read.
    pub(super) fn whole_ns(&mut self, group_ns: Option<u64>) -> Option<u64> {
        let tasks_ns = self.counters.get(Counter::CpuRunVirtual);
        let mut whole_ns = tasks_ns.saturating_add_signed(self.ahead_ns?);
        let most_ns = group_ns.map(|group_ns| group_ns.max(self.whole_ns));
        if let Some(over_ns) = most_ns.and_then(|most_ns| whole_ns.checked_sub(most_ns)) {
            whole_ns -= over_ns;
            self.ahead_ns = self.ahead_ns.map(|ahead_ns| ahead_ns.saturating_sub_unsigned(over_ns));
        }
        self.whole_ns = self.whole_ns.max(whole_ns);
        Some(self.whole_ns)
    }

    /// Whether the job's processor time is behind the account of its cgroup by so much that it must be measured again.
    pub(super) fn is_behind(&self, group_ns: u64) -> bool {
        let behind_ns = group_ns.saturating_sub(self.whole_ns);
        behind_ns > BEHIND_NS && behind_ns > group_ns / BEHIND_PART
    }

    /// Divides the exact run time into user mode and kernel by the clock ticks of all tasks, because ticks are too
    /// coarse for single short tasks. Neither part falls, as in the kernel's own division (kernel/sched/cputime.c,
    /// `cputime_adjust`, Linux 6.18). Returns the counters with these parts.
    pub(super) fn shared(&mut self) -> Counters {
        let mut counters = self.counters;
        let get = |counter| u128::from(self.counters.get(counter));
        let run_ns = self.counters.get(Counter::CpuRunVirtual);
        let (user, system) = (get(Counter::UserTime), get(Counter::SystemTime));
        let in_kernel = (u128::from(run_ns) * system).checked_div(user + system).unwrap_or(0);
        let (user_before, system_before) = self.shares_ns;
        // Each part keeps at least its published value; the growth of the run time leaves enough
        // for both.
        let system_max = run_ns.saturating_sub(user_before).max(system_before);
        let system = u64::try_from(in_kernel).unwrap_or(u64::MAX).clamp(system_before, system_max);
        let user = run_ns.saturating_sub(system).max(user_before);
        self.shares_ns = (user, system);
        for (counter, ns) in [(Counter::UserTime, user), (Counter::SystemTime, system)] {
            if let Some(us) = counters.0.get_mut(counter.place()) {
                *us = ns / 1000;
            }
        }
        counters
    }

    /// The saved values besides the counters.
    fn others(&self) -> [u64; 8] {
        [
            self.begin_s.map_or(0, |it| it.saturating_add(1)),
            self.elapsed_us,
            self.hiwater_rss_kib,
            self.hiwater_vm_kib,
            self.ended,
            self.group_base_ns,
            self.shares_ns.0,
            self.shares_ns.1,
        ]
    }

    fn see(&mut self, stats: &TaskStats) {
        self.begin_s = Some(self.begin_s.map_or(stats.begin_s, |it| it.min(stats.begin_s)));
        self.elapsed_us = self.elapsed_us.max(stats.elapsed_us);
        self.hiwater_rss_kib = self.hiwater_rss_kib.max(stats.hiwater_rss_kib);
        self.hiwater_vm_kib = self.hiwater_vm_kib.max(stats.hiwater_vm_kib);
    }

    /// Adds the growth since the last reading of a task. No counter falls: the kernel's counters do not,
    /// except that the values of a running task may be read at slightly different times. Returns the
    /// added processor time in nanoseconds.
    fn add(&mut self, before: &Counters, now: &Counters) -> u64 {
        for ((sum, before), now) in self.counters.0.iter_mut().zip(&before.0).zip(&now.0) {
            *sum = sum.saturating_add(now.saturating_sub(*before));
        }
        let cpu = |counters: &Counters| counters.get(Counter::CpuRunVirtual);
        cpu(now).saturating_sub(cpu(before))
    }
}

/// The sums of all jobs, and the last values of their living tasks, so that nothing counts twice.
#[derive(Debug, Default)]
pub(super) struct Sums {
    jobs: FxHashMap<JobNo, Sum>,
    living: FxHashMap<TaskNo, Counters>,
    commands: FxHashMap<JobNo, Commands>,
}

impl Sums {
    /// Sum of a job's tasks.
    pub(super) fn of(&mut self, job: JobNo) -> &mut Sum {
        self.jobs.entry(job).or_default()
    }

    /// Commands of a job.
    pub(super) fn commands_of(&mut self, job: JobNo) -> &mut Commands {
        self.commands.entry(job).or_default()
    }

    /// Whether a task was read before.
    pub(super) fn has_read(&self, task: TaskNo) -> bool {
        self.living.contains_key(&task)
    }

    /// Adds a reading of a living task.
    pub(super) fn read(&mut self, reading: Reading, stats: &TaskStats) {
        let sum = self.jobs.entry(reading.job).or_default();
        sum.see(stats);
        let cpu_ns = match self.living.entry(reading.no) {
            std::collections::hash_map::Entry::Occupied(mut last) => {
                let cpu_ns = sum.add(last.get(), &stats.counters);
                for (last, now) in last.get_mut().0.iter_mut().zip(&stats.counters.0) {
                    *last = (*last).max(*now);
                }
                cpu_ns
            }
            std::collections::hash_map::Entry::Vacant(first) => {
                first.insert(stats.counters);
                if reading.from_start { sum.add(&Counters::ZERO, &stats.counters) } else { 0 }
            }
        };
        self.commands_of(reading.job).add(&stats.comm, cpu_ns);
    }
}

impl Account for Sums {
    fn ended(&mut self, job: JobNo, task: &Ended<'_>) {
        let sum = self.jobs.entry(job).or_default();
        sum.see(task.stats);
        sum.ended += 1;
        let last = match self.living.remove(&task.no) {
            Some(last) => last,
            None if task.from_start => Counters::ZERO,
            None => return,
        };
        let mut now = task.stats.counters;
        // The exit record precedes the task's last context switch.
        if let Some(switches) = now.0.get_mut(Counter::VoluntarySwitches.place()) {
            *switches = switches.saturating_add(1);
        }
        let cpu_ns = sum.add(&last, &now);
        self.commands_of(job).add(&task.stats.comm, cpu_ns);
    }

    fn forgotten(&mut self, task: TaskNo) {
        self.living.remove(&task);
    }

    fn keep(&mut self, is_there: impl Fn(JobNo) -> bool) {
        self.jobs.retain(|job, _| is_there(*job));
        self.commands.retain(|job, _| is_there(*job));
    }

    fn save_job(&self, job: JobNo, out: &mut Vec<u8>) {
        let sum = self.jobs.get(&job).copied().unwrap_or_default();
        sum.counters.0.iter().chain(&sum.others()).for_each(|number| put(out, *number));
        match self.commands.get(&job) {
            Some(commands) => commands.save(out),
            None => Commands::default().save(out),
        }
    }

    fn save_task(&self, _: u32, task: TaskNo, out: &mut Vec<u8>) -> bool {
        let Some(last) = self.living.get(&task) else { return false };
        last.0.iter().for_each(|number| put(out, *number));
        true
    }

    fn restore_job(&mut self, job: JobNo, from: &mut Numbers<'_>) -> Option<()> {
        let (mut sum, mut others) = (Sum::default(), [0; 8]);
        from.fill(&mut sum.counters.0)?;
        from.fill(&mut others)?;
        let [begin_s, elapsed_us, hiwater_rss_kib, hiwater_vm_kib, ended, ..] = others;
        let [.., group_base_ns, user_ns, system_ns] = others;
        let begin_s = begin_s.checked_sub(1);
        let counters = sum.counters;
        sum = Sum { counters, begin_s, elapsed_us, hiwater_rss_kib, hiwater_vm_kib, ended, ..sum };
        self.jobs.insert(job, Sum { group_base_ns, shares_ns: (user_ns, system_ns), ..sum });
        self.commands.insert(job, Commands::restore(from)?);
        Some(())
    }

    fn restore_task(
        &mut self,
        _: JobNo,
        _: u32,
        task: TaskNo,
        from: &mut Numbers<'_>,
    ) -> Option<()> {
        let mut last = Counters::ZERO;
        from.fill(&mut last.0)?;
        self.living.insert(task, last);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(run_ns: u64, user_us: u64, system_us: u64) -> Sum {
        let mut sum = Sum::default();
        set(&mut sum, run_ns, user_us, system_us);
        sum
    }

    fn set(sum: &mut Sum, run_ns: u64, user_us: u64, system_us: u64) {
        for (counter, value) in [
            (Counter::CpuRunVirtual, run_ns),
            (Counter::UserTime, user_us),
            (Counter::SystemTime, system_us),
        ] {
            sum.counters.0[counter.place()] = value;
        }
    }

    fn shares(sum: &mut Sum) -> (u64, u64) {
        let counters = sum.shared();
        (counters.get(Counter::UserTime), counters.get(Counter::SystemTime))
    }

    #[test]
    fn the_exact_run_time_is_divided_by_the_ticks() {
        // 0.2 s of 1.1 s, in which no tick hit a short task.
        assert_eq!(shares(&mut sum(1_100_000_000, 600_000, 300_000)), (733_333, 366_666));
        assert_eq!(shares(&mut sum(5_000, 0, 0)), (5, 0), "no tick");
        assert_eq!(shares(&mut sum(0, 0, 0)), (0, 0));
        assert_eq!(shares(&mut sum(u64::MAX, u64::MAX, u64::MAX)).0, u64::MAX / 2000);
    }

    #[test]
    fn a_smaller_last_reading_of_the_cgroup_does_not_reduce_the_counter() {
        let mut sum = sum(1_000_000_000, 600_000, 300_000);
        assert_eq!(sum.residual_ns(900_000_000), Some(0), "reduced to the cgroup's account");
        sum.shared();
        assert_eq!(sum.residual_ns(400_000_000), Some(0));
        assert_eq!(sum.counters.get(Counter::CpuRunVirtual), 900_000_000);
    }

    #[test]
    fn the_time_of_the_cgroup_and_of_its_tasks_since() {
        let (second, mut of_job) = (1_000_000_000, sum(0, 0, 0));
        assert_eq!(of_job.whole_ns(Some(second)), None, "not measured");
        // Moved into the job: only the cgroup counts 1 s before the move was noticed.
        of_job.measure([second, second + 1000], true);
        assert_eq!(of_job.whole_ns(Some(second + 1000)), Some(second));
        set(&mut of_job, 3 * second, 0, 0);
        assert_eq!(of_job.whole_ns(None), Some(4 * second), "the cgroup is gone");
        // A worse measurement removes nothing; one that proves more adds it.
        of_job.measure([3 * second, 5 * second], true);
        assert_eq!(of_job.whole_ns(None), Some(4 * second));
        of_job.measure([5 * second, 6 * second], true);
        assert_eq!(of_job.whole_ns(None), Some(5 * second));
    }

    #[test]
    fn a_job_never_has_more_than_its_cgroup() {
        let second = 1_000_000_000;
        let mut of_job = sum(3 * second, 0, 0);
        of_job.measure([2 * second, 2 * second], true);
        assert_eq!(of_job.whole_ns(Some(2 * second)), Some(2 * second), "used before it joined");
        set(&mut of_job, 5 * second, 0, 0);
        assert_eq!(of_job.whole_ns(Some(3 * second)), Some(3 * second));
        assert_eq!(of_job.residual_ns(3 * second), Some(0), "the tasks' own sum is cut, too");
        set(&mut of_job, 4 * second, 0, 0);
        assert_eq!(of_job.whole_ns(None), Some(4 * second), "they used 1 s since");
        assert_eq!(of_job.whole_ns(Some(second)), Some(4 * second), "no counter falls");
        set(&mut of_job, 5 * second, 0, 0);
        assert_eq!(of_job.whole_ns(None), Some(5 * second));
    }

    #[test]
    fn a_job_behind_its_cgroup_is_measured_again() {
        // 12 000 short tasks: each exit costs 0.05 ms, which no exit record has.
        let (group_ns, mut of_job) = (1_884_000_000, sum(0, 0, 0));
        of_job.measure([0, 0], true);
        set(&mut of_job, 1_317_000_000, 0, 0);
        assert_eq!(of_job.whole_ns(Some(group_ns)), Some(1_317_000_000));
        assert!(of_job.is_behind(group_ns));
        of_job.measure([group_ns, group_ns], true);
        assert_eq!(of_job.whole_ns(Some(group_ns)), Some(group_ns));
        assert!(!of_job.is_behind(group_ns) && !of_job.is_behind(group_ns + 9_000_000));
    }

    #[test]
    fn use_before_the_start_of_the_agent_is_that_of_the_cgroup() {
        let (second, mut of_job) = (1_000_000_000, sum(0, 0, 0));
        set(&mut of_job, 1000, 0, 0);
        of_job.measure([60 * second, 61 * second], false);
        set(&mut of_job, 1000 + second, 0, 0);
        assert_eq!(of_job.whole_ns(None), Some(61 * second));
        // If each task was observed from its beginning, a slow measurement removes nothing.
        let mut whole = sum(10 * second, 0, 0);
        whole.measure([9 * second, 11 * second], true);
        assert_eq!(whole.whole_ns(None), Some(10 * second));
    }

    #[test]
    fn no_part_falls() {
        let mut sum = sum(1_000_000, 4000, 0);
        assert_eq!(shares(&mut sum), (1000, 0));
        set(&mut sum, 1_500_000, 4000, 8000);
        assert_eq!(shares(&mut sum), (1000, 500));
        set(&mut sum, 3_000_000, 4000, 8000);
        assert_eq!(shares(&mut sum), (1000, 2000));
        set(&mut sum, 3_000_000, 400_000, 8000);
        assert_eq!(shares(&mut sum), (1000, 2000));
        set(&mut sum, 2_000_000, 400_000, 8000);
        assert_eq!(shares(&mut sum), (1000, 2000), "a falling run time");
    }
}
