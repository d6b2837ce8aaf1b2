//! Hardware counters that start at any value and wrap at their range.

use model::Timestamp;

/// Growth of such a counter since the first reading, or since it could last be followed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wrapping {
    last: u64,
    at: Timestamp,
    total: u64,
    start: Timestamp,
    /// Start of the time in which it could not be followed, until it is reported.
    lost: Option<Timestamp>,
}

impl Wrapping {
    /// A counter at its first reading.
    pub(crate) const fn new(now: Timestamp, value: u64) -> Self {
        Self { last: value, at: now, total: 0, start: now, lost: None }
    }

    /// Adds a reading of a counter that wraps after `range` steps and grows by at most `rate_max`
    /// steps per second. Returns its total and start.
    ///
    /// Counting restarts now if the counter may have wrapped more than once since the last reading (the
    /// machine slept, the agent was stopped), or if it grew faster than possible (it was reset).
    pub(crate) fn add(
        &mut self,
        now: Timestamp,
        value: u64,
        range: u64,
        rate_max: u64,
    ) -> (u64, Timestamp) {
        let seconds = now.since(self.at).max(0) as f64 / Timestamp::SECOND as f64;
        // Lateness of a tick: the time between two readings can exceed the difference of their
        // timestamps.
        const LATE_SECONDS: f64 = 1.0;
        let possible = (seconds + LATE_SECONDS) * rate_max as f64;
        let grown = match value.checked_sub(self.last) {
            Some(grown) => grown,
            None => range.saturating_sub(self.last).saturating_add(value),
        };
        if grown as f64 > possible || possible >= range as f64 {
            *self = Self { lost: self.lost.or(Some(self.at)), ..Self::new(now, value) };
        } else {
            self.total = self.total.saturating_add(grown);
            (self.last, self.at) = (value, now);
        }
        (self.total, self.start)
    }

    /// Start of the time in which the counter could not be followed, if it was not reported before.
    pub(crate) fn lost(&mut self) -> Option<Timestamp> {
        self.lost.take()
    }
}

/// Total growth of counters that come and go one by one, such as those of processors, since the first
/// reading. Their plain sum would fall when one disappears, and look like a reset.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sum {
    total: u64,
    start: Option<Timestamp>,
}

impl Sum {
    /// Adds the growth of one counter since `last`, its own last reading. If the value fell, the counter
    /// wrapped after `range` steps, or was reset if it has no range.
    pub(crate) fn add(&mut self, last: &mut Option<u64>, value: u64, range: Option<u64>) {
        let Some(last) = last.replace(value) else { return };
        let grown = match (value.checked_sub(last), range) {
            (Some(grown), _) => grown,
            (None, Some(range)) => range.saturating_sub(last).saturating_add(value),
            (None, None) => value,
        };
        self.total = self.total.saturating_add(grown);
    }

    /// The total, and its start.
    pub(crate) fn total(&mut self, now: Timestamp) -> (u64, Timestamp) {
        (self.total, *self.start.get_or_insert(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(second: i64) -> Timestamp {
        Timestamp(second * Timestamp::SECOND)
    }

    #[test]
    fn a_counter_that_wraps_continues() {
        let mut counter = Wrapping::new(at(0), 990);
        assert_eq!(counter.add(at(1), 5, 1000, 100), (15, at(0)));
        assert_eq!(counter.add(at(2), 5, 1000, 100), (15, at(0)));
        assert_eq!(counter.add(at(5), 205, 1000, 100), (215, at(0)));
    }

    #[test]
    fn counting_restarts_where_a_counter_cannot_be_followed() {
        // The machine slept for longer than one wrap takes.
        let mut counter = Wrapping::new(at(0), 0);
        assert_eq!(counter.add(at(20), 300, 1000, 100), (0, at(20)));
        assert_eq!(counter.add(at(21), 350, 1000, 100), (50, at(20)));
        assert_eq!((counter.lost(), counter.lost()), (Some(at(0)), None));
        // A reset: the growth would be nearly a whole wrap in a second.
        assert_eq!(counter.add(at(22), 340, 1000, 100), (0, at(22)));
        assert_eq!(counter.add(at(23), 360, 1000, 100), (20, at(22)));
    }

    #[test]
    fn a_sum_continues_when_one_of_its_counters_disappears() {
        let (mut sum, mut a, mut b) = (Sum::default(), None, None);
        sum.add(&mut a, 1000, Some(1 << 32));
        sum.add(&mut b, (1 << 32) - 10, Some(1 << 32));
        assert_eq!(sum.total(at(1)), (0, at(1)));
        sum.add(&mut a, 1005, Some(1 << 32));
        sum.add(&mut b, 20, Some(1 << 32));
        assert_eq!(sum.total(at(2)), (35, at(1)));
        // The first counter is absent for a while, then present again.
        sum.add(&mut b, 30, None);
        assert_eq!(sum.total(at(3)), (45, at(1)));
        sum.add(&mut a, 7, None);
        assert_eq!(sum.total(at(4)), (52, at(1)));
    }

    proptest! {
                /// Every step within the bounds is counted exactly.
        #[test]
        fn every_step_is_counted(first in 0_u64..1000, steps in prop::collection::vec(0_u64..=100, 1..50)) {
            let mut counter = Wrapping::new(at(0), first);
            let (mut value, mut sum) = (first, 0);
            for (second, step) in (1..).zip(steps) {
                value = (value + step) % 1000;
                sum += step;
                prop_assert_eq!(counter.add(at(second), value, 1000, 100), (sum, at(0)));
            }
        }
    }
}
