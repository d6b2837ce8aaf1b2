//! Checks of windows: the rollups of samples over time (decision 0010).

use crate::sender::{S, Sender, Spec, T0, in_order, of_device, spec};
use crate::stages::{all, at_every_stage, open, put, store_all};
use crate::subject::{Outcome, Query, Sample, Subject, Window};
use model::{Batch, Point, Rollup, RollupWindows, SEGMENT_MAX_US, Series, Timestamp, increases};

/// The windows of samples that are ordered by series and time.
pub(crate) fn wanted(samples: &[Sample], window_us: i64) -> Vec<Window> {
    let mut wanted = Vec::new();
    for of_series in samples.chunk_by(|a, b| a.series == b.series) {
        let mut windows = RollupWindows::new(window_us);
        let mut ended: Vec<_> =
            of_series.iter().filter_map(|sample| windows.push(point(sample))).collect();
        ended.extend(windows.finish());
        let series = &of_series[0].series;
        let window = |(start, rollup)| Window { series: series.clone(), start, rollup };
        wanted.extend(ended.into_iter().map(window));
    }
    wanted
}

const fn point(sample: &Sample) -> Point {
    Point { at: sample.at, value: sample.value, start: sample.start }
}

/// Asserts that windows are equal, except for rounding and for optional fields.
pub(crate) fn assert_windows(have: &[Window], want: &[Window], what: &str) {
    let names = |windows: &[Window]| -> Vec<(Series, Timestamp)> {
        windows.iter().map(|window| (window.series.clone(), window.start)).collect()
    };
    assert_eq!(names(have), names(want), "{what}");
    for (have, want) in have.iter().zip(want) {
        let total = want.series.metric.ends_with("_total");
        let (have, want) = (&have.rollup, &want.rollup);
        let same = same_ends(have, want)
            && near(have.seconds, want.seconds)
            && (total && have.sum.is_nan() || near(have.sum, want.sum))
            && (total && have.integral.is_nan() || near(have.integral, want.integral))
            && (!total || have.resets == want.resets && near(have.increase(), want.increase()));
        assert!(same, "{what}: {have:?} for {want:?}");
    }
}

fn same_ends(have: &Rollup, want: &Rollup) -> bool {
    let end = |point: &Point| (point.at, point.value.to_bits(), point.start);
    (have.count, end(&have.first), end(&have.last))
        == (want.count, end(&want.first), end(&want.last))
        && near(have.min, want.min)
        && near(have.max, want.max)
}

fn near(a: f64, b: f64) -> bool {
    a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0)
}

/// Asserts that a store's windows of each length match these samples, at every stage.
fn check<T: Subject>(store: T, samples: &[(Spec, i64, f64)]) {
    let samples = in_order(samples);
    at_every_stage(store, |store, stage| {
        for window_us in T::WINDOWS_US {
            let have = store.windows(&Query::default(), window_us);
            assert_windows(&have, &wanted(&samples, window_us), stage);
        }
    });
}

/// A deterministic pseudo-random generator.
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides
    }

    fn is(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }
}

/// Hours of a counter that restarts now and then, with or without a reported start, and of a power.
fn hours(dice: &mut Dice) -> Vec<(Spec, i64, f64)> {
    let (mut samples, mut count, mut start) = (Vec::new(), 0.0, T0 - S);
    for tick in 0..300 {
        let at = T0 + tick * 37 * S;
        if dice.is(20) {
            count = 0.0;
            start = if dice.is(2) { at - S } else { start };
        }
        count += dice.below(1000) as f64 / 8.0;
        samples.push((Spec { start: Some(start), ..spec("n1", "joules_total") }, at, count));
        samples.push((spec("n1", "watts"), at, dice.below(4000) as f64 / 10.0 - 50.0));
    }
    samples
}

/// The rollup of any split, order and duplication of batches is that of the whole, however much was written,
/// merged and rolled up before the rest arrived.
pub fn windows_do_not_depend_on_batches<T: Subject>() {
    for seed in 1..=4 {
        let mut dice = Dice(0x9e37_79b9_7f4a_7c15 >> seed);
        let samples = hours(&mut dice);
        let mut sender = Sender::new("n1", 1);
        let (mut batches, mut rest): (Vec<Batch>, _) = (Vec::new(), &samples[..]);
        while !rest.is_empty() {
            let count = usize::try_from(dice.below(60) + 1).unwrap().min(rest.len());
            batches.push(sender.batch(&rest[..count]));
            rest = &rest[count..];
        }
        let mut store: T = open();
        let mut sent: Vec<Batch> = Vec::new();
        while !batches.is_empty() || dice.is(2) {
            if !sent.is_empty() && dice.is(4) {
                let again = usize::try_from(dice.below(sent.len() as u64)).unwrap();
                assert_eq!(put(&store, sent[again].clone()), Outcome::Duplicate, "seed {seed}");
            }
            if !batches.is_empty() {
                let next = usize::try_from(dice.below(batches.len().min(5) as u64)).unwrap();
                sent.push(batches.remove(next));
                store_all(&store, sent.last().cloned());
            }
            if dice.is(3) {
                store.maintain();
            } else if dice.is(10) {
                store = store.reopen();
            }
        }
        check(store, &samples);
    }
}

/// Windows joined by `model::Rollup::join` match the range they cover: for five minutes, for an hour, or for
/// mixed pieces, growth, energy and seconds are the same as from the samples.
pub fn growth_energy_and_seconds_are_the_same_over_any_partition<T: Subject>() {
    let mut dice = Dice(7);
    let store: T = open();
    let samples = hours(&mut dice);
    assert_eq!(put(&store, Sender::new("n1", 1).batch(&samples)), Outcome::STORED);
    at_every_stage(store, |store, stage| {
        let mut dice = Dice(11);
        let raw = all(store);
        let of = |metric: &str| -> Vec<Point> {
            raw.iter().filter(|sample| &*sample.series.metric == metric).map(point).collect()
        };
        let (joules, watts) = (of("joules_total"), of("watts"));
        let grown = increases(joules.first().copied(), Timestamp(0), joules[1..].iter().copied());
        for window_us in T::WINDOWS_US {
            let windows = store.windows(&Query::default(), window_us);
            let mut join = |metric: &str| -> Rollup {
                let of: Vec<&Window> =
                    windows.iter().filter(|window| &*window.series.metric == metric).collect();
                let pieces = of.chunk_by(|_, _| !dice.is(3)).map(joined).collect::<Vec<_>>();
                pieces.into_iter().reduce(with).unwrap()
            };
            assert!(near(join("joules_total").increase(), grown), "{stage}: {window_us}");
            let power = join("watts");
            assert!(near(power.integral, energy(&watts)), "{stage}: {window_us}");
            assert!(near(power.seconds, 299.0 * 37.0), "{stage}: {power:?}");
            assert_eq!(power.count, 300, "{stage}");
        }
    });
}

fn joined(windows: &[&Window]) -> Rollup {
    windows.iter().map(|window| window.rollup).reduce(with).unwrap()
}

fn with(mut before: Rollup, later: Rollup) -> Rollup {
    before.join(&later);
    before
}

/// Energy of samples in watts, with linear power between two of them.
fn energy(points: &[Point]) -> f64 {
    let pairs = points.windows(2).filter(|pair| pair[1].at.since(pair[0].at) <= SEGMENT_MAX_US);
    let joules = pairs.map(|pair| {
        (pair[0].value + pair[1].value) / 2.0 * pair[1].at.since(pair[0].at) as f64 / 1e6
    });
    joules.sum()
}

/// An hour of a gauge, a sample a minute.
fn hour() -> Vec<(Spec, i64, f64)> {
    (0..60)
        .map(|minute| (spec("n1", "watts"), T0 + minute * 60 * S, (minute * 7 % 11) as f64))
        .collect()
}

/// A rolled-up window is recomputed when a late sample of it arrives, at any position.
pub fn a_late_sample_counts_in_its_window<T: Subject>() {
    let mut samples = hour();
    let late: Vec<_> = [59, 31, 0].into_iter().map(|place| samples.remove(place)).collect();
    let store: T = open();
    let mut sender = Sender::new("n1", 1);
    store_all(&store, [sender.batch(&samples[..30]), sender.batch(&samples[30..])]);
    store.maintain();
    for one in late {
        store_all(&store, [sender.batch(std::slice::from_ref(&one))]);
        samples.push(one);
        let want = wanted(&in_order(&samples), T::WINDOWS_US[0]);
        assert_windows(&store.windows(&Query::default(), T::WINDOWS_US[0]), &want, "late");
        store.maintain();
    }
    check(store, &samples);
}

/// Of two values at one instant, from any batches, the one that arrived last makes the window.
pub fn of_one_instant_the_last_sample_counts<T: Subject>() {
    let store: T = open();
    let mut sender = Sender::new("n1", 1);
    let mut samples = hour();
    store_all(&store, [sender.batch(&samples)]);
    store.maintain();
    let again: Vec<_> =
        samples.iter().step_by(3).map(|(spec, at, _)| (spec.clone(), *at, 100.0)).collect();
    store_all(&store, [sender.batch(&again)]);
    samples.extend(again);
    let sum: f64 = store.windows(&Query::default(), T::WINDOWS_US[1])[0].rollup.sum;
    assert!(sum > 2000.0, "{sum}");
    check(store, &samples);
}

/// A PDU that is read every ten minutes is a line; over a longer pause there is no energy.
pub fn samples_more_than_ten_minutes_apart_are_not_joined<T: Subject>() {
    let store: T = open();
    let samples = [0, 600, 1201].map(|at| (spec("pdu", "watts"), T0 + at * S, 100.0));
    let mut sender = Sender::new("pdu", 1);
    store_all(&store, samples.iter().map(|one| sender.batch(std::slice::from_ref(one))));
    at_every_stage(store, |store, stage| {
        let hour = store.windows(&Query::default(), T::WINDOWS_US[1])[0].rollup;
        assert_eq!((hour.count, hour.seconds, hour.integral), (3, 600.0, 60_000.0), "{stage}");
    });
}

/// A NaN counts as a value and makes the sum NaN, like PostgreSQL's `avg`; the other fields ignore it.
pub fn a_nan_affects_the_sum_alone<T: Subject>() {
    let store: T = open();
    let values = (0..).zip([f64::NAN, 4.0, f64::NAN, 6.0, f64::INFINITY]);
    let samples: Vec<_> = values.map(|(n, value)| (spec("n1", "b"), T0 + n * S, value)).collect();
    let mut sender = Sender::new("n1", 1);
    store_all(&store, samples.chunks(2).map(|part| sender.batch(part)));
    at_every_stage(store, |store, stage| {
        for window_us in T::WINDOWS_US {
            let window = store.windows(&Query::default(), window_us)[0].rollup;
            assert!(window.sum.is_nan(), "{stage}");
            assert_eq!((window.count, window.min, window.max), (5, 4.0, 6.0), "{stage}");
            assert_eq!((window.first.value, window.last.value), (4.0, 6.0), "{stage}");
            assert_eq!((window.seconds, window.integral), (2.0, 10.0), "{stage}");
        }
    });
}

/// A window has all its samples, whatever part of it the query touches; it belongs to the answer if it begins
/// within the query's interval, bounds inclusive.
pub fn a_query_returns_the_windows_that_begin_within_it<T: Subject>() {
    let store: T = open();
    assert_eq!(put(&store, Sender::new("n1", 1).batch(&hour())), Outcome::STORED);
    at_every_stage(store, |store, stage| {
        for (from, to, want) in
            [(0, 299, 1), (1, 600, 2), (300, 300, 1), (301, 599, 0), (0, 3599, 12)]
        {
            let (from, to) = (Timestamp(T0 + from * S), Timestamp(T0 + to * S));
            let query = Query { from, to, ..of_device("n1") };
            let windows = store.windows(&query, T::WINDOWS_US[0]);
            assert_eq!(windows.len(), want, "{stage}: {from} {to}");
            assert!(windows.iter().all(|window| window.rollup.count == 5), "{stage}");
        }
        assert_eq!(store.windows(&of_device("n2"), T::WINDOWS_US[0]), [], "{stage}");
    });
}
