//! Growth of counters: the only place that handles resets.

use crate::{SEGMENT_MAX_US, Timestamp};

/// A value of a counter, with the time at which it was zero, if known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Time of the reading.
    pub at: Timestamp,
    /// The count since `start`.
    pub value: f64,
    /// Start of the count.
    pub start: Option<Timestamp>,
}

impl Point {
    /// The counter's start as a reading of 0 before this first reading, for windows of time.
    ///
    /// `None`: the start is unknown, or too long ago. Then most of the count is older than the observation of the
    /// counter, such as that of a node since its boot before an agent was installed, and belongs to no window.
    pub fn zero(&self) -> Option<Self> {
        let start = self.start.filter(|start| *start < self.at)?;
        let is_observed = self.at.since(start) <= SEGMENT_MAX_US;
        is_observed.then_some(Self { at: start, value: 0.0, start: Some(start) })
    }
}

/// Growth of a counter between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Increase {
    /// The growth; never negative. Counts between the first reading and a reset are unknown and not estimated.
    pub amount: f64,
    /// Whether the counter was reset between them.
    pub reset: bool,
}

/// Growth of a counter from one reading to the next.
///
/// The counter was reset if its start moved past the earlier reading, or if its value fell, independent of
/// the starts. Then the growth is the count since the reset. A start that moves without passing the earlier
/// reading (clocks are adjusted, boot times vary by 1 s) is not a reset. A value that is not finite gives
/// no growth.
pub fn increase(previous: Point, current: Point) -> Increase {
    let restarted =
        current.start.is_some_and(|start| start > previous.at) && current.start != previous.start;
    let reset = restarted || current.value < previous.value;
    let amount = if reset { current.value } else { current.value - previous.value };
    if amount.is_finite() {
        Increase { amount: amount.max(0.0), reset }
    } else {
        Increase::default()
    }
}

/// Growth over a sequence of readings in time order, after the reading `before`.
///
/// Without `before`, the first reading counts from its start if the start is not before `from`, else not at
/// all. So the sum is the same over any partition of time.
pub fn increases(
    before: Option<Point>,
    from: Timestamp,
    points: impl IntoIterator<Item = Point>,
) -> f64 {
    let mut previous = before;
    let mut sum = 0.0;
    for point in points {
        sum += match previous {
            Some(previous) => increase(previous, point).amount,
            None if point.start.is_some_and(|start| start >= from) => {
                increase(Point { value: 0.0, ..point }, point).amount
            }
            None => 0.0,
        };
        previous = Some(point);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn point(at: i64, value: f64, start: i64) -> Point {
        Point { at: Timestamp(at), value, start: Some(Timestamp(start)) }
    }

    #[test]
    fn growth_and_resets() {
        assert_eq!(
            increase(point(1, 5.0, 0), point(2, 8.0, 0)),
            Increase { amount: 3.0, reset: false }
        );
        assert_eq!(
            increase(point(1, 5.0, 0), point(3, 8.0, 2)),
            Increase { amount: 8.0, reset: true }
        );
        assert_eq!(
            increase(point(1, 5.0, 0), point(2, 1.0, 0)),
            Increase { amount: 1.0, reset: true }
        );
        assert_eq!(
            increase(point(5, 5.0, 0), point(6, 8.0, 1)).amount,
            3.0,
            "a boot time that varies"
        );
        let none = |value| Point { at: Timestamp(1), value, start: None };
        assert_eq!(increase(none(5.0), none(2.0)), Increase { amount: 2.0, reset: true });
        assert_eq!(increase(none(5.0), none(f64::NAN)).amount, 0.0);
    }

    #[test]
    fn the_first_reading_counts_from_its_start() {
        assert_eq!(increases(None, Timestamp(0), [point(5, 2.0, 1), point(6, 3.0, 1)]), 3.0);
        assert_eq!(increases(None, Timestamp(3), [point(5, 2.0, 1), point(6, 3.0, 1)]), 1.0);
    }

    #[test]
    fn a_start_long_before_the_first_reading_is_no_reading() {
        let at = |seconds: i64| seconds * Timestamp::SECOND;
        let zero = point(at(0), 0.0, at(0));
        assert_eq!(point(at(600), 2.0, at(0)).zero(), Some(zero));
        assert_eq!(point(at(601), 2.0, at(0)).zero(), None, "since the boot of a node");
        assert_eq!(point(at(5), 2.0, at(5)).zero(), None, "no time");
        assert_eq!(Point { start: None, ..zero }.zero(), None);
    }

    proptest! {
        /// Σ increase over (a, c] = Σ over (a, b] + Σ over (b, c], resets included.
        #[test]
        fn any_partition_sums_to_the_same(
            steps in proptest::collection::vec((0_u32..1000, proptest::bool::weighted(0.1)), 1..40),
            cut in 0_usize..40,
        ) {
            let (mut value, mut start) = (0.0, 0);
            let points: Vec<Point> = (1_i64..).zip(&steps).map(|(at, (step, reset))| {
                if *reset { (value, start) = (0.0, at * 10 - 5); }
                value += f64::from(*step);
                point(at * 10, value, start)
            }).collect();
            let whole = increases(None, Timestamp(0), points.iter().copied());
            let (first, second) = points.split_at(cut.min(points.len()));
            let from = first.last().map_or(Timestamp(0), |p| p.at);
            let parts = increases(None, Timestamp(0), first.iter().copied())
                + increases(first.last().copied(), from, second.iter().copied());
            prop_assert_eq!(whole, parts);
            prop_assert!(whole <= steps.iter().map(|(s, _)| f64::from(*s)).sum::<f64>());
        }
    }
}
