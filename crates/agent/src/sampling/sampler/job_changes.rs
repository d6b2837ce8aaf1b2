//! Jobs that started or ended: scans for their on-demand requests, and the last readings after their end.

use super::{JobSearch, Sampler, Step};
use crate::jobs::env_scanner::{ScanResult, ScanTask};
use crate::reading::one_reading::{Reading, Task};
use crate::reading::plan::Plan;
use crate::reading::source_state::Entry;
use cgroups::Jobs;
use model::{JobKey, Timestamp};
use std::sync::Arc;

/// Longest time that the last reading of ended jobs waits for a source that is read aside.
const LAST_READING_WAIT_US: i64 = 2 * Timestamp::SECOND;

/// Jobs that ended in one search, and the positions of the sources that have not read them yet.
pub(super) struct Ended {
    keys: Arc<[JobKey]>,
    /// The jobs of that search: later ones have other jobs, also of the same IDs.
    jobs: Arc<Jobs>,
    left: Vec<usize>,
    since_us: i64,
    /// Whether every source has read them that is not read aside.
    is_searched: bool,
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

    /// Returns the next job search, if one is due and the last readings of ended jobs permit it.
    pub(super) fn next_job_search(&mut self, now: Timestamp, steady_us: i64) -> Option<JobSearch> {
        self.forget_ended(steady_us);
        let due = self.finds.due() <= now;
        if !(due || self.noted) || self.must_read_ended() {
            return None;
        }
        let mut finder = self.finder.take()?;
        if let Some(wanted_jobs) = self.wanted_jobs.take() {
            finder.set_wanted_jobs(wanted_jobs);
        }
        self.finds.take(now);
        self.noted = false;
        let (machine, device) = (Arc::clone(&self.machine), self.agent_metrics.device().clone());
        Some(JobSearch { finder, machine, device, now })
    }

    /// Takes jobs that need a last reading.
    pub(super) fn take_ended(&mut self, ended: &[JobKey], jobs: &Arc<Jobs>) {
        if ended.is_empty() {
            return;
        }
        let (left, since_us) = ((0..self.entries.len()).collect(), self.clock.steady_us());
        let (keys, jobs) = (ended.into(), Arc::clone(jobs));
        self.ended.push(Ended { keys, jobs, left, since_us, is_searched: false });
    }

    /// Forgets the ended jobs once every source has read them. A job search follows as soon as the sources at hand
    /// have, before any other reading, so that a new job with a reused ID is found. A source that is read aside comes
    /// back soon or exceeds its time limit; searches do not wait for it, because other jobs begin and end meanwhile.
    pub(super) fn forget_ended(&mut self, steady_us: i64) {
        let entries = &self.entries;
        for ended in &mut self.ended {
            let is_waiting = steady_us.saturating_sub(ended.since_us) < LAST_READING_WAIT_US;
            ended.left.retain(|place| {
                let waits =
                    |entry: &Entry| entry.is_open() || is_waiting && entry.owes_last_reading();
                entries.get(*place).is_some_and(waits)
            });
            if !ended.is_searched && !ended.has_open(entries) {
                ended.is_searched = true;
                self.noted = true;
            }
        }
        self.ended.retain(|ended| !ended.left.is_empty());
    }

    /// Whether a source still has to read ended jobs before the next search. Sources that come back later have the
    /// jobs of that time, so that searches do not wait for them.
    pub(super) fn must_read_ended(&self) -> bool {
        self.ended.iter().any(|ended| !ended.is_searched && ended.has_open(&self.entries))
    }

    /// Returns the next reading of ended jobs, the oldest first.
    pub(super) fn next_ended(&mut self) -> Option<Reading> {
        let entries = &self.entries;
        let (place, task, jobs) = self.ended.iter_mut().find_map(|ended| {
            let is_open = |place: &usize| entries.get(*place).is_some_and(Entry::is_open);
            let place = ended.left.remove(ended.left.iter().position(is_open)?);
            Some((place, Task::Ended(Arc::clone(&ended.keys)), Arc::clone(&ended.jobs)))
        })?;
        self.reading(place, task).map(|reading| Reading { jobs, ..reading })
    }
}

impl Ended {
    fn has_open(&self, entries: &[Entry]) -> bool {
        self.left.iter().any(|place| entries.get(*place).is_some_and(Entry::is_open))
    }
}
