//! The agent's side of a sink.

use super::{ENDED_SEALS_MAX, IDLE_SEALS_MAX, KnownSeries, Sink};
use model::{Gap, JobEvent, JobKey, SeriesEntry, Tick};

/// A position to which a sink can be cut back when its source panics.
#[derive(Clone, Copy, Debug)]
pub struct SinkPosition(pub(super) usize);

impl Sink {
    /// The current position.
    pub fn mark(&self) -> SinkPosition {
        SinkPosition(self.values.len())
    }

    /// Removes the samples pushed since the mark.
    pub fn cut_back(&mut self, mark: SinkPosition) {
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

    /// Whether the table changed since the last call of [`Self::table`].
    pub const fn table_changed(&self) -> bool {
        self.table_changed
    }

    /// The slots of the table in order; an unused slot is `None`.
    pub fn table(&mut self) -> impl ExactSizeIterator<Item = Option<&SeriesEntry>> {
        self.table_changed = false;
        self.known.iter().map(|known| known.as_ref().map(|known| &known.entry))
    }

    /// Ticks, indexes and values not drained yet.
    pub fn columns(&self) -> (&[Tick], &[u32], &[f64]) {
        (&self.ticks, &self.index, &self.values)
    }

    /// Removes and returns the gaps.
    pub fn take_gaps(&mut self) -> Vec<Gap> {
        std::mem::take(&mut self.gaps)
    }

    /// Job events not taken yet.
    pub fn events(&self) -> &[JobEvent] {
        &self.events
    }

    /// Removes and returns the job events.
    pub fn take_events(&mut self) -> Vec<JobEvent> {
        std::mem::take(&mut self.events)
    }

    /// Removes the series of ended jobs once their last samples are sealed. Otherwise a node with many short
    /// jobs would hold the series of hundreds of them.
    pub fn forget_soon(&mut self, ended: &[JobKey]) {
        for known in self.known.iter_mut().flatten() {
            if known.entry.job.as_ref().is_some_and(|job| ended.contains(job)) {
                known.idle_seals_max = ENDED_SEALS_MAX;
            }
        }
    }

    /// Empties the columns but keeps their memory, and removes series without recent samples.
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

    /// Returns the unused memory of the table of series.
    pub fn shrink(&mut self) {
        self.known.shrink_to_fit();
    }

    /// Prevents the removal of series with held-back samples: another series would reuse the slot.
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
