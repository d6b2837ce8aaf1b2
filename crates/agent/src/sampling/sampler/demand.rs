//! Demand that changes while the agent runs: a new plan, jobs that start and end, and flushes of bursts.

use super::{SEAL_MIN, Sampler, micros};
use crate::common::schedule::Schedule;
use crate::reading::burst::Trigger;
use crate::reading::plan::Plan;
use model::{JobEvent, JobKey, Timestamp};
use std::time::Duration;

/// Approximate number of burst samples that one batch takes: half of a batch.
const RELEASE_SAMPLES: usize = 32 * 1024;

impl Sampler {
    /// Applies a new plan. Samples that were read are kept.
    pub(crate) fn apply(&mut self, plan: &Plan) {
        let now = self.clock.wall();
        for source in &plan.sources {
            let entry = self.entries.iter_mut().find(|entry| entry.spec.name == source.spec.name);
            if let Some(entry) = entry {
                entry.apply(source, plan.source_percent_max, now);
            }
        }
        self.agent_metrics.apply(plan, now);
        self.env_scanner.set(plan.environments, &self.jobs, self.clock.steady_us());
        self.period = plan.period;
        self.budget_us = u64::try_from(plan.budget.as_micros()).unwrap_or(u64::MAX);
        self.source_time_max = plan.source_time_max;
        let before_us = self.seals.period_us();
        self.seals = Schedule::new(self.seal_period(), now);
        self.report_if_longer(before_us);
    }

    /// Seals a batch soon if the interval between batches grew. The server must learn this before it misses a
    /// batch.
    fn report_if_longer(&mut self, before_us: i64) {
        if self.seals.period_us() > before_us {
            self.seal_soon();
        }
    }

    /// Sets the schedule of the batches.
    pub(super) fn with_seals(mut self, now: Timestamp) -> Self {
        self.seals = Schedule::new(self.seal_period(), now);
        self
    }

    /// Interval between batches: the shortest period of the enabled sources, at least 1 s.
    fn seal_period(&self) -> Duration {
        let enabled = self.entries.iter().filter(|entry| entry.enabled);
        let shortest = enabled.map(|entry| entry.base()).min();
        shortest.unwrap_or(self.period).max(SEAL_MIN)
    }

    /// Switches between the periods for a node with jobs and for an idle one.
    pub(super) fn notice_idle(&mut self) {
        let is_idle = self.jobs.iter().len() == 0;
        if is_idle == self.is_idle {
            return;
        }
        self.is_idle = is_idle;
        let now = self.clock.wall();
        self.entries.iter_mut().for_each(|entry| entry.set_idle(is_idle, now));
        let (period, before_us) = (self.seal_period(), self.seals.period_us());
        if micros(period) != before_us {
            self.seals.change(period, now);
            self.report_if_longer(before_us);
        }
    }

    /// Requests burst samples if the started or ended jobs trigger that.
    pub(super) fn trigger_bursts(&mut self, events: &[JobEvent], ended: &[JobKey]) {
        if events.iter().any(|event| event.stop.is_none()) {
            self.trigger(Trigger::JobStart, None);
        }
        if !ended.is_empty() {
            self.trigger(Trigger::JobEnd, None);
        }
    }

    /// Requests the burst samples of a source.
    pub(crate) fn flush(&mut self, source: &str) {
        self.trigger(Trigger::Requested, Some(source));
    }

    fn trigger(&mut self, trigger: Trigger, source: Option<&str>) {
        let now = self.clock.wall();
        let mut wants = false;
        for entry in &mut self.entries {
            if source.is_none_or(|source| source == entry.spec.name) {
                wants |= entry.trigger(trigger, now);
            }
        }
        if wants {
            self.seal_soon();
        }
    }

    /// Moves a part of the requested burst samples into the next batch. Returns whether more are left.
    pub(super) fn release(&mut self) -> bool {
        let most = if self.ending { usize::MAX } else { RELEASE_SAMPLES };
        let mut more = false;
        for entry in &mut self.entries {
            more |= entry.release(most);
        }
        more
    }
}
