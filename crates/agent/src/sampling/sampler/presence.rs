//! Polling of cgroup v1 jobs: the kernel does not report the end of their last process. If a source hears of ends
//! of tasks, the agent polls after each end, otherwise ten times per second.

use super::Sampler;
use crate::jobs::finder::Finder;
use crate::reading::source_state::Entry;
use model::Timestamp;

/// Polls after the end of a task. The kernel reports the end before the task has left its cgroup.
const LOOKS: u8 = 2;

/// State of the polling.
#[derive(Debug, Default)]
pub(super) struct Presence {
    /// Interval between two polls in microseconds; `None` if no job needs them.
    every_us: Option<i64>,
    left: u8,
}

impl Sampler {
    /// Updates the schedule after a job search, or after a change in whether sources hear of ends of tasks.
    pub(super) fn plan_job_searches(&mut self) {
        let Some(finder) = &self.finder else { return };
        let receives_events = self.entries.iter().any(Entry::receives_events);
        let every = finder.every(self.period, receives_events);
        self.presence.every_us = presence_us(finder).filter(|_| receives_events);
        if self.finds.period_us() != super::micros(every) {
            self.finds.change(every, self.clock.wall());
        }
        if self.presence.left > 0 {
            self.presence.left -= 1;
            self.look_soon();
        }
    }

    /// Handles the end of a task, which may be a job's last.
    pub(super) fn observe_end(&mut self) {
        self.presence.left = LOOKS - 1;
        self.look_soon();
    }

    /// Polls at the next instant at which other work also wakes the agent.
    fn look_soon(&mut self) {
        let Some(every_us) = self.presence.every_us else { return };
        let now = self.clock.wall();
        let at = Timestamp(now.0 - now.0.rem_euclid(every_us)).plus(every_us);
        if at < self.finds.due() {
            self.finds.force(at);
        }
    }
}

fn presence_us(finder: &Finder) -> Option<i64> {
    finder.presence().map(super::micros).filter(|us| *us > 0)
}
