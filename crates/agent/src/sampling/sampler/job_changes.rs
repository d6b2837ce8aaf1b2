//! Jobs that started or ended: scans for their on-demand requests, and the last readings after their end.

use super::{Sampler, Step};
use crate::jobs::env_scanner::{ScanResult, ScanTask};
use crate::reading::one_reading::Task;
use crate::reading::plan::Plan;
use crate::reading::source_state::Entry;
use std::sync::Arc;

impl Sampler {
    /// Enables scans for on-demand requests, if the plan says so.
    pub(super) fn with_env_scanner(mut self, plan: &Plan) -> Self {
        self.env_scanner.set(plan.environments, &self.jobs, self.clock.steady_us());
        self
    }

    /// Returns the next scan of a job, once nothing else is due.
    pub(super) fn next_scan(&mut self, steady_us: i64) -> Option<Step> {
        let key = self.env_scanner.next(steady_us)?;
        let (jobs, machine) = (Arc::clone(&self.jobs), Arc::clone(&self.machine));
        self.run(None, steady_us);
        Some(Step::Look(ScanTask {
            key,
            jobs,
            machine,
            device: self.agent_metrics.device().clone(),
        }))
    }

    /// Takes the result of a scan.
    pub(crate) fn looked(&mut self, looked: ScanResult, generation: u64) {
        if generation == self.generation {
            self.running = None;
        }
        self.env_scanner.take(&looked, self.clock.steady_us());
        if let Some(event) = looked.event {
            self.sealer.notes().put_job(event);
            self.seal_soon();
        }
    }

    /// Forgets the ended jobs once every source has read them. A job search follows before any other reading, so
    /// that a new job with a reused ID is found.
    pub(super) fn forget_ended(&mut self) {
        let Some(ended) = &self.ended else { return };
        let waits = |entry: &Entry| {
            entry.enabled && entry.slot.as_ref().is_some_and(|slot| slot.source.is_some())
        };
        if !self.entries.iter().skip(ended.next).any(waits) {
            self.ended = None;
            self.noted = true;
        }
    }

    /// Returns the next source that must read the ended jobs.
    pub(super) fn next_ended(&mut self) -> Option<(usize, Task)> {
        let ended = self.ended.as_mut()?;
        while let Some(entry) = self.entries.get(ended.next) {
            let place = ended.next;
            ended.next += 1;
            let open = entry.slot.as_ref().is_some_and(|slot| slot.source.is_some());
            if entry.enabled && open {
                return Some((place, Task::Ended(Arc::clone(&ended.keys))));
            }
        }
        self.ended = None;
        None
    }
}
