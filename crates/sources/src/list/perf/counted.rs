//! The counters of one target (the node, or a job), and what they have counted so far.

use super::events::RUNNING;
use super::plan::{Plan, Set};
use crate::source::sink::Of;
use kernel::perf::{Counters, Event, GROUP_MAX, PerfError, Target, Times};
use kernel::{KeptFile, Root};
use model::Timestamp;

/// Descriptors in use, and how many may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    pub(super) used: usize,
    pub(super) max: usize,
}

/// Why counters were not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotOpened {
    /// More descriptors would be in use than may be: how many are needed.
    Budget(usize),
    Kernel(PerfError),
}

impl From<PerfError> for NotOpened {
    fn from(error: PerfError) -> Self {
        Self::Kernel(error)
    }
}

impl Budget {
    fn has_room(&self, count: usize) -> Result<(), NotOpened> {
        let has_room = count <= self.max.saturating_sub(self.used);
        if has_room { Ok(()) } else { Err(NotOpened::Budget(count)) }
    }

    /// Takes so many, if they are there.
    fn take(&mut self, count: usize) -> Result<(), NotOpened> {
        self.has_room(count)?;
        self.used += count;
        Ok(())
    }
}

/// The processors on which a set is opened: a PMU's own list may have some that are off.
fn cpus_of<'a>(set: &'a Set, online: &'a [u32]) -> impl Iterator<Item = u32> + 'a {
    let own = set.cpus.as_deref();
    online.iter().filter(move |cpu| own.is_none_or(|own| own.contains(cpu))).copied()
}

/// How many descriptors that takes.
fn needed(set: &Set, online: &[u32]) -> usize {
    set.events.len() * cpus_of(set, online).count()
}

/// Counters opened together, and what they told last.
#[derive(Debug)]
struct Cell {
    counters: Counters,
    /// For each of them, which of the plan's events it counts, and what it told last.
    last: Box<[(usize, u64)]>,
    /// When that was told.
    counted: Times,
    /// The process that they follow, of those that follow one.
    process: Option<u32>,
    /// When they were read last.
    read: Times,
}

/// An event of all cells.
#[derive(Clone, Copy, Debug, Default)]
struct Total {
    is_counted: bool,
    steps: u64,
    /// Since the tick before.
    times: Times,
}

/// What was opened, and the events that the kernel refused.
pub(super) type Opened = (Subject, Vec<(usize, PerfError)>);

/// Everything that is counted of a target.
#[derive(Debug)]
pub(super) struct Subject {
    cells: Vec<Cell>,
    totals: Vec<Total>,
    start: Timestamp,
}

impl Subject {
    /// Nothing yet; it begins now.
    pub(super) fn new(plan: &Plan, now: Timestamp) -> Self {
        let totals = vec![Total::default(); plan.told.len()];
        Self { cells: Vec::new(), totals, start: now }
    }

    /// Counters of the whole node, and the events of which the kernel refused a counter on some processor; the others
    /// are counted all the same.
    ///
    /// # Errors
    /// They would be too many, or the kernel refused all.
    pub(super) fn of_node(
        root: &Root,
        plan: &Plan,
        online: &[u32],
        now: Timestamp,
        budget: &mut Budget,
    ) -> Result<Opened, NotOpened> {
        let sets: Vec<_> = plan.sets.iter().collect();
        // What may pass is tried again as a whole.
        let is_lasting = |error| !matches!(error, PerfError::Files | PerfError::Gone);
        let subject = Self::new(plan, now);
        subject.open_sets((root, &sets, online), Target::Cpu, is_lasting, budget)
    }

    /// Opens sets, each on all of its processors; those that are refused for good are named, and none of the others
    /// is without them.
    fn open_sets<'a>(
        mut self,
        (root, sets, online): (&Root, &[&Set], &[u32]),
        target: impl Fn(u32) -> Target<'a>,
        is_lasting: impl Fn(PerfError) -> bool,
        budget: &mut Budget,
    ) -> Result<Opened, NotOpened> {
        budget.has_room(sets.iter().map(|set| needed(set, online)).sum())?;
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

    /// Counters of a cgroup, its directory given open and by its path; and the events that the kernel
    /// does not count for it, while others are.
    ///
    /// # Errors
    /// As [`Self::of_node`]; of the events none can be counted.
    pub(super) fn of_cgroup(
        root: &Root,
        plan: &Plan,
        online: &[u32],
        now: Timestamp,
        (dir, path): (&KeptFile, &str),
        budget: &mut Budget,
    ) -> Result<Opened, NotOpened> {
        let sets: Vec<_> = plan.sets.iter().filter(|set| set.of_jobs).collect();
        let is_lasting = |error| matches!(error, PerfError::Absent | PerfError::Refused);
        let target = |cpu| Target::Cgroup(dir, path, cpu);
        Self::new(plan, now).open_sets((root, &sets, online), target, is_lasting, budget)
    }

    /// Opens a set on each processor that counts it, or on none.
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

    /// Counters of a process and all that it starts: of these tasks, which are its own.
    ///
    /// # Errors
    /// As [`Self::of_node`]; a task that has ended is none.
    pub(super) fn follow(
        &mut self,
        root: &Root,
        plan: &Plan,
        (process, tids): (u32, &[u32]),
        budget: &mut Budget,
    ) -> Result<(), NotOpened> {
        // Older kernels refuse groups that are inherited.
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

    /// Closes the counters that follow a process; what they counted stays.
    pub(super) fn unfollow(&mut self, process: u32, budget: &mut Budget) {
        self.cells.retain(|cell| {
            let stays = cell.process != Some(process);
            budget.used -= if stays { 0 } else { cell.counters.len() };
            stays
        });
    }

    /// Closes everything.
    pub(super) fn close(&mut self, budget: &mut Budget) {
        budget.used -= self.cells.iter().map(|cell| cell.counters.len()).sum::<usize>();
        self.cells.clear();
    }

    /// Reads every counter. What the kernel tells no more stays as it was.
    ///
    /// # Errors
    /// The first that could not be read.
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

    /// Tells what was counted.
    pub(super) fn tell(&self, plan: &Plan, out: &mut Of<'_>) {
        for (told, total) in plan.told.iter().zip(&self.totals).filter(|(_, it)| it.is_counted) {
            let label = [("event", &*told.name)];
            let labels = if told.is_labelled { &label[..] } else { &[] };
            out.counter(told.metric, labels, told.value(total.steps), self.start);
            let Times { enabled_ns, running_ns } = total.times;
            if told.takes_turns && enabled_ns > 0 {
                out.gauge(&RUNNING, &label, running_ns as f64 / enabled_ns as f64);
            }
        }
    }
}

impl Cell {
    /// Adds what was counted since the last reading to the totals.
    fn take(&mut self, values: &[u64], times: Times, totals: &mut [Total]) {
        let enabled = times.enabled_ns.saturating_sub(self.read.enabled_ns);
        let running = times.running_ns.saturating_sub(self.read.running_ns);
        let since = Times {
            enabled_ns: times.enabled_ns.saturating_sub(self.counted.enabled_ns),
            running_ns: times.running_ns.saturating_sub(self.counted.running_ns),
        };
        self.read = times;
        // While it has had no turn at all nothing is known: its next turn stands for this time, too.
        let had_a_turn = since.running_ns > 0 || since.enabled_ns == 0;
        for ((event, last), value) in self.last.iter_mut().zip(values) {
            let Some(total) = totals.get_mut(*event) else { continue };
            total.times.enabled_ns += enabled;
            total.times.running_ns += running;
            if had_a_turn {
                let steps = scaled(value.saturating_sub(*last), since);
                total.steps = total.steps.saturating_add(steps);
                *last = *value;
            }
        }
        if had_a_turn {
            self.counted = times;
        }
    }
}

/// What was counted for a part of the time, for all of it.
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
    fn a_turn_stands_for_the_time_since_the_last_one() {
        let (mut cell, mut total) = (cell(), Total::default());
        take(&mut cell, &mut total, 1000, 100, 100);
        assert_eq!(total.steps, 1000);
        // Half of the time.
        take(&mut cell, &mut total, 1500, 200, 150);
        assert_eq!((total.steps, total.times.running_ns), (2000, 50));
        // Not at all, and then a fifth of twice the time.
        take(&mut cell, &mut total, 1500, 300, 150);
        assert_eq!((total.steps, total.times), (2000, Times { enabled_ns: 100, running_ns: 0 }));
        take(&mut cell, &mut total, 1600, 400, 190);
        assert_eq!((total.steps, total.times.running_ns), (2500, 40));
    }

    #[test]
    fn an_event_that_a_later_processor_refuses_costs_the_node_no_other() {
        let dir = tempfile::tempdir().unwrap();
        // Event 0-0 is of processor 0 alone.
        for (cpu, event) in [(0, "0-0"), (0, "1-2"), (1, "1-2")] {
            let cpu = dir.path().join(format!(".jobmeter/perf/cpu{cpu}"));
            std::fs::create_dir_all(&cpu).unwrap();
            std::fs::write(cpu.join(event), "7 5 5\n").unwrap();
        }
        let root = Root::recorded(dir.path()).unwrap();
        let wanted = super::super::wanted::parse("cpu_cycles,page_faults").unwrap();
        let (plan, refused) = Plan::of(&root, &wanted, &[0, 1]).unwrap();
        assert_eq!(refused, None, "the first processor has both");
        let mut budget = Budget { used: 0, max: 10 };
        let now = Timestamp(0);
        let opened = Subject::of_node(&root, &plan, &[0, 1], now, &mut budget);
        let (mut subject, lacking) = opened.unwrap();
        assert_eq!(lacking, [(0, PerfError::Absent)]);
        subject.read().unwrap();
        let counted: Vec<_> = subject.totals.iter().map(|it| (it.is_counted, it.steps)).collect();
        assert_eq!(counted, [(false, 0), (true, 14)]);
        assert_eq!(budget.used, 2);
        // None of them.
        let opened = Subject::of_node(&root, &plan, &[0, 2], now, &mut budget);
        assert_eq!(opened.map(drop), Err(NotOpened::Kernel(PerfError::Absent)));
        assert_eq!(budget.used, 2);
    }

    #[test]
    fn the_budget_is_never_passed() {
        let mut budget = Budget { used: 0, max: 10 };
        assert_eq!(budget.take(8), Ok(()));
        assert_eq!(budget.take(3), Err(NotOpened::Budget(3)));
        assert_eq!(budget.take(2), Ok(()));
        assert_eq!(budget.used, 10);
    }

    proptest! {
        /// What is told only grows, and is what the counter says where it always counted.
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
