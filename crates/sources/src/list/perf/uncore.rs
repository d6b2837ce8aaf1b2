//! One event of an uncore PMU, for another source: one counter for each group of processors that
//! share a unit.

use super::plan::{EventMetric, Plan, worded};
use super::{Online, event_list};
use crate::SourceError;
use kernel::Root;
use kernel::perf::{Counters, Target};

/// Counters of the event, which count since they were opened.
#[derive(Debug)]
pub(in super::super) struct UncoreEvent {
    metric: EventMetric,
    counters: Vec<(u32, Counters)>,
}

impl UncoreEvent {
    /// Opens an event by its text, such as `power/energy-pkg/`.
    ///
    /// # Errors
    /// This machine does not count the event, or the agent may not.
    pub(in super::super) fn open(root: &Root, text: &str) -> Result<Self, SourceError> {
        let online = Online::open(root)?.cpus;
        let wanted = event_list::parse(text).map_err(SourceError::broken)?;
        let (Plan { mut metrics, sets }, _) = Plan::of(root, &wanted, &online)?;
        let mut counters = Vec::new();
        for set in &sets {
            for cpu in set.cpus.iter().flatten().filter(|cpu| online.contains(cpu)) {
                let opened = Counters::open(root, &set.numbers(), Target::Cpu(*cpu));
                counters.push((*cpu, opened.map_err(|error| worded(text, error))?));
            }
        }
        match metrics.pop() {
            Some(metric) if !counters.is_empty() => Ok(Self { metric, counters }),
            _ => {
                Err(SourceError::absent(format!("{text}: no processor of this machine counts it")))
            }
        }
    }

    /// Calls `visit` with each counter's index and its value in the unit of the event's metric.
    ///
    /// # Errors
    /// A counter can no longer be read.
    pub(in super::super) fn read(
        &self,
        mut visit: impl FnMut(usize, f64),
    ) -> Result<(), SourceError> {
        for (place, (_, counters)) in self.counters.iter().enumerate() {
            let mut steps = 0;
            let read = counters.read(std::slice::from_mut(&mut steps));
            read.map_err(|error| worded(&self.metric.name, error))?;
            visit(place, self.metric.value(steps));
        }
        Ok(())
    }

    /// The processors on which the counters are open.
    pub(in super::super) fn cpus(&self) -> impl Iterator<Item = u32> {
        self.counters.iter().map(|(cpu, _)| *cpu)
    }
}
