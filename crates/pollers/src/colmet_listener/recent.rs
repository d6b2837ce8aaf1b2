//! Recent instants of a sender: which record is a repetition, and in which period messages come.

use model::Timestamp;
use std::collections::VecDeque;

/// Instants that are remembered.
const INSTANTS_MAX: usize = 16;
/// Intervals that the period is computed from.
const INTERVALS_MAX: usize = 8;

/// How a record follows those before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// It is later than all.
    Next,
    /// One of the same instant was stored.
    Again,
    /// It is earlier than another one: messages overtook each other, or the sender's clock was set back.
    Late,
}

/// The instants of records with one host, backend and job.
#[derive(Clone, Debug, Default)]
pub(super) struct RecentInstants {
    latest: Option<Timestamp>,
    /// In the order of arrival.
    instants: VecDeque<Timestamp>,
}

impl RecentInstants {
    /// Adds the instant of a record.
    pub(super) fn add(&mut self, at: Timestamp) -> Order {
        if self.instants.contains(&at) {
            return Order::Again;
        }
        if self.instants.len() >= INSTANTS_MAX {
            self.instants.pop_front();
        }
        self.instants.push_back(at);
        if self.latest.is_some_and(|latest| at <= latest) {
            return Order::Late;
        }
        self.latest = Some(at);
        Order::Next
    }

    /// The latest one.
    pub(super) const fn latest(&self) -> Option<Timestamp> {
        self.latest
    }
}

/// The usual interval between messages: the median of the latest ones, so that neither a lost message nor one out of turn
/// changes it.
#[derive(Clone, Debug, Default)]
pub(super) struct Period {
    intervals: VecDeque<i64>,
}

impl Period {
    /// A period that an earlier start found; 0 for none.
    pub(super) fn of(micros: i64) -> Self {
        Self { intervals: (micros > 0).then_some(micros).into_iter().collect() }
    }

    /// Adds an interval in microseconds.
    pub(super) fn add(&mut self, interval: i64) {
        if self.intervals.len() >= INTERVALS_MAX {
            self.intervals.pop_front();
        }
        self.intervals.push_back(interval);
    }

    /// The period in microseconds; `None` before two messages.
    pub(super) fn micros(&self) -> Option<i64> {
        let mut sorted: Vec<i64> = self.intervals.iter().copied().collect();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_next_again_or_late() {
        let mut recent = RecentInstants::default();
        let orders = [10, 20, 20, 15, 15, 10, 30].map(|at| recent.add(Timestamp(at)));
        use Order::{Again, Late, Next};
        assert_eq!(orders, [Next, Next, Again, Late, Again, Again, Next]);
        for at in 0..1000 {
            recent.add(Timestamp(1000 + at));
        }
        assert_eq!((recent.instants.len(), recent.latest()), (INSTANTS_MAX, Some(Timestamp(1999))));
    }

    #[test]
    fn a_lost_message_does_not_change_the_period() {
        let mut period = Period::default();
        assert_eq!(period.micros(), None);
        for interval in [5, 5, 100, 5, 5] {
            period.add(interval);
        }
        assert_eq!(period.micros(), Some(5));
        (0..INTERVALS_MAX).for_each(|_| period.add(60));
        assert_eq!((period.micros(), period.intervals.len()), (Some(60), INTERVALS_MAX));
        assert_eq!((Period::of(7).micros(), Period::of(0).micros()), (Some(7), None));
    }
}
