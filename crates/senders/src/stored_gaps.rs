//! The gaps that senders reported and the store found: stored, bounded, merged where they overlap.
//!
//! Each origin has a quota, and the commands of `jobmeter run` together one part of all. If there are too
//! many gaps, the origin with the most of them loses its oldest one. So a sender that invents gaps displaces
//! its own only.

use crate::limits::Limits;
use crate::selection::NewGap;
use crate::share::RUNS_DIVISOR;
use model::{Cause, DeviceId, Gap, Origin, Timestamp};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Two overlapping gaps with the same key are merged.
type Key = (Origin, DeviceId, Box<str>, Cause);

/// Longest time between two samples that arrived too late and share a gap.
const LATE_JOIN_US: i64 = 3600 * Timestamp::SECOND;

/// Limits of stored gaps.
#[derive(Clone, Copy, Debug)]
pub struct GapLimits {
    /// Of all origins.
    pub(crate) all: usize,
    /// Of one origin.
    pub(crate) origin: usize,
    /// Of one command of `jobmeter run`.
    pub(crate) run: usize,
}

impl GapLimits {
    /// No limits.
    pub const NONE: Self = Self { all: usize::MAX, origin: usize::MAX, run: usize::MAX };

    /// The limits of gaps among those of senders.
    pub const fn of(limits: &Limits) -> Self {
        let (all, origin) = (limits.gaps_max, limits.gaps_per_origin_max);
        Self { all, origin, run: limits.gaps_per_run_max }
    }
}

impl Default for GapLimits {
    fn default() -> Self {
        Self::of(&Limits::default())
    }
}

/// Gaps in order of arrival.
#[derive(Clone, Debug, Default)]
pub struct Gaps {
    /// By number, counted since the first ever.
    list: BTreeMap<u64, PlacedGap>,
    next: u64,
    /// The number of the newest gap of each key.
    newest: HashMap<Key, u64>,
    agents: Group,
    runs: Group,
    /// Evicted gaps.
    forgotten: u64,
    limits: GapLimits,
    changed: bool,
    /// The place of the gaps that are added now.
    place: u64,
}

/// A gap, and the place of its newest report in the order of storing, for stores that have one.
#[derive(Clone, Debug)]
struct PlacedGap {
    gap: Gap,
    place: u64,
}

/// The gaps of agents and pollers, or those of the commands of `jobmeter run`.
#[derive(Clone, Debug, Default)]
struct Group {
    count: usize,
    numbers: HashMap<Origin, BTreeSet<u64>>,
    /// Number of gaps of an origin, and the number of its oldest one: the last entry is evicted first.
    sizes: BTreeSet<(usize, Reverse<u64>, Origin)>,
}

impl Group {
    fn add(&mut self, origin: &Origin, number: u64) {
        self.change(origin, |numbers| numbers.insert(number));
        self.count += 1;
    }

    fn remove(&mut self, origin: &Origin, number: u64) {
        self.change(origin, |numbers| numbers.remove(&number));
        self.count = self.count.saturating_sub(1);
    }

    fn change(&mut self, origin: &Origin, change: impl FnOnce(&mut BTreeSet<u64>) -> bool) {
        let size = |numbers: &BTreeSet<u64>| {
            let oldest = numbers.first()?;
            Some((numbers.len(), Reverse(*oldest), origin.clone()))
        };
        let numbers = self.numbers.entry(origin.clone()).or_default();
        if let Some(before) = size(numbers) {
            self.sizes.remove(&before);
        }
        change(numbers);
        match size(numbers) {
            Some(after) => {
                self.sizes.insert(after);
            }
            None => {
                self.numbers.remove(origin);
            }
        }
    }

    fn count_of(&self, origin: &Origin) -> usize {
        self.numbers.get(origin).map_or(0, BTreeSet::len)
    }

    fn oldest_of(&self, origin: &Origin) -> Option<u64> {
        self.numbers.get(origin)?.first().copied()
    }

    /// The oldest gap of the origin with the most gaps.
    fn oldest_of_largest(&self) -> Option<u64> {
        self.sizes.last().map(|(_, Reverse(oldest), _)| *oldest)
    }
}

impl Gaps {
    /// The place of gaps that the store itself found, until [`Self::place_own`].
    pub const OWN: u64 = u64::MAX;

    /// Stored gaps, within these limits.
    pub fn new(kept: impl IntoIterator<Item = Gap>, forgotten: u64, limits: GapLimits) -> Self {
        Self::with_places(kept.into_iter().map(|gap| (gap, 0)), forgotten, limits)
    }

    /// Stored gaps with their places, within these limits.
    pub fn with_places(
        kept: impl IntoIterator<Item = (Gap, u64)>,
        forgotten: u64,
        limits: GapLimits,
    ) -> Self {
        let mut gaps = Self { forgotten, limits, ..Self::default() };
        for (gap, place) in kept {
            gaps.place = place;
            gaps.add(gap);
        }
        (gaps.changed, gaps.place) = (false, Self::OWN);
        gaps
    }

    /// The next gaps are reported by the record at this place, or found by the store itself ([`Self::OWN`]).
    pub const fn set_place(&mut self, place: u64) {
        self.place = place;
    }

    /// Gives gaps that the store itself found this place.
    pub fn place_own(&mut self, place: u64) {
        let own = self.list.values_mut().filter(|one| one.place == Self::OWN);
        own.for_each(|one| one.place = place);
    }

    /// All gaps, each with its place.
    pub fn placed(&self) -> impl Iterator<Item = (&Gap, u64)> {
        self.list.values().map(|one| (&one.gap, one.place))
    }

    /// Adds a new gap.
    pub fn put(&mut self, new: NewGap) {
        match new.late {
            true => self.add_late(new.gap),
            false => self.add(new.gap),
        }
    }

    /// Adds a gap; it extends the newest one of its key if they overlap.
    pub fn add(&mut self, gap: Gap) {
        self.changed = true;
        let key = (gap.origin.clone(), gap.device.clone(), gap.source.clone(), gap.cause);
        let newest = self.newest.get(&key).copied();
        if let Some(PlacedGap { gap: old, place }) =
            newest.and_then(|number| self.list.get_mut(&number))
            && gap.from < old.to
            && old.from < gap.to
        {
            old.from = old.from.min(gap.from);
            old.to = old.to.max(gap.to);
            old.detail = gap.detail;
            *place = self.place;
            return;
        }
        let (number, origin) = (self.next, gap.origin.clone());
        self.next += 1;
        self.newest.insert(key, number);
        self.list.insert(number, PlacedGap { gap, place: self.place });
        let is_run = origin.as_run().is_some();
        let GapLimits { all, origin: of_origin, run } = self.limits;
        let (group, most, together) = match is_run {
            true => (&mut self.runs, run, all.div_ceil(RUNS_DIVISOR)),
            false => (&mut self.agents, of_origin, all),
        };
        group.add(&origin, number);
        if group.count_of(&origin) > most {
            let oldest = group.oldest_of(&origin);
            self.forget(oldest);
        } else if group.count > together {
            let oldest = group.oldest_of_largest();
            self.forget(oldest);
        }
        while self.list.len() > all {
            // Agents lose a gap to a run only if all runs together are within their part.
            let oldest = self.agents.oldest_of_largest().or(self.runs.oldest_of_largest());
            if !self.forget(oldest) {
                break;
            }
        }
    }

    /// Adds a gap of samples that arrived too late. Each of a late series arrives alone: the newest gap of its key grows.
    pub(crate) fn add_late(&mut self, mut gap: Gap) {
        let key = (gap.origin.clone(), gap.device.clone(), gap.source.clone(), gap.cause);
        if let Some(old) = self.newest.get(&key).and_then(|number| self.list.get(number)) {
            let old = &old.gap;
            if (0..=LATE_JOIN_US).contains(&gap.from.since(old.to)) {
                gap.from = old.to.plus(-1);
            } else if (0..=LATE_JOIN_US).contains(&old.from.since(gap.to)) {
                gap.to = old.from.plus(1);
            }
        }
        self.add(gap);
    }

    /// Evicts a gap; returns whether it existed.
    fn forget(&mut self, number: Option<u64>) -> bool {
        let removed = number.and_then(|number| self.list.remove_entry(&number));
        let Some((number, PlacedGap { gap, .. })) = removed else { return false };
        let group = if gap.origin.as_run().is_some() { &mut self.runs } else { &mut self.agents };
        group.remove(&gap.origin, number);
        let key = (gap.origin, gap.device, gap.source, gap.cause);
        if self.newest.get(&key) == Some(&number) {
            self.newest.remove(&key);
        }
        self.forgotten += 1;
        true
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &Gap> {
        self.list.values().map(|one| &one.gap)
    }

    /// Number of stored gaps.
    pub fn count(&self) -> u64 {
        self.list.len() as u64
    }

    /// Number of evicted gaps.
    pub const fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Whether any arrived since the last write.
    pub const fn changed(&self) -> bool {
        self.changed
    }

    /// Records that they could not be written.
    pub const fn unwritten(&mut self) {
        self.changed = true;
    }

    /// Records that they are being written.
    pub const fn written(&mut self) {
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

    fn limits(all: usize) -> GapLimits {
        GapLimits { all, ..GapLimits::default() }
    }

    fn of(origin: &str, at: i64) -> Gap {
        Gap { origin: Origin::new(origin).unwrap(), ..gap("n1", at, at + 1) }
    }

    fn count_of(gaps: &Gaps, origin: &str) -> usize {
        gaps.all().filter(|gap| gap.origin.as_str() == origin).count()
    }

    #[test]
    fn samples_that_arrive_too_late_are_one_gap_that_grows() {
        let mut gaps = Gaps::new([], 0, GapLimits::default());
        let late = |second: i64| {
            let at = second * Timestamp::SECOND;
            Gap { cause: Cause::SeriesRejected, ..gap("n1", at - 1, at + 1) }
        };
        // Forwards, an earlier one, and the same again.
        for second in [5000, 5005, 5010, 4990, 5005] {
            gaps.add_late(late(second));
        }
        let spans = |gaps: &Gaps| -> Vec<(i64, i64)> {
            gaps.all().map(|gap| (gap.from.0, gap.to.0)).collect()
        };
        let span = |from: i64, to: i64| (from * Timestamp::SECOND - 1, to * Timestamp::SECOND + 1);
        assert_eq!(spans(&gaps), [span(4990, 5010)]);
        gaps.add_late(Gap { device: DeviceId::new("n2").unwrap(), ..late(5015) });
        gaps.add_late(late(5010 + 3601));
        assert_eq!(spans(&gaps), [span(4990, 5010), span(5015, 5015), span(8611, 8611)]);
    }

    /// 220 batches of 1024 invented gaps, as one user or one node would send them.
    #[test]
    fn a_flood_of_gaps_displaces_its_senders_own_only() {
        let limits = GapLimits { all: 1000, origin: 400, run: 20 };
        let mut gaps = Gaps::new([of("n1", 0), of("n2", 0), of("n9/run-8", 0)], 0, limits);
        for flood in 0..220 * 1024 {
            gaps.add(of("n3", 2 * flood));
            gaps.add(of("n1/run-7", 2 * flood));
        }
        let counts = ["n1", "n2", "n3", "n9/run-8", "n1/run-7"].map(|one| count_of(&gaps, one));
        assert_eq!(counts, [1, 1, 400, 1, 20]);
        // Many runs share a quarter, many nodes the rest: the smallest senders lose nothing.
        for flood in 0..100 {
            for sender in 100..130 {
                gaps.add(of(&format!("n{sender}"), 2 * flood));
                gaps.add(of(&format!("n1/run-{sender}"), 2 * flood));
            }
        }
        assert_eq!(["n1", "n2", "n9/run-8"].map(|one| count_of(&gaps, one)), [1; 3]);
        assert_eq!((gaps.count(), gaps.runs.count), (1000, 250));
        let all = gaps.count() + gaps.forgotten();
        assert_eq!(all, 3 + 2 * 220 * 1024 + 2 * 100 * 30, "evicted gaps are counted");
    }

    fn spans(gaps: &Gaps) -> Vec<(i64, i64)> {
        gaps.all().map(|gap| (gap.from.0, gap.to.0)).collect()
    }

    #[test]
    fn overlapping_gaps_are_one_and_touching_ones_are_two() {
        let mut gaps = Gaps::new([], 0, limits(10));
        for (device, from, to) in [("a", 0, 10), ("a", 5, 20), ("a", 20, 30), ("b", 25, 40)] {
            gaps.add(gap(device, from, to));
        }
        // A sample at 20 separates the two.
        assert_eq!(spans(&gaps), [(0, 20), (20, 30), (25, 40)]);
        assert!(gaps.changed());
    }

    #[test]
    fn the_oldest_are_evicted_and_counted() {
        let mut gaps = Gaps::new([gap("a", 0, 1), gap("b", 0, 1)], 0, limits(2));
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
