//! Instants at which periodic work is due: multiples of its period since 1970. Ticks of different nodes and sources
//! therefore coincide.

use model::Timestamp;
use std::time::Duration;

/// Instants at which periodic work is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Schedule {
    period_us: i64,
    due: Timestamp,
}

/// A due instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    /// The latest due instant. The agent does not make up for earlier ones.
    pub(crate) at: Timestamp,
    /// Number of earlier instants that were missed.
    pub(crate) missed: u64,
}

impl Schedule {
    /// Creates a schedule. The first instant is the next multiple of the period, or `now` if it is one.
    pub(crate) fn new(period: Duration, now: Timestamp) -> Self {
        let period_us = i64::try_from(period.as_micros()).unwrap_or(i64::MAX).max(1);
        let mut schedule = Self { period_us, due: now };
        schedule.align(now);
        schedule
    }

    /// The period.
    pub(crate) const fn period_us(self) -> i64 {
        self.period_us
    }

    /// The next instant.
    pub(crate) const fn due(self) -> Timestamp {
        self.due
    }

    /// Takes the latest due instant, if there is one.
    pub(crate) fn take(&mut self, now: Timestamp) -> Option<Due> {
        let late = now.since(self.due);
        if late < 0 {
            return None;
        }
        let missed = late / self.period_us;
        let at = self.due.plus(missed * self.period_us);
        // After a forced instant, the next one is a multiple of the period again.
        let next = at.plus(self.period_us);
        self.due = next.plus(-next.0.rem_euclid(self.period_us));
        Some(Due { at, missed: missed.unsigned_abs() })
    }

    /// Restarts from `now` after the clock was set. No instant counts as missed.
    pub(crate) fn align(&mut self, now: Timestamp) {
        let over = now.0.rem_euclid(self.period_us);
        self.due = if over == 0 { now } else { now.plus(self.period_us - over) };
    }

    /// Changes the period. An instant that is already due stays due, and no instant occurs twice.
    pub(crate) fn change(&mut self, period: Duration, now: Timestamp) {
        let taken = self.due.plus(-self.period_us);
        let (due, is_due) = (self.due, self.due <= now);
        *self = Self::new(period, if taken >= now { taken.plus(1) } else { now });
        if is_due {
            self.due = due;
        }
    }

    /// Makes an extra instant due at `now`.
    pub(crate) fn force(&mut self, now: Timestamp) {
        self.due = now;
    }
}

/// Timestamp of a reading's samples. It is the scheduled instant, or `now` if the reading begins later than a tenth
/// of the period.
pub(crate) const fn stamp(scheduled: Timestamp, period_us: i64, now: Timestamp) -> Timestamp {
    let late = now.since(scheduled);
    if late > period_us / 10 { now } else { scheduled }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(millis: i64) -> Timestamp {
        Timestamp(millis * 1000)
    }

    #[test]
    fn multiples_of_the_period() {
        let mut schedule = Schedule::new(5 * SECOND, at(12_300));
        assert_eq!(schedule.due(), at(15_000));
        assert_eq!(schedule.take(at(14_999)), None);
        assert_eq!(schedule.take(at(15_001)), Some(Due { at: at(15_000), missed: 0 }));
        assert_eq!(schedule.take(at(15_002)), None);
        assert_eq!(Schedule::new(SECOND, at(3000)).due(), at(3000));
    }

    #[test]
    fn what_was_missed_is_counted_and_not_caught_up_with() {
        let mut schedule = Schedule::new(SECOND, at(0));
        assert_eq!(schedule.take(at(3_400)), Some(Due { at: at(3_000), missed: 3 }));
        assert_eq!(schedule.take(at(3_400)), None);
        assert_eq!(schedule.due(), at(4_000));
    }

    #[test]
    fn what_comes_out_of_its_turn_does_not_move_the_others() {
        let mut schedule = Schedule::new(5 * SECOND, at(1));
        schedule.force(at(1_300));
        assert_eq!(schedule.take(at(1_301)), Some(Due { at: at(1_300), missed: 0 }));
        assert_eq!(schedule.due(), at(5_000));
    }

    #[test]
    fn another_period_loses_no_instant_and_repeats_none() {
        let mut schedule = Schedule::new(60 * SECOND, at(1));
        assert_eq!(schedule.due(), at(60_000));
        schedule.change(5 * SECOND, at(31_000));
        assert_eq!(schedule.due(), at(35_000));
        // A due instant that was not taken stays due, even if it is no multiple of the new period.
        schedule.change(60 * SECOND, at(35_001));
        assert_eq!(schedule.take(at(35_002)), Some(Due { at: at(35_000), missed: 0 }));
        schedule.force(at(120_000));
        assert_eq!(schedule.take(at(120_000)), Some(Due { at: at(120_000), missed: 0 }));
        schedule.change(5 * SECOND, at(120_000));
        assert_eq!(schedule.due(), at(125_000));
    }

    #[test]
    fn a_late_reading_carries_its_real_time() {
        assert_eq!(stamp(at(5_000), 1_000_000, at(5_100)), at(5_000));
        assert_eq!(stamp(at(5_000), 1_000_000, at(5_101)), at(5_101));
    }

    proptest! {
        #[test]
        fn instants_grow_and_every_one_is_taken_or_missed(
            period in 1_u64..10_000,
            steps in proptest::collection::vec(0_i64..50_000, 1..50),
        ) {
            let mut schedule = Schedule::new(Duration::from_micros(period), Timestamp(7));
            let first = schedule.due();
            let (mut now, mut reported, mut last) = (7, 0, None);
            for step in steps {
                now += step;
                if let Some(due) = schedule.take(Timestamp(now)) {
                    prop_assert!(last < Some(due.at) && due.at.0 <= now);
                    prop_assert_eq!(due.at.0 % i64::try_from(period).unwrap(), 0);
                    reported += due.missed + 1;
                    last = Some(due.at);
                }
            }
            let all = last.map_or(0, |last| last.since(first) / i64::try_from(period).unwrap() + 1);
            prop_assert_eq!(i64::try_from(reported).unwrap(), all);
        }
    }
}
