//! The gaps that senders told and the store found: kept, bounded, merged where they overlap.

use model::{Cause, DeviceId, Gap, Origin, Timestamp};
use std::collections::{HashMap, VecDeque};

/// What makes two gaps one when they overlap.
type Key = (Origin, DeviceId, Box<str>, Cause);

/// Gaps in the order in which they came.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gaps {
    list: VecDeque<Gap>,
    /// The number, counted since the first ever, of the newest gap of each key.
    newest: HashMap<Key, u64>,
    /// Gaps that are no longer kept.
    forgotten: u64,
    max: usize,
    changed: bool,
}

impl Gaps {
    /// Gaps as they were kept, at most `max` of them.
    pub(crate) fn new(kept: impl IntoIterator<Item = Gap>, forgotten: u64, max: usize) -> Self {
        let mut gaps = Self { forgotten, max, ..Self::default() };
        kept.into_iter().for_each(|gap| gaps.add(gap));
        gaps.changed = false;
        gaps
    }

    /// Adds a gap; one that overlaps the newest of its kind makes that one longer.
    pub(crate) fn add(&mut self, gap: Gap) {
        self.changed = true;
        let key = (gap.origin.clone(), gap.device.clone(), gap.source.clone(), gap.cause);
        let place = self.newest.get(&key).and_then(|number| number.checked_sub(self.forgotten));
        let place = place.and_then(|place| usize::try_from(place).ok());
        if let Some(old) = place.and_then(|place| self.list.get_mut(place))
            && gap.from < old.to
            && old.from < gap.to
        {
            old.from = old.from.min(gap.from);
            old.to = old.to.max(gap.to);
            old.detail = gap.detail;
            return;
        }
        self.newest.insert(key, self.forgotten + self.list.len() as u64);
        self.list.push_back(gap);
        while self.list.len() > self.max {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some(gap) = self.list.pop_front() {
            let key = (gap.origin, gap.device, gap.source, gap.cause);
            if self.newest.get(&key) == Some(&self.forgotten) {
                self.newest.remove(&key);
            }
            self.forgotten += 1;
        }
    }

    /// All of them.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Gap> {
        self.list.iter()
    }

    /// How many are kept.
    pub(crate) fn count(&self) -> u64 {
        self.list.len() as u64
    }

    /// How many were forgotten because there were too many.
    pub(crate) const fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Whether any came since they were last written.
    pub(crate) const fn changed(&self) -> bool {
        self.changed
    }

    /// Takes note that they could not be written.
    pub(crate) const fn unwritten(&mut self) {
        self.changed = true;
    }

    /// Takes note that they are being written.
    pub(crate) const fn written(&mut self) {
        self.changed = false;
    }
}

/// Whether a gap touches an interval, bounds inclusive.
pub(crate) fn touches(gap: &Gap, from: Timestamp, to: Timestamp) -> bool {
    gap.from <= to && gap.to >= from
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gap(device: &str, from: i64, to: i64) -> Gap {
        Gap {
            origin: Origin::new("n1").unwrap(),
            device: DeviceId::new(device).unwrap(),
            source: "".into(),
            from: Timestamp(from),
            to: Timestamp(to),
            cause: Cause::AgentDown,
            detail: "".into(),
        }
    }

    fn spans(gaps: &Gaps) -> Vec<(i64, i64)> {
        gaps.all().map(|gap| (gap.from.0, gap.to.0)).collect()
    }

    #[test]
    fn overlapping_gaps_are_one_and_touching_ones_are_two() {
        let mut gaps = Gaps::new([], 0, 10);
        for (device, from, to) in [("a", 0, 10), ("a", 5, 20), ("a", 20, 30), ("b", 25, 40)] {
            gaps.add(gap(device, from, to));
        }
        // At 20 there is a sample: it parts the two.
        assert_eq!(spans(&gaps), [(0, 20), (20, 30), (25, 40)]);
        assert!(gaps.changed());
    }

    #[test]
    fn the_oldest_are_forgotten_and_counted() {
        let mut gaps = Gaps::new([gap("a", 0, 1), gap("b", 0, 1)], 0, 2);
        assert!(!gaps.changed());
        gaps.add(gap("c", 0, 1));
        assert_eq!((gaps.count(), gaps.forgotten()), (2, 1));
        gaps.add(gap("a", 0, 1));
        gaps.add(gap("a", 0, 5));
        assert_eq!(spans(&gaps), [(0, 1), (0, 5)]);
        assert_eq!(gaps.forgotten(), 2);
    }

    #[test]
    fn touching_an_interval() {
        let gap = gap("a", 10, 20);
        for (from, to, touched) in
            [(0, 9, false), (0, 10, true), (12, 13, true), (20, 30, true), (21, 30, false)]
        {
            assert_eq!(touches(&gap, Timestamp(from), Timestamp(to)), touched);
        }
    }
}
