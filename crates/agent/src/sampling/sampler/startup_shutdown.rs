//! Startup and shutdown of the agent: accounting states that sources receive and leave.

use super::Sampler;
use crate::jobs::accounting::States;
use crate::reading::one_reading::{Reading, Task};
use crate::reading::source_state::Entry;
use model::Timestamp;

impl Sampler {
    /// Ends like [`Self::end`], after a last job search and a last reading of each source. The state for the next
    /// start then has every job.
    pub(crate) fn finish(&mut self) {
        self.ending = true;
        self.noted = true;
        self.last = (0..self.entries.len()).collect();
    }

    /// Whether job searches go on: at the end one more, before the last readings.
    pub(super) fn searches(&self) -> bool {
        !self.ending || self.noted && self.last.len() == self.entries.len()
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
            slot.until = until;
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
        if let Some(reading) = self.next_ended() {
            return Some(reading);
        }
        let is_open = |place: &usize| self.entries.get(*place).is_some_and(Entry::is_open);
        let next = self.last.iter().position(is_open)?;
        let place = self.last.remove(next);
        self.reading(place, Task::Finish)
    }

    /// Whether a source that is read aside still owes its last reading.
    pub(super) fn waits_for_last(&self) -> bool {
        let owes = |place: &usize| self.entries.get(*place).is_some_and(Entry::owes_last_reading);
        self.last.iter().any(owes)
    }
}
