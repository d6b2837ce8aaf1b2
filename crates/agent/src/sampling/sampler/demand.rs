//! What is wanted, as it changes while the agent runs: another plan, jobs that come and go, and what bursts
//! kept.

use super::{SEAL_MIN, Sampler, micros};
use crate::common::schedule::Schedule;
use crate::reading::burst::Trigger;
use crate::reading::plan::Plan;
use model::{JobEvent, JobKey, Timestamp};
use std::time::Duration;

/// About how many samples that a burst kept go into what is sealed at once: half of a batch.
const RELEASE_SAMPLES: usize = 32 * 1024;

impl Sampler {
    /// Reads by another plan from now on; nothing that was read is lost.
    pub(crate) fn apply(&mut self, plan: &Plan) {
        let now = self.clock.wall();
        for source in &plan.sources {
            let entry = self.entries.iter_mut().find(|entry| entry.spec.name == source.spec.name);
            if let Some(entry) = entry {
                entry.apply(source, plan.source_percent_max, now);
            }
        }
        self.own.apply(plan, now);
        self.wishes.set(plan.environments, &self.jobs, self.clock.steady_us());
        self.period = plan.period;
        self.budget_us = u64::try_from(plan.budget.as_micros()).unwrap_or(u64::MAX);
        self.source_time_max = plan.source_time_max;
        let before_us = self.seals.period_us();
        self.seals = Schedule::new(self.seal_period(), now);
        self.say_if_longer(before_us);
    }

    /// Where it is longer than before from one sealing to the next, one comes at once: the server is to know
    /// of it before it would miss a batch.
    fn say_if_longer(&mut self, before_us: i64) {
        if self.seals.period_us() > before_us {
            self.seal_soon();
        }
    }

    /// Seals at its pace from now on.
    pub(super) fn with_seals(mut self, now: Timestamp) -> Self {
        self.seals = Schedule::new(self.seal_period(), now);
        self
    }

    /// Samples are sealed at the pace of the source read most often, and once a second at most.
    fn seal_period(&self) -> Duration {
        let enabled = self.entries.iter().filter(|entry| entry.enabled);
        let shortest = enabled.map(|entry| entry.base()).min();
        shortest.unwrap_or(self.period).max(SEAL_MIN)
    }

    /// Reads at the pace of a node with jobs, or of one without.
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
            self.say_if_longer(before_us);
        }
    }

    /// Has what is kept sent where jobs that came or ended ask for it.
    pub(super) fn trigger_bursts(&mut self, events: &[JobEvent], ended: &[JobKey]) {
        if events.iter().any(|event| event.stop.is_none()) {
            self.trigger(Trigger::JobStart, None);
        }
        if !ended.is_empty() {
            self.trigger(Trigger::JobEnd, None);
        }
    }

    /// Has what is kept of a source sent.
    pub(crate) fn flush(&mut self, source: &str) {
        self.trigger(Trigger::Asked, Some(source));
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

    /// Moves what is wanted of what is kept to what is sealed next, a part at once. Whether more is left.
    pub(super) fn release(&mut self) -> bool {
        let most = if self.ending { usize::MAX } else { RELEASE_SAMPLES };
        let mut more = false;
        for entry in &mut self.entries {
            more |= entry.release(most);
        }
        more
    }
}
