//! Slow sources: their readings are set aside, so that the other sources go on.

use super::{Running, Sampler, micros};
use crate::reading::source_state::Entry;
use std::time::Duration;

/// Bounds of the time after which the other sources stop waiting for a slow one. It is a tenth of the tick.
const HAND_OVER_MIN: Duration = Duration::from_millis(50);
const HAND_OVER_MAX: Duration = Duration::from_millis(500);

impl Sampler {
    /// Sets a slow reading aside, and gives up set-aside readings that exceed their time limit. Returns whether
    /// another thread is needed.
    pub(crate) fn watch(&mut self) -> bool {
        let steady_us = self.clock.steady_us();
        for entry in &mut self.entries {
            if entry.overrun_us().is_some_and(|at| steady_us >= at) {
                entry.park(steady_us);
            }
        }
        let slow =
            |running: &Running| steady_us >= running.since_us.saturating_add(running.hand_us);
        let Some(running) = self.running.take_if(|running| slow(running)) else { return false };
        self.set_aside(running);
        true
    }

    /// Monotonic time of the next check by [`Self::watch`]: once per tick while no source is slow.
    pub(crate) fn watch_us(&self) -> i64 {
        let (now, steady_us) = (self.clock.wall(), self.clock.steady_us());
        let running = match self.running {
            Some(running) => running.since_us.saturating_add(running.hand_us),
            None => {
                let ticks = self.entries.iter().filter(|entry| entry.enabled);
                let next = ticks.map(|entry| entry.due()).min();
                let until_us = next.map_or(i64::MAX / 2, |next| next.since(now).max(0));
                steady_us.saturating_add(until_us).saturating_add(self.hand_us())
            }
        };
        self.entries.iter().filter_map(Entry::overrun_us).chain([running]).min().unwrap_or(running)
    }

    /// Time after which a slow reading is set aside. Within a tenth of the tick, the following readings still carry
    /// the scheduled instant.
    pub(super) fn hand_us(&self) -> i64 {
        micros((self.period / 10).clamp(HAND_OVER_MIN, HAND_OVER_MAX))
    }

    /// Gives up all readings under way, because the agent ends.
    pub(crate) fn give_up(&mut self) {
        let steady_us = self.clock.steady_us();
        if let Some(running) = self.running.take() {
            self.set_aside(running);
        }
        for entry in self.entries.iter_mut().filter(|entry| entry.overrun_us().is_some()) {
            entry.park(steady_us);
        }
    }

    fn set_aside(&mut self, running: Running) {
        self.generation += 1;
        match running.place.and_then(|place| self.entries.get_mut(place)) {
            Some(entry) => entry.set_aside(running.since_us, running.limit_us),
            None if self.finder.is_some() => {
                log::warn!(
                    "reading the environment of a job is slow; other jobs wait until it ends"
                );
            }
            None => log::warn!("searching for jobs is slow; the agent reads the jobs found so far"),
        }
    }
}
