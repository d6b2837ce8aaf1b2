//! Jobs that started or ended: scans for their on-demand requests, and the last readings after their end.

use super::{Sampler, Step};
use crate::jobs::env_scanner::{ScanResult, ScanTask};
use crate::reading::one_reading::Task;
use crate::reading::plan::Plan;
use crate::reading::source_state::Entry;
use model::{JobKey, Timestamp};
use std::sync::Arc;

/// Longest time that job searches wait for the last reading of ended jobs by a source that is read aside.
const LAST_READING_WAIT_US: i64 = 2 * Timestamp::SECOND;

/// Jobs that ended, and the positions of the sources that have not read them yet.
pub(super) struct Ended {
    keys: Arc<[JobKey]>,
    left: Vec<usize>,
    since_us: i64,
}

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

    /// Takes jobs that need a last reading.
    pub(super) fn take_ended(&mut self, ended: &[JobKey]) {
        if ended.is_empty() {
            return;
        }
        // Jobs of an earlier search that some source has not read yet come first.
        let before = self.ended.take().map(|ended| ended.keys);
        let keys = before.iter().flat_map(|keys| keys.iter()).chain(ended).cloned().collect();
        let (left, since_us) = ((0..self.entries.len()).collect(), self.clock.steady_us());
        self.ended = Some(Ended { keys, left, since_us });
    }

    /// Forgets the ended jobs once every source has read them. A job search follows before any other reading, so
    /// that a new job with a reused ID is found.
    pub(super) fn forget_ended(&mut self, steady_us: i64) {
        let Some(ended) = &mut self.ended else { return };
        // A source that is being read aside comes back soon, or exceeds its time limit.
        let is_waiting = steady_us.saturating_sub(ended.since_us) < LAST_READING_WAIT_US;
        let waits = |place: &usize| {
            let entry = self.entries.get(*place);
            entry.is_some_and(|entry| entry.is_open() || is_waiting && entry.owes_last_reading())
        };
        ended.left.retain(waits);
        if ended.left.is_empty() {
            self.ended = None;
            self.noted = true;
        }
    }

    /// Returns the next source that must read the ended jobs.
    pub(super) fn next_ended(&mut self) -> Option<(usize, Task)> {
        let ended = self.ended.as_mut()?;
        let is_open = |place: &usize| self.entries.get(*place).is_some_and(Entry::is_open);
        let next = ended.left.iter().position(is_open)?;
        Some((ended.left.remove(next), Task::Ended(Arc::clone(&ended.keys))))
    }
}
