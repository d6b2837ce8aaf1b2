//! The stored batch numbers of a boot, as spans: they reveal duplicates and missing batches.
//!
//! `sent_times`: when the batches were.

mod sent_times;

use model::Timestamp;
use serde::{Deserialize, Serialize};

pub(crate) use sent_times::SentTimes;

/// Stored batches of one boot with consecutive numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// The first of them.
    pub first: u64,
    /// The last of them.
    pub last: u64,
    /// The first instant of the first batch, by the sender's clock.
    #[serde(with = "crate::json::time")]
    pub from: Timestamp,
    /// The last instant of the last batch.
    #[serde(with = "crate::json::time")]
    pub to: Timestamp,
    /// Time of receipt of the first batch, by this machine's clock.
    #[serde(with = "crate::json::time")]
    pub opened: Timestamp,
    /// Time of receipt of the last batch.
    #[serde(with = "crate::json::time")]
    pub closed: Timestamp,
    /// None of its batches has samples: a time of receipt replaces their instants.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bare: bool,
}

/// A batch as the window sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchMark {
    /// Its number.
    pub(crate) seq: u64,
    /// Its first and last instant; `None` if it has no samples.
    pub(crate) instants: Option<(Timestamp, Timestamp)>,
    /// Time of receipt.
    pub(crate) received: Timestamp,
}

/// Missing numbers between two stored ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Missing {
    /// How many.
    pub(crate) batches: u64,
    /// The last of them.
    pub(crate) last: u64,
    /// The last instant before them.
    pub(crate) from: Timestamp,
    /// The first instant after them.
    pub(crate) to: Timestamp,
    /// Time of receipt of the batch before them.
    pub(crate) before: Timestamp,
    /// Time of receipt of the batch after them.
    pub(crate) after: Timestamp,
}

impl Missing {
    /// The first of them.
    const fn first(&self) -> u64 {
        self.last.saturating_sub(self.batches.saturating_sub(1))
    }

    /// Separates numbers that were acknowledged: their sender does not send them again, and nothing waits for them. They are
    /// missing at the times of their batches.
    pub(crate) fn parts(self, acknowledged: Option<&Acknowledged>, times: &SentTimes) -> Vec<Self> {
        let first = self.first();
        let of = acknowledged.filter(|one| (one.first..=one.last).contains(&first));
        let Some(one) = of else { return vec![self] };
        let after = Timestamp(i64::MIN);
        if self.last <= one.last {
            return times.apart(Self { after, ..self });
        }
        let (last, rest) = (one.last, self.last - one.last);
        let lost = Self { batches: self.batches - rest, last, to: one.to.plus(1), after, ..self };
        let mut parts = times.apart(lost);
        parts.push(Self { batches: rest, from: one.to, before: one.closed, ..self });
        parts
    }
}

/// The last acknowledged batch of a boot that the store does not have any more: its database was restored from a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Acknowledged {
    /// The first acknowledged number that the store does not have.
    first: u64,
    /// Its number.
    last: u64,
    /// The first instant of the boot.
    #[serde(with = "crate::json::time")]
    from: Timestamp,
    /// Its last instant.
    #[serde(with = "crate::json::time")]
    to: Timestamp,
    /// Its time of receipt.
    #[serde(with = "crate::json::time")]
    closed: Timestamp,
}

impl Acknowledged {
    /// The number.
    pub(crate) const fn last(&self) -> u64 {
        self.last
    }

    /// The same for a store that has all numbers before `first`.
    #[must_use]
    pub(crate) const fn since(self, first: u64) -> Self {
        Self { first, ..self }
    }

    /// The instant before the first sample of the boot.
    pub(crate) fn before(&self) -> Timestamp {
        self.from.plus(-1)
    }
}

/// The stored numbers of a boot, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Spans(Vec<Span>);

impl Spans {
    /// Spans in ascending order.
    pub(crate) const fn of(spans: Vec<Span>) -> Self {
        Self(spans)
    }

    /// All of them, in ascending order.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Span> {
        self.0.iter()
    }

    /// Whether a number is stored.
    pub(crate) fn contain(&self, seq: u64) -> bool {
        let next = self.0.partition_point(|span| span.last < seq);
        self.0.get(next).is_some_and(|span| span.first <= seq)
    }

    /// The highest stored number.
    pub(crate) fn last(&self) -> Option<&Span> {
        self.0.last()
    }

    /// The last instant of each span that has samples.
    pub(crate) fn ends(&self) -> impl Iterator<Item = Timestamp> {
        self.0.iter().filter(|span| !span.bare).map(|span| span.to)
    }

    /// The first and the last instant of all.
    pub(crate) fn instants(&self) -> Option<(Timestamp, Timestamp)> {
        let full = || self.0.iter().filter(|span| !span.bare);
        let from = full().map(|span| span.from).min();
        from.zip(full().map(|span| span.to).max())
    }

    /// Records a stored batch; a duplicate changes nothing.
    pub(crate) fn insert(&mut self, mark: BatchMark) {
        let BatchMark { seq, received, .. } = mark;
        let next = self.0.partition_point(|span| span.last < seq);
        if self.0.get(next).is_some_and(|span| span.first <= seq) {
            return;
        }
        // A batch without samples uses its neighbour's instants, or else the clock.
        let left = next.checked_sub(1).and_then(|left| self.0.get(left)).copied();
        let left = left.filter(|span| span.last.checked_add(1) == Some(seq));
        let right = self.0.get(next).copied().filter(|span| seq.checked_add(1) == Some(span.first));
        let (full_left, full_right) =
            (left.filter(|span| !span.bare), right.filter(|span| !span.bare));
        let (from, to) = mark.instants.unwrap_or(match (full_left, full_right) {
            (Some(span), _) => (span.to, span.to),
            (None, Some(span)) => (span.from, span.from),
            (None, None) => (received, received),
        });
        let bare = mark.instants.is_none() && full_left.is_none() && full_right.is_none();
        let from = full_left.map_or(from, |span| span.from);
        let to = full_right.map_or(to, |span| span.to);
        let (opened, closed) = (received, received);
        let mut new = Span { first: seq, last: seq, from, to, opened, closed, bare };
        if let Some(left) = left {
            new = Span { first: left.first, opened: left.opened, ..new };
        }
        if let Some(right) = right {
            new = Span { last: right.last, closed: right.closed, ..new };
        }
        let start = next - usize::from(left.is_some());
        self.0.splice(start..next + usize::from(right.is_some()), [new]);
    }

    /// The missing numbers between the stored ones, oldest first.
    pub(crate) fn missing(&self) -> impl Iterator<Item = Missing> {
        self.0.iter().zip(self.0.iter().skip(1)).map(|(left, right)| missing(left, right))
    }

    /// The missing numbers from `base` up to the first stored one. Their instants are unknown.
    pub(crate) fn missing_before(&self, base: u64) -> Option<Missing> {
        let first = self.0.first()?;
        let batches = first.first.checked_sub(base).filter(|batches| *batches > 0)?;
        let (at, before) = (first.from, Timestamp(i64::MIN));
        let last = first.first.saturating_sub(1);
        Some(Missing { batches, last, from: at, to: at, before, after: first.opened })
    }

    /// The last acknowledged batch, for a store that loses it.
    pub(crate) fn acknowledged(&self) -> Option<Acknowledged> {
        let (first, last) = (self.0.first()?, self.0.last()?);
        let Span { last, to, closed, .. } = *last;
        Some(Acknowledged { first: first.first, last, from: first.from, to, closed })
    }

    /// The acknowledged numbers after the last stored one. `base`: the first number that may be missing.
    pub(crate) fn missing_after(&self, acknowledged: &Acknowledged, base: u64) -> Option<Missing> {
        let Acknowledged { last, to, closed, .. } = *acknowledged;
        let stored = self.0.last();
        let next = stored.map_or(base, |span| span.last.saturating_add(1));
        let batches = last.checked_sub(next)?.saturating_add(1);
        let from = stored.map_or(acknowledged.before(), |span| span.to);
        let before = stored.map_or(closed, |span| span.closed);
        Some(Missing { batches, last, from, to: to.plus(1), before, after: closed })
    }

    /// Gives up the oldest missing numbers until at most `max` holes are left: they count as stored from now
    /// on. Returns them.
    pub(crate) fn give_up(&mut self, max: usize) -> Vec<Missing> {
        let surplus = self.0.len().saturating_sub(max.saturating_add(1));
        let given_up = self.missing().take(surplus).collect();
        if let (Some(first), Some(last)) = (self.0.first().copied(), self.0.get(surplus).copied()) {
            let Span { first, from, opened, .. } = first;
            self.0.splice(..=surplus, [Span { first, from, opened, ..last }]);
        }
        given_up
    }
}

const fn missing(left: &Span, right: &Span) -> Missing {
    let batches = right.first.saturating_sub(left.last).saturating_sub(1);
    let last = right.first.saturating_sub(1);
    let (before, after) = (left.closed, right.opened);
    Missing { batches, last, from: left.to, to: right.from, before, after }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn mark(seq: u64) -> BatchMark {
        let at = i64::try_from(seq).unwrap() * 10;
        let instants = Some((Timestamp(at), Timestamp(at + 9)));
        BatchMark { seq, instants, received: Timestamp(at + 1000) }
    }

    fn spans(seqs: &[u64]) -> Spans {
        let mut spans = Spans::default();
        seqs.iter().for_each(|seq| spans.insert(mark(*seq)));
        spans
    }

    #[test]
    fn missing_batches_are_a_gap_that_closes_on_arrival() {
        let mut spans = spans(&[0, 1, 4]);
        let (from, to) = (Timestamp(19), Timestamp(40));
        let (before, after) = (Timestamp(1010), Timestamp(1040));
        let missing_batches = Missing { batches: 2, last: 3, from, to, before, after };
        assert_eq!(spans.missing().collect::<Vec<_>>(), [missing_batches]);
        spans.insert(mark(3));
        assert_eq!(spans.missing().map(|m| m.batches).collect::<Vec<_>>(), [1]);
        spans.insert(mark(2));
        assert_eq!(spans.missing().count(), 0);
        assert_eq!(spans.0.len(), 1);
        assert_eq!((spans.0[0].from, spans.0[0].to), (Timestamp(0), Timestamp(49)));
    }

    #[test]
    fn a_batch_without_samples_has_its_neighbours_instants() {
        let mut spans = spans(&[0]);
        spans.insert(BatchMark { seq: 1, instants: None, received: Timestamp(5) });
        assert_eq!(spans.0[0].to, Timestamp(9));
        spans.insert(BatchMark { seq: 9, instants: None, received: Timestamp(5) });
        assert_eq!(spans.0[1].from, Timestamp(5));
        // A time of receipt is not a sample's instant; a real instant replaces it.
        assert_eq!(spans.ends().collect::<Vec<_>>(), [Timestamp(9)]);
        spans.insert(mark(8));
        assert_eq!((spans.0[1].from, spans.0[1].to), (Timestamp(80), Timestamp(89)));
        assert_eq!(spans.ends().count(), 2);
    }

    #[test]
    fn the_highest_numbers() {
        let mut top = Spans::default();
        top.insert(BatchMark { seq: u64::MAX, instants: None, received: Timestamp(0) });
        top.insert(BatchMark { seq: u64::MAX - 1, instants: None, received: Timestamp(0) });
        assert!(top.contain(u64::MAX) && !top.contain(0));
    }

    #[test]
    fn acknowledged_batches_that_a_restored_store_lacks_are_missing() {
        let acknowledged = spans(&[0, 1, 2, 3, 4]).acknowledged().unwrap();
        let mut restored = spans(&[0, 1]);
        let acknowledged = acknowledged.since(2);
        let missing = |spans: &Spans| {
            spans.missing_after(&acknowledged, 0).map(|m| (m.batches, m.from.0, m.to.0))
        };
        assert_eq!(missing(&restored), Some((3, 19, 50)));
        assert_eq!(missing(&Spans::default()), Some((5, -1, 50)));
        // The next batch of the sender closes the range.
        restored.insert(mark(5));
        assert_eq!(missing(&restored), None);
        assert_eq!(restored.missing().map(|m| m.batches).sum::<u64>(), 3);
        assert_eq!(missing(&spans(&[0, 1, 2, 3, 4])), None);
        // Those after the acknowledged ones may still arrive.
        let later = spans(&[0, 1, 8]).missing().next().unwrap();
        let parts = later.parts(Some(&acknowledged), &SentTimes::default());
        let parts: Vec<_> =
            parts.into_iter().map(|m| (m.batches, m.from.0, m.to.0, m.after.0)).collect();
        assert_eq!(parts, [(3, 19, 50, i64::MIN), (3, 49, 80, 1080)]);
    }

    #[test]
    fn the_oldest_missing_batches_are_given_up() {
        let mut spans = spans(&[0, 2, 4, 6]);
        assert_eq!(spans.give_up(3), []);
        let lost = spans.give_up(1);
        assert_eq!(lost.iter().map(|m| m.from.0).collect::<Vec<_>>(), [9, 29]);
        assert!(spans.contain(1) && spans.contain(3) && !spans.contain(5));
        assert_eq!(spans.missing().count(), 1);
        assert_eq!(spans.give_up(0).len(), 1);
        assert_eq!(spans.0.len(), 1);
    }

    proptest! {
        #[test]
        fn spans_are_a_set(seqs in proptest::collection::vec(0_u64..60, 0..80)) {
            let mut spans = Spans::default();
            let mut set = BTreeSet::new();
            for seq in seqs {
                prop_assert_eq!(spans.contain(seq), set.contains(&seq));
                spans.insert(mark(seq));
                set.insert(seq);
            }
            let missing_count: u64 = spans.missing().map(|m| m.batches).sum();
            let range = set.last().map_or(0, |last| last - set.first().unwrap() + 1);
            prop_assert_eq!(missing_count, range - set.len() as u64);
            prop_assert_eq!(spans.last().map(|s| s.last), set.last().copied());
            for pair in spans.0.windows(2) {
                prop_assert!(pair[0].last + 1 < pair[1].first);
            }
        }
    }
}
