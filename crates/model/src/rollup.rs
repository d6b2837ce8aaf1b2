//! Rollup of one series over a time range: the numbers needed for a plot, a mean, an energy and a growth.
//!
//! Two consecutive rollups combine into one ([`Rollup::join`]): up to rounding, the rollup of all their
//! samples. So queries over years use rows of five minutes or an hour.

use crate::{Point, Timestamp, increase};

/// Maximum distance of two samples that are connected by a line, in microseconds. A series that is read
/// every ten minutes is connected; a night without samples is not.
pub const SEGMENT_MAX_US: i64 = 600 * Timestamp::SECOND;

/// Distance of the samples before and after the wrap of a counter (decision 0046): nothing grows between them.
const WRAP_US: i64 = 2;

/// The samples of one series in a time range. Of several samples with one time, the last counts.
///
/// Non-finite values count in `count` and `sum`, like in PostgreSQL's `avg`, and nowhere else. In a range
/// without other values, `first`, `last`, `min` and `max` are not finite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rollup {
    /// Number of distinct times with a sample.
    pub count: u64,
    /// The sum of their values.
    pub sum: f64,
    /// The smallest value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
    /// The first sample.
    pub first: Point,
    /// The last sample.
    pub last: Point,
    /// Seconds between samples not further apart than [`SEGMENT_MAX_US`].
    pub seconds: f64,
    /// Integral of the value over these seconds, with straight lines between samples: the energy of a
    /// power. Divided by `seconds` it is a mean that is independent of the sampling interval.
    pub integral: f64,
    /// Number of resets and wraps of a counter.
    pub resets: u64,
    /// Sum of a counter's last values before each reset, and of what it falls by at each wrap.
    pub before_resets: f64,
}

impl Rollup {
    /// A rollup of one sample.
    pub const fn of(point: Point) -> Self {
        let value = point.value;
        Self {
            count: 1,
            sum: value,
            min: value,
            max: value,
            first: point,
            last: point,
            seconds: 0.0,
            integral: 0.0,
            resets: 0,
            before_resets: 0.0,
        }
    }

    /// Joins a later rollup; all its samples must be after those of this one.
    pub fn join(&mut self, later: &Self) {
        let (count, sum) = (self.count + later.count, self.sum + later.sum);
        if !later.has_numbers() {
            (self.count, self.sum) = (count, sum);
        } else if self.has_numbers() {
            self.join_numbers(later);
            (self.count, self.sum) = (count, sum);
        } else {
            *self = Self { count, sum, ..*later };
        }
    }

    fn join_numbers(&mut self, later: &Self) {
        let (before, after) = (self.last, later.first);
        if after.at.since(before.at) <= SEGMENT_MAX_US {
            let seconds = after.at.since(before.at) as f64 / 1e6;
            self.seconds += seconds;
            self.integral += (before.value + after.value) / 2.0 * seconds;
        }
        if increase(before, after).reset {
            let is_wrap = after.at.since(before.at) <= WRAP_US;
            self.resets += 1;
            self.before_resets += before.value - if is_wrap { after.value } else { 0.0 };
        }
        self.min = self.min.min(later.min);
        self.max = self.max.max(later.max);
        self.last = later.last;
        self.seconds += later.seconds;
        self.integral += later.integral;
        self.resets += later.resets;
        self.before_resets += later.before_resets;
    }

    const fn has_numbers(&self) -> bool {
        self.first.value.is_finite()
    }

    /// Growth of a counter from the first sample to the last.
    pub fn increase(&self) -> f64 {
        let grown = self.last.value - self.first.value + self.before_resets;
        if grown.is_finite() { grown.max(0.0) } else { 0.0 }
    }

    /// The mean of the samples, with equal weights.
    pub fn mean(&self) -> f64 {
        self.sum / self.count as f64
    }
}

/// Rolls samples up, window by window.
#[derive(Clone, Debug)]
pub struct RollupWindows {
    /// Length of a window, in microseconds.
    window_us: i64,
    /// The current window, without its latest time.
    open: Option<(i64, Option<Rollup>)>,
    /// The latest sample; another one with the same time may replace it.
    newest: Option<Point>,
}

impl RollupWindows {
    /// Windows of this length in microseconds, aligned to 1970.
    pub const fn new(window_us: i64) -> Self {
        Self { window_us, open: None, newest: None }
    }

    /// Adds the next sample, not earlier than the previous one; returns the window that it ended.
    pub fn push(&mut self, point: Point) -> Option<(Timestamp, Rollup)> {
        if let Some(newest) = &mut self.newest
            && newest.at == point.at
        {
            *newest = point;
            return None;
        }
        let start = point.at.0.div_euclid(self.window_us) * self.window_us;
        let ended = if self.open.is_some_and(|(open, _)| open != start) {
            self.finish()
        } else {
            self.settle();
            None
        };
        self.open.get_or_insert((start, None));
        self.newest = Some(point);
        ended
    }

    /// Ends the current window.
    pub fn finish(&mut self) -> Option<(Timestamp, Rollup)> {
        self.settle();
        let (start, rollup) = self.open.take()?;
        Some((Timestamp(start), rollup?))
    }

    fn settle(&mut self) {
        let Some(newest) = self.newest.take() else { return };
        if let Some((_, rollup)) = &mut self.open {
            match rollup {
                Some(rollup) => rollup.join(&Rollup::of(newest)),
                None => *rollup = Some(Rollup::of(newest)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::increases;
    use proptest::prelude::*;

    const S: i64 = Timestamp::SECOND;

    fn point(at: i64, value: f64) -> Point {
        Point { at: Timestamp(at * S), value, start: None }
    }

    fn whole(points: &[Point]) -> Rollup {
        let mut windows = RollupWindows::new(i64::MAX);
        for point in points {
            assert_eq!(windows.push(*point), None);
        }
        windows.finish().unwrap().1
    }

    #[test]
    fn a_minute_of_power() {
        let points: Vec<Point> = (0_i32..=60).map(|s| point(s.into(), f64::from(s))).collect();
        let rollup = whole(&points);
        assert_eq!((rollup.count, rollup.min, rollup.max), (61, 0.0, 60.0));
        assert_eq!((rollup.seconds, rollup.integral), (60.0, 1800.0));
        assert_eq!((rollup.mean(), rollup.increase(), rollup.resets), (30.0, 60.0, 0));
    }

    #[test]
    fn a_night_without_samples_has_no_energy() {
        let rollup = whole(&[point(0, 100.0), point(600, 100.0), point(1201, 100.0)]);
        assert_eq!((rollup.seconds, rollup.integral), (600.0, 60_000.0));
    }

    #[test]
    fn the_last_sample_of_one_time_counts() {
        let rollup = whole(&[point(0, 5.0), point(1, 9.0), point(1, 6.0), point(2, 7.0)]);
        assert_eq!((rollup.count, rollup.max, rollup.resets), (3, 7.0, 0));
    }

    #[test]
    fn non_finite_values_affect_only_the_mean() {
        let rollup = whole(&[point(0, f64::NAN), point(1, 4.0), point(2, f64::NAN), point(3, 6.0)]);
        assert!(rollup.mean().is_nan());
        assert_eq!((rollup.count, rollup.min, rollup.max, rollup.increase()), (4, 4.0, 6.0, 2.0));
        assert_eq!((rollup.seconds, rollup.integral), (2.0, 10.0));
        let none = whole(&[point(0, f64::NAN), point(1, f64::INFINITY)]);
        assert_eq!((none.count, none.increase(), none.seconds), (2, 0.0, 0.0));
    }

    #[test]
    fn windows_begin_at_their_multiples() {
        let mut windows = RollupWindows::new(300 * S);
        let mut ended = Vec::new();
        for at in [-1, 0, 299, 300, 1000] {
            ended.extend(windows.push(point(at, 1.0)));
        }
        ended.extend(windows.finish());
        let counts: Vec<_> = ended.iter().map(|(start, one)| (start.0 / S, one.count)).collect();
        assert_eq!(counts, [(-300, 1), (0, 2), (300, 1), (900, 1)]);
        assert_eq!(windows.finish(), None);
    }

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0)
    }

    /// Readings of a counter with resets, with or without a new start, or of a gauge.
    fn readings() -> impl Strategy<Value = Vec<Point>> {
        let step = (1_i64..400, 0_u32..1000, prop::bool::weighted(0.1), any::<bool>());
        prop::collection::vec(step, 1..60).prop_map(|steps| {
            let (mut at, mut value, mut start) = (0, 0.0, 0);
            let reading = |(dt, grown, reset, has_start): (i64, u32, bool, bool)| {
                at += dt;
                if reset {
                    value = 0.0;
                    start = if has_start { at * S - 1 } else { start };
                }
                value += f64::from(grown) / 8.0;
                Point { at: Timestamp(at * S), value, start: Some(Timestamp(start)) }
            };
            steps.into_iter().map(reading).collect()
        })
    }

    #[test]
    fn nothing_grows_over_a_wrap() {
        let at = |micros: i64, value: f64| Point { at: Timestamp(micros), value, start: None };
        let (wrap, beyond) = (10 * S, 4_294_967_296.0 + 50.0);
        let points = [
            at(9 * S, 4_294_967_000.0),
            at(wrap, beyond),
            at(wrap + 1, f64::NAN),
            at(wrap + 2, 50.0),
            at(11 * S, 80.0),
        ];
        let rollup = whole(&points);
        assert_eq!((rollup.increase(), rollup.resets), (beyond - 4_294_967_000.0 + 30.0, 1));
        let mut first = whole(&points[..2]);
        first.join(&whole(&points[2..]));
        assert_eq!(first.increase(), rollup.increase(), "also between two rollups");
    }

    proptest! {
        /// The join of any parts is the whole: growth, energy and seconds are the same over any partition.
        #[test]
        fn parts_make_the_whole(points in readings(), cuts in prop::collection::vec(0_usize..60, 0..8)) {
            let all = whole(&points);
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| *cut < points.len()).collect();
            cuts.extend([0, points.len()]);
            cuts.sort_unstable();
            cuts.dedup();
            let mut joined: Option<Rollup> = None;
            for pair in cuts.windows(2) {
                let part = whole(&points[pair[0]..pair[1]]);
                match &mut joined {
                    Some(joined) => joined.join(&part),
                    None => joined = Some(part),
                }
            }
            let joined = joined.unwrap();
            prop_assert_eq!((joined.count, joined.min, joined.max), (all.count, all.min, all.max));
            prop_assert_eq!((joined.first, joined.last), (all.first, all.last));
            prop_assert_eq!(joined.resets, all.resets);
            prop_assert!(near(joined.sum, all.sum) && near(joined.integral, all.integral));
            prop_assert!(near(joined.seconds, all.seconds));
            prop_assert!(near(joined.increase(), all.increase()));
        }

        /// The growth of a rollup equals that of its readings.
        #[test]
        fn growth_is_that_of_the_readings(points in readings()) {
            let raw = increases(points.first().copied(), Timestamp(0), points.iter().skip(1).copied());
            prop_assert!(near(whole(&points).increase(), raw));
        }
    }
}
