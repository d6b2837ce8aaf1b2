//! Two series, window by window: counters by their growth while both sides have samples, gauges by their mean.

use super::series::{Segment, Series};
use model::Kind;
use std::collections::BTreeMap;

/// Relative error of sums of floating-point numbers.
const ROUNDING: f64 = 1e-9;

/// The windows of a comparison. Times are microseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(super) struct Windows {
    /// Inclusive.
    pub(super) from: i64,
    /// Exclusive.
    pub(super) to: i64,
    pub(super) length: i64,
}

/// The largest differences that are none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tolerance {
    /// Of the larger value.
    pub(super) ratio: f64,
    /// In the metric's unit.
    pub(super) floor: f64,
}

/// A window in which both sides have samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Both {
    /// Its start.
    pub(super) at: i64,
    pub(super) left: f64,
    pub(super) right: f64,
}

/// The comparison of two series.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Compared {
    /// Windows in which both have samples.
    pub(super) windows: u64,
    /// Of them, those beyond tolerance with the larger value on the left.
    pub(super) left_larger: u64,
    /// And on the right.
    pub(super) right_larger: u64,
    /// Windows of which only the left side has at least the half.
    pub(super) only_left: u64,
    /// And only the right side.
    pub(super) only_right: u64,
    /// The window with the largest difference beyond tolerance.
    pub(super) worst: Option<Both>,
}

impl Compared {
    /// Whether nothing differs.
    pub(super) const fn is_equal(&self) -> bool {
        self.left_larger + self.right_larger + self.only_left + self.only_right == 0
    }
}

impl Tolerance {
    /// Whether two values are equal within it.
    pub(super) fn accepts(self, left: f64, right: f64) -> bool {
        let larger = left.abs().max(right.abs());
        (left - right).abs() <= self.floor.max(larger * self.ratio) + larger * ROUNDING
    }
}

impl Windows {
    /// Longest distance of two samples between which the values are known.
    pub(super) const fn gap(&self) -> i64 {
        self.length.saturating_mul(2)
    }

    /// How many there are.
    pub(super) const fn count(&self) -> i64 {
        (self.to - self.from + self.length - 1) / self.length
    }

    fn number(&self, at: i64) -> Option<i64> {
        (self.from..self.to).contains(&at).then(|| (at - self.from) / self.length)
    }

    const fn start(&self, number: i64) -> i64 {
        self.from + number * self.length
    }

    fn end(&self, number: i64) -> i64 {
        self.start(number + 1).min(self.to)
    }

    /// Passes the parts of a time range that are in windows.
    fn split(&self, from: i64, to: i64, part: &mut dyn FnMut(i64, i64)) {
        let (mut at, to) = (from.max(self.from), to.min(self.to));
        while at < to {
            let Some(number) = self.number(at) else { return };
            let end = self.end(number).min(to);
            part(number, end - at);
            at = end;
        }
    }

    /// Compares the two sides of a series.
    pub(super) fn compare(
        &self,
        kind: Kind,
        left: &Series,
        right: &Series,
        tolerance: Tolerance,
    ) -> Compared {
        let segments = [left, right].map(|side| side.segments(self.gap()));
        let both = match kind {
            Kind::Counter => self.growth([&segments[0], &segments[1]]),
            Kind::Gauge => self.means(left, right),
        };
        let mut out = Compared::default();
        let mut most = -1.0;
        for (number, [left, right]) in &both {
            out.windows += 1;
            if tolerance.accepts(*left, *right) {
                continue;
            }
            let larger = if left > right { &mut out.left_larger } else { &mut out.right_larger };
            *larger += 1;
            let ratio = (left - right).abs() / left.abs().max(right.abs());
            if ratio > most {
                most = ratio;
                out.worst = Some(Both { at: self.start(*number), left: *left, right: *right });
            }
        }
        let [left, right] = segments.map(|side| self.covered(&side));
        out.only_left = self.missing(&left, &right, &both);
        out.only_right = self.missing(&right, &left, &both);
        out
    }

    /// How many microseconds of each window lie between samples.
    fn covered(&self, segments: &[Segment]) -> BTreeMap<i64, i64> {
        let mut out = BTreeMap::new();
        for segment in segments {
            self.split(segment.from, segment.to, &mut |number, length| {
                *out.entry(number).or_insert(0) += length;
            });
        }
        out
    }

    /// Windows of which one side has the half at least, and the other nothing.
    fn missing(
        &self,
        one: &BTreeMap<i64, i64>,
        other: &BTreeMap<i64, i64>,
        both: &BTreeMap<i64, [f64; 2]>,
    ) -> u64 {
        let is_half = |number: i64, length: i64| {
            length.saturating_mul(2) >= self.end(number) - self.start(number)
        };
        let lacks = |number: &i64| !other.contains_key(number) && !both.contains_key(number);
        let all =
            one.iter().filter(|(number, length)| is_half(**number, **length) && lacks(number));
        all.count() as u64
    }

    /// The growth of both sides in each window, over the time that both know.
    fn growth(&self, [left, right]: [&[Segment]; 2]) -> BTreeMap<i64, [f64; 2]> {
        let mut out: BTreeMap<i64, [f64; 2]> = BTreeMap::new();
        let (mut rest_left, mut rest_right) = (left, right);
        while let ([a, next_left @ ..], [b, next_right @ ..]) = (rest_left, rest_right) {
            let rates = [a, b].map(|it| it.grown / (it.to - it.from) as f64);
            self.split(a.from.max(b.from), a.to.min(b.to), &mut |number, length| {
                let sums = out.entry(number).or_default();
                sums.iter_mut().zip(rates).for_each(|(sum, rate)| *sum += rate * length as f64);
            });
            if a.to <= b.to {
                rest_left = next_left;
            }
            if b.to <= a.to {
                rest_right = next_right;
            }
        }
        out
    }

    /// The mean of the samples of both sides in each window with samples of both; of several parts, the sum of their means.
    fn means(&self, left: &Series, right: &Series) -> BTreeMap<i64, [f64; 2]> {
        let [left, right] = [left, right].map(|side| {
            let mut sums: BTreeMap<i64, f64> = BTreeMap::new();
            for part in &side.parts {
                let mut of_part: BTreeMap<i64, (f64, f64)> = BTreeMap::new();
                for (at, value) in part {
                    if let Some(number) = self.number(*at) {
                        let (sum, count) = of_part.entry(number).or_default();
                        *sum += value;
                        *count += 1.0;
                    }
                }
                for (number, (sum, count)) in of_part {
                    *sums.entry(number).or_default() += sum / count;
                }
            }
            sums
        });
        let both = |(number, left): (i64, f64)| Some((number, [left, *right.get(&number)?]));
        left.into_iter().filter_map(both).collect()
    }

    /// Whether a series has a sample in the windows.
    pub(super) fn has(&self, series: &Series) -> bool {
        series.parts.iter().flatten().any(|(at, _)| self.number(*at).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WINDOWS: Windows = Windows { from: 0, to: 300, length: 60 };
    const EXACT: Tolerance = Tolerance { ratio: 0.01, floor: 0.0 };

    fn series(samples: &[(i64, f64)]) -> Series {
        Series { parts: vec![samples.to_vec()] }
    }

    fn counter(first: i64, step: i64, rate: f64) -> Series {
        let at = (0..=40).map(|place| first + place * step).filter(|at| *at <= 330);
        series(&at.map(|at| (at, 1000.0 + rate * at as f64)).collect::<Vec<_>>())
    }

    #[test]
    fn a_counter_grows_equally_whenever_it_is_read() {
        let found =
            WINDOWS.compare(Kind::Counter, &counter(-7, 10, 3.0), &counter(-2, 15, 3.0), EXACT);
        assert_eq!(found, Compared { windows: 5, ..Compared::default() });
        let found =
            WINDOWS.compare(Kind::Counter, &counter(-7, 10, 3.0), &counter(-2, 15, 3.1), EXACT);
        assert_eq!((found.windows, found.left_larger, found.right_larger), (5, 0, 5));
        let worst = found.worst.unwrap();
        assert!((worst.left - 180.0).abs() < 1e-9 && (worst.right - 186.0).abs() < 1e-9);
    }

    #[test]
    fn one_changed_value_is_found() {
        let left = counter(0, 10, 3.0);
        let mut right = counter(0, 10, 3.0);
        right.parts[0][13].1 += 40.0;
        // The counter rises too much at 130, and falls back by 140: a restart.
        let found = WINDOWS.compare(Kind::Counter, &left, &right, EXACT);
        assert_eq!((found.windows, found.right_larger), (5, 1));
        assert_eq!(found.worst.unwrap().at, 120);
        let gauges = |value| {
            let left = series(&[(0, 10.0), (20, 10.0), (60, 4.0)]);
            let right = series(&[(0, value), (30, 10.0), (60, 4.0)]);
            WINDOWS.compare(Kind::Gauge, &left, &right, EXACT)
        };
        assert!(gauges(10.0).is_equal());
        assert_eq!((gauges(11.0).right_larger, gauges(9.0).left_larger), (1, 1));
        let loose = Tolerance { floor: 0.5, ..EXACT };
        assert!(loose.accepts(10.0, 10.5) && !loose.accepts(10.0, 10.6));
    }

    #[test]
    fn windows_of_one_side_are_counted() {
        let left = counter(0, 10, 3.0);
        let mut right = counter(0, 10, 3.0);
        right.parts[0].retain(|(at, _)| !(50..=200).contains(at));
        for kind in [Kind::Counter, Kind::Gauge] {
            let found = WINDOWS.compare(kind, &left, &right, Tolerance { ratio: 9.0, floor: 0.0 });
            // The windows at 60 and 120; that at 180 has the half.
            assert_eq!((found.only_left, found.only_right), (2, 0), "{kind:?}");
            let found = WINDOWS.compare(kind, &right, &left, EXACT);
            assert_eq!((found.only_left, found.only_right), (0, 2), "{kind:?}");
        }
        let none = WINDOWS.compare(Kind::Counter, &series(&[]), &series(&[]), EXACT);
        assert_eq!(none, Compared::default());
    }

    #[test]
    fn gauges_of_parts_are_added() {
        let left = Series { parts: vec![vec![(0, 1.0), (10, 3.0)], vec![(5, 10.0)]] };
        let found = WINDOWS.means(&left, &series(&[(30, 12.0), (60, 1.0)]));
        assert_eq!(found, BTreeMap::from([(0, [12.0, 12.0])]));
        assert!(WINDOWS.has(&left) && !WINDOWS.has(&series(&[(300, 1.0), (-1, 1.0)])));
    }

    fn some_series() -> impl Strategy<Value = Series> {
        prop::collection::btree_map(-100_i64..400, 0_u32..1000, 0..60).prop_map(|samples| {
            series(
                &samples.into_iter().map(|(at, value)| (at, f64::from(value))).collect::<Vec<_>>(),
            )
        })
    }

    proptest! {
        #[test]
        fn a_series_equals_itself_and_sides_can_be_swapped(a in some_series(), b in some_series()) {
            for kind in [Kind::Counter, Kind::Gauge] {
                let exact = Tolerance { ratio: 0.0, floor: 0.0 };
                prop_assert!(WINDOWS.compare(kind, &a, &a, exact).is_equal());
                let (one, two) = (WINDOWS.compare(kind, &a, &b, EXACT), WINDOWS.compare(kind, &b, &a, EXACT));
                prop_assert_eq!(one.windows, two.windows);
                prop_assert_eq!((one.left_larger, one.right_larger), (two.right_larger, two.left_larger));
                prop_assert_eq!((one.only_left, one.only_right), (two.only_right, two.only_left));
            }
        }

        #[test]
        fn growth_in_windows_is_the_growth_of_the_whole(a in some_series()) {
            let whole = Windows { from: 0, to: 300, length: 300 };
            let segments = a.segments(WINDOWS.gap());
            let sum = |windows: &Windows| -> f64 {
                windows.growth([&segments, &segments]).values().map(|[left, _]| left).sum()
            };
            prop_assert!((sum(&WINDOWS) - sum(&whole)).abs() < 1e-6);
        }
    }
}
