//! The agent's side of a sink.

use super::{ENDED_SEALS_MAX, IDLE_SEALS_MAX, KnownSeries, Sink};
use model::{Gap, JobEvent, JobKey, SeriesEntry, Tick};

/// A mark to which a sink can be cut back when its source panics.
#[derive(Clone, Copy, Debug)]
pub struct Mark(pub(super) usize);

impl Sink {
    /// Where the sink stands now.
    pub fn mark(&self) -> Mark {
        Mark(self.values.len())
    }

    /// Forgets the samples pushed since the mark.
    pub fn cut_back(&mut self, mark: Mark) {
        let mut surplus = self.values.len().saturating_sub(mark.0);
        self.values.truncate(mark.0);
        self.index.truncate(mark.0);
        while surplus > 0
            && let Some(tick) = self.ticks.last_mut()
        {
            let samples = usize::try_from(tick.samples).unwrap_or(usize::MAX);
            if samples > surplus {
                tick.samples -= u32::try_from(surplus).unwrap_or(0);
                break;
            }
            surplus -= samples;
            self.ticks.pop();
        }
    }

    /// Whether the table differs from the one last taken with [`Self::table`].
    pub const fn table_changed(&self) -> bool {
        self.table_changed
    }

    /// The places of the table in order; a place in nobody's use is `None`.
    pub fn table(&mut self) -> impl ExactSizeIterator<Item = Option<&SeriesEntry>> {
        self.table_changed = false;
        self.known.iter().map(|known| known.as_ref().map(|known| &known.entry))
    }

    /// Ticks, places and values not drained.
    pub fn columns(&self) -> (&[Tick], &[u32], &[f64]) {
        (&self.ticks, &self.index, &self.values)
    }

    /// Takes the gaps.
    pub fn take_gaps(&mut self) -> Vec<Gap> {
        std::mem::take(&mut self.gaps)
    }

    /// What was observed of jobs and not taken.
    pub fn events(&self) -> &[JobEvent] {
        &self.events
    }

    /// Takes what was observed of jobs.
    pub fn take_events(&mut self) -> Vec<JobEvent> {
        std::mem::take(&mut self.events)
    }

    /// Forgets the series of ended jobs when their last samples have been sealed: a node that sees many short
    /// jobs would hold those of hundreds.
    pub fn forget_soon(&mut self, ended: &[JobKey]) {
        for known in self.known.iter_mut().flatten() {
            if known.entry.job.as_ref().is_some_and(|job| ended.contains(job)) {
                known.idle_seals_max = ENDED_SEALS_MAX;
            }
        }
    }

    /// Empties the columns, keeping their memory, and forgets series that had no sample for long.
    pub fn sealed(&mut self) {
        for place in &self.index {
            let known = usize::try_from(*place).ok().and_then(|place| self.known.get_mut(place));
            if let Some(Some(known)) = known {
                known.idle_seals = 0;
            }
        }
        self.ticks.clear();
        self.index.clear();
        self.values.clear();
        self.spare_kept();
        for (place, slot) in self.known.iter_mut().enumerate() {
            let Some(known) = slot else { continue };
            known.idle_seals += 1;
            if known.idle_seals > known.idle_seals_max {
                let hash = known.hash;
                let found = self.find.find_entry(hash, |at| usize::try_from(*at) == Ok(place));
                if let Ok(entry) = found {
                    self.free.push(*entry.get());
                    entry.remove();
                }
                *slot = None;
                self.table_changed = true;
            }
        }
    }

    /// A series of which samples are kept is not forgotten: another would take its place.
    fn spare_kept(&mut self) {
        let is_idle = |known: &KnownSeries| known.idle_seals >= IDLE_SEALS_MAX;
        let Some(ring) = &self.ring else { return };
        if !self.known.iter().flatten().any(is_idle) {
            return;
        }
        for place in ring.places() {
            let known = usize::try_from(place).ok().and_then(|place| self.known.get_mut(place));
            if let Some(Some(known)) = known {
                known.idle_seals = known.idle_seals.min(IDLE_SEALS_MAX - 1);
            }
        }
    }
}
