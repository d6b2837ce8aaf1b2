//! The times of a boot's acknowledged batches, by number: what a restored database lacks becomes gaps at these times. Rows of
//! scripts may have earlier times than the rows before them.

use crate::dedup_window::Missing;
use model::Timestamp;
use serde::{Deserialize, Serialize};

/// Runs of a boot. With more of them, the two with the least time between them become one.
const RUNS_MAX: usize = 16;
/// A batch that begins so much before the end of the one before it begins a run.
const BACK_US: i64 = 60 * Timestamp::SECOND;

/// Batches with consecutive numbers, and their times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "RunRow", into = "RunRow")]
struct Run {
    first: u64,
    last: u64,
    /// The first and the last instant of all.
    from: Timestamp,
    to: Timestamp,
    /// At least so far each batch may begin before the end of one with a lower number, in microseconds. 0: none does.
    back_us: i64,
}

/// A run in its text form, which each commit of its sender writes: the fields in their order.
type RunRow = (u64, u64, i64, i64, i64);

impl From<RunRow> for Run {
    fn from((first, last, from, to, back_us): RunRow) -> Self {
        Self { first, last, from: Timestamp(from), to: Timestamp(to), back_us }
    }
}

impl From<Run> for RunRow {
    fn from(run: Run) -> Self {
        (run.first, run.last, run.from.0, run.to.0, run.back_us)
    }
}

impl Run {
    /// Time between the end of a run and the begin of the next one; negative if that one begins earlier.
    const fn until(&self, next: &Self) -> i64 {
        next.from.since(self.to)
    }

    /// Both runs as one.
    fn joined(&self, next: &Self) -> Self {
        // An instant that both have lies within what may be missing.
        let back_us = if self.until(next) > 0 { 0 } else { self.to.since(next.from.plus(-1)) };
        Self {
            first: self.first.min(next.first),
            last: self.last.max(next.last),
            from: self.from.min(next.from),
            to: self.to.max(next.to),
            back_us: back_us.max(self.back_us).max(next.back_us),
        }
    }
}

/// The runs of a boot, in the order of their numbers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct SentTimes(Vec<Run>);

impl SentTimes {
    /// Whether there are none, for the text form.
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Records the first and the last instant of a batch. A batch that begins more than `ahead_us` after the one before it begins
    /// a run.
    pub(crate) fn insert(&mut self, seq: u64, (from, to): (Timestamp, Timestamp), ahead_us: i64) {
        let new = Run { first: seq, last: seq, from, to, back_us: 0 };
        let place = self.0.partition_point(|run| run.last < seq);
        if let Some(run) = self.0.get_mut(place).filter(|run| run.first <= seq) {
            // Its number was missing where two runs became one.
            let joined = run.joined(&new);
            *run = Run { back_us: joined.to.since(joined.from.plus(-1)), ..joined };
            return;
        }
        self.0.insert(place, new);
        let is_near = |one: &Run, next: &Run| {
            one.last.checked_add(1) == Some(next.first)
                && (-BACK_US..=ahead_us).contains(&one.until(next))
        };
        for place in [Some(place), place.checked_sub(1)].into_iter().flatten() {
            if self.pair(place).is_some_and(|(one, next)| is_near(one, next)) {
                self.join(place);
            }
        }
        while self.0.len() > RUNS_MAX {
            let pairs = (0..self.0.len()).filter_map(|place| Some((place, self.pair(place)?)));
            let nearest = pairs.min_by_key(|(_, (one, next))| one.until(next).saturating_abs());
            let Some((place, _)) = nearest else { break };
            self.join(place);
        }
    }

    fn pair(&self, place: usize) -> Option<(&Run, &Run)> {
        self.0.get(place).zip(self.0.get(place.saturating_add(1)))
    }

    fn join(&mut self, place: usize) {
        if let Some(joined) = self.pair(place).map(|(one, next)| one.joined(next)) {
            self.0.splice(place..=place.saturating_add(1), [joined]);
        }
    }

    /// Acknowledged numbers that are missing, with the times of their batches. Numbers without samples count with those
    /// after them.
    pub(crate) fn apart(&self, lost: Missing) -> Vec<Missing> {
        let first = lost.first();
        let is_lost = |run: &&Run| run.last >= first && run.first <= lost.last;
        let mut parts: Vec<Missing> = Vec::new();
        for run in self.0.iter().filter(is_lost) {
            let before = parts.last().map_or(first, |part| part.last.saturating_add(1));
            let last = run.last.min(lost.last);
            let (mut from, mut to) = (run.from.plus(-1), run.to.plus(1));
            if run.first < first {
                from = from.max(lost.from.plus(run.back_us.saturating_neg()));
            }
            if run.last > lost.last {
                to = to.min(lost.to.plus(run.back_us));
            }
            let batches = last.saturating_sub(before).saturating_add(1);
            parts.push(Missing { batches, last, from, to, ..lost });
        }
        match parts.last_mut() {
            Some(part) => {
                part.batches = part.batches.saturating_add(lost.last.saturating_sub(part.last));
                part.last = lost.last;
            }
            None => parts.push(lost),
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp(seconds * Timestamp::SECOND)
    }

    fn times(batches: &[(u64, i64, i64)], ahead_us: i64) -> SentTimes {
        let mut times = SentTimes::default();
        batches
            .iter()
            .for_each(|(seq, from, to)| times.insert(*seq, (at(*from), at(*to)), ahead_us));
        times
    }

    /// Lost numbers between two stored batches.
    fn lost((first, last): (u64, u64), (from, to): (i64, i64)) -> Missing {
        let (before, after) = (at(0), at(0));
        Missing { batches: last - first + 1, last, from: at(from), to: at(to), before, after }
    }

    #[test]
    fn batches_that_go_forward_are_one_run_and_steps_begin_others() {
        let batches = [(0, 0, 9), (1, 10, 500), (2, 5000, 5009), (3, 100, 109), (4, 5010, 5019)];
        let firsts = |ahead_us| {
            let runs = times(&batches, ahead_us).0;
            runs.iter().map(|run| run.first).collect::<Vec<_>>()
        };
        assert_eq!((firsts(i64::MAX), firsts(BACK_US)), (vec![0, 3], vec![0, 2, 3, 4]));
        // One that is a little earlier belongs to its run, and is no more than that before the stored ones.
        let times = times(&[(0, 0, 78), (1, 72, 81)], BACK_US);
        let [part] = times.apart(lost((1, 1), (78, 0)))[..] else { unreachable!() };
        assert_eq!((part.from, part.to), (at(72).plus(-1), at(81).plus(1)));
    }

    #[test]
    fn the_text_form_is_short() {
        let times = times(&[(0, 0, 1), (1, 2, 3)], 0);
        assert_eq!(
            serde_json::to_string(&times).unwrap(),
            "[[0,0,0,1000000,0],[1,1,2000000,3000000,0]]"
        );
    }

    proptest! {
        #[test]
        fn every_lost_batch_lies_in_a_gap_and_is_counted_once(
            batches in proptest::collection::vec((0_i64..2000, 0_i64..100), 1..60),
            order in proptest::collection::vec(0_usize..60, 60),
            cut in 0_usize..60,
            followed in 0_usize..5,
            ahead_us in prop_oneof![Just(BACK_US), Just(i64::MAX)],
        ) {
            let span = |seq: usize| batches.get(seq).map(|(from, length)| (*from, from + length));
            let mut seqs: Vec<usize> = (0..batches.len()).collect();
            seqs.sort_by_key(|seq| (order[*seq] / 20, *seq));
            let all: Vec<_> = seqs
                .into_iter()
                .filter_map(|seq| Some((u64::try_from(seq).ok()?, span(seq)?.0, span(seq)?.1)))
                .collect();
            let times = times(&all, ahead_us);
            prop_assert!(times.0.len() <= RUNS_MAX);
            let (cut, end) = (cut.min(batches.len() - 1), batches.len() - 1);
            let last = end.saturating_sub(followed).max(cut);
            let from = cut.checked_sub(1).and_then(span).map_or(-1, |(_, to)| to);
            let to = span(last + 1).map_or_else(|| span(last).unwrap().1 + 1, |(from, _)| from);
            let numbers = (u64::try_from(cut).unwrap(), u64::try_from(last).unwrap());
            let parts = times.apart(lost(numbers, (from, to)));
            for (from, to) in (cut..=last).filter_map(span) {
                let has = |part: &Missing| part.from < at(from) && at(to) < part.to;
                prop_assert!(parts.iter().any(has), "{from} {to} {parts:?}");
            }
            let counted: u64 = parts.iter().map(|part| part.batches).sum();
            prop_assert_eq!((counted, parts.last().unwrap().last), (numbers.1 - numbers.0 + 1, numbers.1));
        }
    }
}
