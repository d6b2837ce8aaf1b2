//! How much a counter grew: the one place that knows resets.

use crate::Timestamp;

/// A value of a counter, with the instant at which it was zero where the counter tells.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// When it was read.
    pub at: Timestamp,
    /// The count since `start`.
    pub value: f64,
    /// When the count began.
    pub start: Option<Timestamp>,
}

/// How much a counter grew between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Increase {
    /// The growth; never negative. What was counted between the first reading and a reset is unknown
    /// and not guessed.
    pub amount: f64,
    /// Whether the counter began anew between the two.
    pub reset: bool,
}

/// How much a counter grew from one reading to the next.
///
/// It began anew when its start moved past the earlier reading, or, whatever the starts say, when its
/// value fell; then what counts is what it counted since. A start that moved without passing the earlier
/// reading (clocks are adjusted, boot times wander by a second) is no reset. A value that is no number
/// gives no growth.
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

/// The growth over a run of readings, in the order of time, after the reading `before` them.
///
/// Without a reading before, the first one counts from its start when that lies within `from` and its
/// own instant, and else not at all: so the sum over any partition of time is the same.
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
            "a wandering boot time"
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
