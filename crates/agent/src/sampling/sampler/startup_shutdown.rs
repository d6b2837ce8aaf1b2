//! Startup and shutdown of the agent: accounting states that sources receive and leave.

use super::Sampler;
use crate::jobs::accounting::States;
use crate::reading::one_reading::{Reading, Task};
use crate::reading::source_state::Entry;
use model::Timestamp;

impl Sampler {
    /// Ends like [`Self::end`], after a last reading of each source.
    pub(crate) const fn finish(&mut self) {
        self.ending = true;
        self.last = Some(0);
    }

    /// Gives sources the accounting states of an earlier start. `until` is the end of that start's samples.
    pub(crate) fn resume(
        &mut self,
        (mut states, rejected): (States, u64),
        until: Option<Timestamp>,
    ) {
        self.agent_metrics.states_rejected = rejected;
        for entry in &mut self.entries {
            let Some(slot) = &mut entry.slot else { continue };
            let period_us = entry.schedule.period_us();
            slot.until = until.map(|until| until.plus(-period_us));
            if let Some(place) = states.iter().position(|(name, _)| name == entry.spec.name) {
                slot.state = states.swap_remove(place).1;
            }
        }
    }

    /// Returns the accounting states for the next start.
    pub(crate) fn states(&mut self) -> States {
        let slots =
            self.entries.iter_mut().filter_map(|entry| Some((entry.spec, entry.slot.as_mut()?)));
        let states =
            slots.map(|(spec, slot)| (spec.name.to_owned(), std::mem::take(&mut slot.state)));
        // A source that was never opened keeps the state of the earlier start.
        states.filter(|(_, state)| !state.is_empty()).collect()
    }

    /// Returns the next source for its last reading.
    pub(super) fn next_last(&mut self) -> Option<Reading> {
        let place = self.last?;
        let is_open = |entry: &Entry| {
            entry.enabled && entry.slot.as_ref().is_some_and(|slot| slot.source.is_some())
        };
        let next = self.entries.iter().skip(place).position(is_open).map(|next| place + next);
        self.last = next.map(|next| next + 1);
        self.reading(next?, Task::Finish)
    }
}
