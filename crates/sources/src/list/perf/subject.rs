//! The counters of one target (the node, or a job), and their totals.

use super::events::RUNNING;
use super::plan::{Plan, Set};
use crate::source::sink::SampleWriter;
use kernel::perf::{Counters, Event, GROUP_MAX, PerfError, Target, Times};
use kernel::{OpenFile, Root};
use model::Timestamp;

/// Descriptors in use, and their limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    pub(super) used: usize,
    pub(super) max: usize,
}

/// Why counters were not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotOpened {
    /// The limit of descriptors would be exceeded; the number needed.
    Budget(usize),
    Kernel(PerfError),
}

impl From<PerfError> for NotOpened {
    fn from(error: PerfError) -> Self {
        Self::Kernel(error)
    }
}

impl Budget {
    fn check(&self, count: usize) -> Result<(), NotOpened> {
        let fits = count <= self.max.saturating_sub(self.used);
        if fits { Ok(()) } else { Err(NotOpened::Budget(count)) }
    }

    /// Reserves this number of descriptors, if available.
    fn take(&mut self, count: usize) -> Result<(), NotOpened> {
        self.check(count)?;
        self.used += count;
        Ok(())
    }
}

/// The processors on which a set is opened: a PMU's own list may contain offline ones.
fn cpus_of<'a>(set: &'a Set, online: &'a [u32]) -> impl Iterator<Item = u32> + 'a {
    let own = set.cpus.as_deref();
    online.iter().filter(move |cpu| own.is_none_or(|own| own.contains(cpu))).copied()
}

/// Number of descriptors that the set needs.
fn needed(set: &Set, online: &[u32]) -> usize {
    set.events.len() * cpus_of(set, online).count()
}

/// Counters opened together, and their last values.
#[derive(Debug)]
struct Cell {
    counters: Counters,
    /// For each counter: index of its event in the plan, and its last value.
    last: Box<[(usize, u64)]>,
    /// Times of these values.
    counted: Times,
    /// The process that the counters follow, if any.
    process: Option<u32>,
    /// Times of the last reading.
    read: Times,
}

/// Sum of an event over all cells.
#[derive(Clone, Copy, Debug, Default)]
struct Total {
    is_counted: bool,
    steps: u64,
    /// Since the previous tick.
    times: Times,
}

/// The opened counters, and the events that the kernel rejected.
pub(super) type Opened = (Subject, Vec<(usize, PerfError)>);

/// All counters of a target.
#[derive(Debug)]
pub(super) struct Subject {
    cells: Vec<Cell>,
    totals: Vec<Total>,
    start: Timestamp,
}

impl Subject {
    /// A target without counters; it starts now.
    pub(super) fn new(plan: &Plan, now: Timestamp) -> Self {
        let totals = vec![Total::default(); plan.metrics.len()];
        Self { cells: Vec::new(), totals, start: now }
    }

    /// Opens the counters of the whole node. Also returns the events that the kernel rejected on some
    /// processor; the others are counted.
    ///
    /// # Errors
    /// Too many descriptors are needed, or the kernel rejected all events.
    pub(super) fn of_node(
        root: &Root,
        plan: &Plan,
        online: &[u32],
        now: Timestamp,
        budget: &mut Budget,
    ) -> Result<Opened, NotOpened> {
        let sets: Vec<_> = plan.sets.iter().collect();
        // After a temporary error, everything is opened again later.
        let is_lasting = |error| !matches!(error, PerfError::Files | PerfError::Gone);
        let subject = Self::new(plan, now);
        subject.open_sets((root, &sets, online), Target::Cpu, is_lasting, budget)
    }

    /// Opens sets, each on all of its processors. Permanently rejected sets are returned and do not
    /// affect the others.
    fn open_sets<'a>(
        mut self,
        (root, sets, online): (&Root, &[&Set], &[u32]),
        target: impl Fn(u32) -> Target<'a>,
        is_lasting: impl Fn(PerfError) -> bool,
        budget: &mut Budget,
    ) -> Result<Opened, NotOpened> {
        budget.check(sets.iter().map(|set| needed(set, online)).sum())?;
        let mut lacking = Vec::new();
        for set in sets {
            match self.open_on_cpus(root, set, online, &target, budget) {
                Ok(()) => {}
                Err(NotOpened::Kernel(error)) if is_lasting(error) => {
                    lacking.extend(set.events.iter().map(|(event, _)| (*event, error)));
                }
                Err(error) => {
                    self.close(budget);
                    return Err(error);
                }
            }
        }
        match lacking.first() {
            Some((_, error)) if self.cells.is_empty() => Err((*error).into()),
            _ => Ok((self, lacking)),
        }
    }

    /// Opens the counters of a cgroup, given its open directory and its path. Also returns the events
    /// that the kernel does not count for it, if it counts others.
    ///
    /// # Errors
    /// As [`Self::of_node`], or no event can be counted.
    pub(super) fn of_cgroup(
        root: &Root,
        plan: &Plan,
        online: &[u32],
        now: Timestamp,
        (dir, path): (&OpenFile, &str),
        budget: &mut Budget,
    ) -> Result<Opened, NotOpened> {
        let sets: Vec<_> = plan.sets.iter().filter(|set| set.of_jobs).collect();
        let is_lasting = |error| matches!(error, PerfError::Absent | PerfError::Rejected);
        let target = |cpu| Target::Cgroup(dir, path, cpu);
        Self::new(plan, now).open_sets((root, &sets, online), target, is_lasting, budget)
    }

    /// Opens a set on each of its processors, or on none.
    fn open_on_cpus<'a>(
        &mut self,
        root: &Root,
        set: &Set,
        online: &[u32],
        target: impl Fn(u32) -> Target<'a>,
        budget: &mut Budget,
    ) -> Result<(), NotOpened> {
        let needed = needed(set, online);
        budget.take(needed)?;
        let numbers = set.numbers();
        let opened: Result<Vec<_>, _> =
            cpus_of(set, online).map(|cpu| Counters::open(root, &numbers, target(cpu))).collect();
        match opened {
            Ok(opened) => {
                opened.into_iter().for_each(|counters| self.add(&set.events, None, counters));
                Ok(())
            }
            Err(error) => {
                budget.used -= needed;
                Err(error.into())
            }
        }
    }

    /// Opens counters of a process's tasks (`tids`) and of all their descendants.
    ///
    /// # Errors
    /// As [`Self::of_node`]; a task that has ended is not an error.
    pub(super) fn follow(
        &mut self,
        root: &Root,
        plan: &Plan,
        (process, tids): (u32, &[u32]),
        budget: &mut Budget,
    ) -> Result<(), NotOpened> {
        // Older kernels reject inherited groups.
        let sets = plan.sets.iter().filter(|set| set.of_jobs);
        let events: Vec<_> = sets.flat_map(|set| &set.events).copied().collect();
        for tid in tids {
            for (event, number) in &events {
                budget.take(1)?;
                match Counters::open(root, &[*number], Target::Task(*tid)) {
                    Ok(counters) => self.add(&[(*event, *number)], Some(process), counters),
                    Err(error) => {
                        budget.used -= 1;
                        if error != PerfError::Gone {
                            return Err(error.into());
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, events: &[(usize, Event)], process: Option<u32>, counters: Counters) {
        for (event, _) in events {
            if let Some(total) = self.totals.get_mut(*event) {
                total.is_counted = true;
            }
        }
        let last = events.iter().map(|(event, _)| (*event, 0)).collect();
        let (counted, read) = (Times::default(), Times::default());
        self.cells.push(Cell { counters, last, counted, process, read });
    }

    /// Closes the counters that follow a process; their counts remain in the totals.
    pub(super) fn unfollow(&mut self, process: u32, budget: &mut Budget) {
        self.cells.retain(|cell| {
            let remains = cell.process != Some(process);
            budget.used -= if remains { 0 } else { cell.counters.len() };
            remains
        });
    }

    /// Closes all counters.
    pub(super) fn close(&mut self, budget: &mut Budget) {
        budget.used -= self.cells.iter().map(|cell| cell.counters.len()).sum::<usize>();
        self.cells.clear();
    }

    /// Reads every counter. The total of an unreadable counter does not change.
    ///
    /// # Errors
    /// Error of the first unreadable counter.
    pub(super) fn read(&mut self) -> Result<(), PerfError> {
        let mut result = Ok(());
        let mut values = [0; GROUP_MAX];
        for total in &mut self.totals {
            total.times = Times::default();
        }
        for cell in &mut self.cells {
            match cell.counters.read(&mut values) {
                Ok(times) => cell.take(&values, times, &mut self.totals),
                Err(error) => result = result.and(Err(error)),
            }
        }
        result
    }

    /// Pushes the totals.
    pub(super) fn push(&self, plan: &Plan, out: &mut SampleWriter<'_>) {
        for (event, total) in plan.metrics.iter().zip(&self.totals).filter(|(_, it)| it.is_counted)
        {
            let label = [("event", &*event.name)];
            let labels = if event.is_labelled { &label[..] } else { &[] };
            out.counter(event.metric, labels, event.value(total.steps), self.start);
            let Times { enabled_ns, running_ns } = total.times;
            if event.is_multiplexed && enabled_ns > 0 {
                out.gauge(&RUNNING, &label, running_ns as f64 / enabled_ns as f64);
            }
        }
    }
}

impl Cell {
    /// Adds the growth since the last reading to the totals.
    fn take(&mut self, values: &[u64], times: Times, totals: &mut [Total]) {
        let enabled = times.enabled_ns.saturating_sub(self.read.enabled_ns);
        let running = times.running_ns.saturating_sub(self.read.running_ns);
        let since = Times {
            enabled_ns: times.enabled_ns.saturating_sub(self.counted.enabled_ns),
            running_ns: times.running_ns.saturating_sub(self.counted.running_ns),
        };
        self.read = times;
        // Without any running time nothing is known: the next running time also represents this interval.
        let has_run = since.running_ns > 0 || since.enabled_ns == 0;
        for ((event, last), value) in self.last.iter_mut().zip(values) {
            let Some(total) = totals.get_mut(*event) else { continue };
            total.times.enabled_ns += enabled;
            total.times.running_ns += running;
            if has_run {
                let steps = scaled(value.saturating_sub(*last), since);
                total.steps = total.steps.saturating_add(steps);
                *last = *value;
            }
        }
        if has_run {
            self.counted = times;
        }
    }
}

/// Scales the steps counted in the running time to the whole enabled time.
fn scaled(steps: u64, Times { enabled_ns, running_ns }: Times) -> u64 {
    if running_ns == 0 || running_ns >= enabled_ns {
        return steps;
    }
    let all = u128::from(steps) * u128::from(enabled_ns) / u128::from(running_ns);
    u64::try_from(all).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cell() -> Cell {
        let dir = tempfile::tempdir().unwrap();
        let cpu = dir.path().join(".jobmeter/perf/cpu0");
        std::fs::create_dir_all(&cpu).unwrap();
        std::fs::write(cpu.join("0-0"), "0 0 0\n").unwrap();
        let root = Root::recorded(dir.path()).unwrap();
        let counters = Counters::open(&root, &[Event::default()], Target::Cpu(0)).unwrap();
        let (counted, read) = (Times::default(), Times::default());
        Cell { counters, last: [(0, 0)].into(), counted, process: None, read }
    }

    fn take(cell: &mut Cell, total: &mut Total, value: u64, enabled_ns: u64, running_ns: u64) {
        total.times = Times::default();
        let totals = std::slice::from_mut(total);
        cell.take(&[value], Times { enabled_ns, running_ns }, totals);
    }

    #[test]
    fn a_multiplexed_counter_is_scaled_to_the_time_since_its_last_run() {
        let (mut cell, mut total) = (cell(), Total::default());
        take(&mut cell, &mut total, 1000, 100, 100);
        assert_eq!(total.steps, 1000);
        // Running for half of the time.
        take(&mut cell, &mut total, 1500, 200, 150);
        assert_eq!((total.steps, total.times.running_ns), (2000, 50));
        // Not running, then running for a fifth of twice the time.
        take(&mut cell, &mut total, 1500, 300, 150);
        assert_eq!((total.steps, total.times), (2000, Times { enabled_ns: 100, running_ns: 0 }));
        take(&mut cell, &mut total, 1600, 400, 190);
        assert_eq!((total.steps, total.times.running_ns), (2500, 40));
    }

    #[test]
    fn an_event_rejected_by_one_processor_does_not_affect_the_others() {
        let dir = tempfile::tempdir().unwrap();
        // Only processor 0 has event 0-0.
        for (cpu, event) in [(0, "0-0"), (0, "1-2"), (1, "1-2")] {
            let cpu = dir.path().join(format!(".jobmeter/perf/cpu{cpu}"));
            std::fs::create_dir_all(&cpu).unwrap();
            std::fs::write(cpu.join(event), "7 5 5\n").unwrap();
        }
        let root = Root::recorded(dir.path()).unwrap();
        let wanted = super::super::event_list::parse("cpu_cycles,page_faults").unwrap();
        let (plan, rejected) = Plan::of(&root, &wanted, &[0, 1]).unwrap();
        assert_eq!(rejected, None, "the first processor has both");
        let mut budget = Budget { used: 0, max: 10 };
        let now = Timestamp(0);
        let opened = Subject::of_node(&root, &plan, &[0, 1], now, &mut budget);
        let (mut subject, lacking) = opened.unwrap();
        assert_eq!(lacking, [(0, PerfError::Absent)]);
        subject.read().unwrap();
        let counted: Vec<_> = subject.totals.iter().map(|it| (it.is_counted, it.steps)).collect();
        assert_eq!(counted, [(false, 0), (true, 14)]);
        assert_eq!(budget.used, 2);
        // No processor has any of them.
        let opened = Subject::of_node(&root, &plan, &[0, 2], now, &mut budget);
        assert_eq!(opened.map(drop), Err(NotOpened::Kernel(PerfError::Absent)));
        assert_eq!(budget.used, 2);
    }

    #[test]
    fn the_budget_is_never_exceeded() {
        let mut budget = Budget { used: 0, max: 10 };
        assert_eq!(budget.take(8), Ok(()));
        assert_eq!(budget.take(3), Err(NotOpened::Budget(3)));
        assert_eq!(budget.take(2), Ok(()));
        assert_eq!(budget.used, 10);
    }

    proptest! {
                /// Totals only grow, and equal the counter if it always ran.
        #[test]
        fn totals_only_grow(
            readings in prop::collection::vec((0_u64..1 << 40, 0_u64..1 << 40, 0_u64..=100), 1..40),
        ) {
            let (mut cell, mut total) = (cell(), Total::default());
            let mut sums = [0; 3];
            let mut always = true;
            for (value, enabled, percent) in readings {
                let running = enabled * percent / 100;
                always &= running == enabled;
                for (sum, grown) in sums.iter_mut().zip([value, enabled, running]) {
                    *sum += grown;
                }
                let before = total.steps;
                take(&mut cell, &mut total, sums[0], sums[1], sums[2]);
                prop_assert!(total.steps >= before);
                prop_assert!(!always || total.steps == sums[0]);
            }
        }
    }
}
