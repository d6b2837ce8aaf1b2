//! One event of a PMU beside the cores, for another source: a counter on each of its processors, which
//! stands for all that share it.

use super::plan::{EventMetric, Plan, worded};
use super::{Online, wanted};
use crate::SourceError;
use kernel::Root;
use kernel::perf::{Counters, Target};

/// Its counters, which count since they were opened.
#[derive(Debug)]
pub(in super::super) struct Beside {
    told: EventMetric,
    counters: Vec<(u32, Counters)>,
}

impl Beside {
    /// Opens an event by its text: `power/energy-pkg/`.
    ///
    /// # Errors
    /// This machine does not count it, or not for us.
    pub(in super::super) fn open(root: &Root, text: &str) -> Result<Self, SourceError> {
        let online = Online::open(root)?.cpus;
        let wanted = wanted::parse(text).map_err(SourceError::broken)?;
        let (Plan { mut told, sets }, _) = Plan::of(root, &wanted, &online)?;
        let mut counters = Vec::new();
        for set in &sets {
            for cpu in set.cpus.iter().flatten().filter(|cpu| online.contains(cpu)) {
                let opened = Counters::open(root, &set.numbers(), Target::Cpu(*cpu));
                counters.push((*cpu, opened.map_err(|error| worded(text, error))?));
            }
        }
        match told.pop() {
            Some(told) if !counters.is_empty() => Ok(Self { told, counters }),
            _ => {
                Err(SourceError::absent(format!("{text}: no processor of this machine counts it")))
            }
        }
    }

    /// Shows each processor, by its place among them, and what was counted there in the unit of the
    /// event's metric.
    ///
    /// # Errors
    /// One of them is read no more.
    pub(in super::super) fn read(
        &self,
        mut show: impl FnMut(usize, f64),
    ) -> Result<(), SourceError> {
        for (place, (_, counters)) in self.counters.iter().enumerate() {
            let mut steps = 0;
            let read = counters.read(std::slice::from_mut(&mut steps));
            read.map_err(|error| worded(&self.told.name, error))?;
            show(place, self.told.value(steps));
        }
        Ok(())
    }

    /// The processors.
    pub(in super::super) fn cpus(&self) -> impl Iterator<Item = u32> {
        self.counters.iter().map(|(cpu, _)| *cpu)
    }
}
