//! Points of one series: samples or rollups in steps, counters as rates.

use crate::engine::access_filter::Visibility;
use crate::lists::listing::described;
use crate::ranges::missing_points::{Points, with_missing_points};
use crate::{RangeQuery, Rate};
use model::{Kind, Metric, Point, Rollup, Timestamp, increase};
use std::collections::HashMap;
use std::sync::Arc;
use storage::{Chunk, SeriesInfo};

/// A series during its conversion to points.
#[derive(Debug)]
pub(crate) struct SeriesPoints {
    pub(crate) info: Arc<SeriesInfo>,
    pub(crate) seen: Visibility,
    from: i64,
    to: i64,
    step: i64,
    /// Start of the samples read: a counter that started later has no reading before its first one.
    since: i64,
    /// Whether a counter appears as its growth per second.
    rate: bool,
    /// The previous reading.
    before: Option<Point>,
    bucket: Option<Bucket>,
    times: Vec<i64>,
    values: Vec<Option<f64>>,
    /// For rates: the seconds that each value covers.
    seconds: Vec<f64>,
}

/// A step during its aggregation.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    start: i64,
    /// Start of the next step; `start` if the answer has every sample.
    end: i64,
    /// Gauges: sum of the values. Rates: growth. Raw counters: the last value.
    sum: f64,
    /// Gauges: number of values. Rates: seconds covered by the growth.
    weight: f64,
}

impl SeriesPoints {
    /// A series without points, whose samples are read from `since` on.
    pub(crate) fn new(
        info: &Arc<SeriesInfo>,
        query: &RangeQuery,
        since: Timestamp,
        seen: &Visibility,
    ) -> Self {
        let (info, seen) = (Arc::clone(info), seen.clone());
        Self {
            rate: info.kind == Kind::Counter && query.rate == Rate::Counters,
            info,
            seen,
            from: query.from.0,
            to: query.to.0,
            step: query.step_us.max(0),
            since: since.0,
            before: None,
            bucket: None,
            times: Vec::new(),
            values: Vec::new(),
            seconds: Vec::new(),
        }
    }

    /// Sets the reading before the first one. `None`: no reading since that instant, so a first reading counts
    /// from a counter start after that instant ([`Point::zero`]).
    pub(crate) fn set_before(&mut self, (before, since): (Option<Point>, Timestamp)) {
        self.before = before;
        if before.is_none() {
            self.since = since.0;
        }
    }

    /// Whether the first reading needs the unknown reading before it to give a rate.
    pub(crate) fn lacks_before(&self, first: Point) -> bool {
        self.rate && self.before.is_none() && first.at.0 >= self.from && self.zero(first).is_none()
    }

    /// The counter's start as a reading of 0, if no reading can lie between it and this first one.
    fn zero(&self, first: Point) -> Option<Point> {
        first.zero().filter(|zero| zero.at.0 >= self.since)
    }

    /// Adds samples, later than all before.
    pub(crate) fn take(&mut self, chunk: &Chunk) {
        let Chunk { times, values, starts, .. } = chunk;
        let ends = starts.iter().skip(1).map(|(row, _)| *row).chain([times.len()]);
        for ((first, start), end) in starts.iter().zip(ends) {
            let of_run = times.get(*first..end).unwrap_or_default();
            let values = values.get(*first..end).unwrap_or_default();
            if self.rate {
                self.take_readings(of_run, values, times.get(end).copied(), *start);
            } else {
                self.take_values(of_run, values);
            }
        }
    }

    /// Adds values that are no rates.
    fn take_values(&mut self, times: &[i64], values: &[f64]) {
        let always = self.seen == Visibility::Always;
        let last = self.info.kind == Kind::Counter;
        let mut bucket = self.bucket.take();
        for (at, value) in times.iter().zip(values) {
            if *at < self.from || *at > self.to || !always && !self.seen.at(*at) {
                continue;
            }
            match &mut bucket {
                Some(bucket) if *at < bucket.end && last => bucket.sum = *value,
                Some(bucket) if *at < bucket.end => {
                    bucket.sum += *value;
                    bucket.weight += 1.0;
                }
                _ => bucket = self.next_step(bucket, *at, *value, 1.0),
            }
        }
        self.bucket = bucket;
    }

    /// Adds readings of a counter with one start, as growth. `next`: the instant of the sample after them.
    /// The state is in local variables: that halves the time of each sample.
    fn take_readings(
        &mut self,
        times: &[i64],
        values: &[f64],
        next: Option<i64>,
        start: Option<Timestamp>,
    ) {
        let always = self.seen == Visibility::Always;
        let (mut bucket, mut before) = (self.bucket.take(), self.before);
        let later = times.iter().skip(1).copied().chain(next.or(Some(i64::MAX)));
        for ((at, value), later) in times.iter().zip(values).zip(later) {
            // Of several samples at one instant the last counts, as in rollups.
            if later == *at || !always && !self.seen.at(*at) {
                continue;
            }
            let point = Point { at: Timestamp(*at), value: *value, start };
            let grown = match before {
                _ if *at < self.from || *at > self.to => None,
                Some(before) if always => growth(before, point),
                _ => self.growth(before, point),
            };
            before = Some(point);
            if let Some((amount, seconds)) = grown {
                match &mut bucket {
                    Some(bucket) if *at < bucket.end => {
                        bucket.sum += amount;
                        bucket.weight += seconds;
                    }
                    _ => bucket = self.next_step(bucket, *at, amount, seconds),
                }
            }
        }
        (self.bucket, self.before) = (bucket, before);
    }

    /// Adds rollup windows. `false`: the rollups have no sum, as for gauges named `*_total`.
    pub(crate) fn take_windows(&mut self, windows: &[(Timestamp, Rollup)]) -> bool {
        for (start, rollup) in windows {
            if start.0 >= self.from && start.0 <= self.to {
                let (sum, weight) = if self.rate {
                    let begun = self.growth(self.before, rollup.first);
                    let (grown, seconds) = begun.unwrap_or((0.0, 0.0));
                    let within = rollup.last.at.since(rollup.first.at) as f64 / 1e6;
                    (grown + rollup.increase(), seconds + within)
                } else if self.info.kind == Kind::Counter {
                    (rollup.last.value, 1.0)
                } else if storage::is_total(&self.info.series.metric) {
                    return false;
                } else {
                    (rollup.sum, rollup.count as f64)
                };
                if weight > 0.0 {
                    self.put(start.0, sum, weight);
                }
            }
            self.before = Some(rollup.last);
        }
        true
    }

    /// Adds a window's value to the step that contains an instant, which is not before those added so far.
    fn put(&mut self, at: i64, sum: f64, weight: f64) {
        let bucket = self.bucket.take();
        self.bucket = match bucket {
            Some(bucket) if at < bucket.end && self.info.kind == Kind::Counter && !self.rate => {
                Some(Bucket { sum, weight: 1.0, ..bucket })
            }
            Some(bucket) if at < bucket.end => {
                Some(Bucket { sum: bucket.sum + sum, weight: bucket.weight + weight, ..bucket })
            }
            _ => self.next_step(bucket, at, sum, weight),
        };
    }

    /// Ends a step, and begins the one that contains an instant.
    fn next_step(
        &mut self,
        done: Option<Bucket>,
        at: i64,
        sum: f64,
        weight: f64,
    ) -> Option<Bucket> {
        self.bucket = done;
        self.close();
        let step = self.step;
        let start = if step > 0 { at.div_euclid(step) * step } else { at };
        Some(Bucket { start, end: start.saturating_add(step), sum, weight })
    }

    /// Growth of a counter since the previous reading, and the seconds that it covers. A first reading counts
    /// from the counter's start. `None`: both are unknown, or a part of this time is not visible to the reader.
    #[cold]
    fn growth(&self, before: Option<Point>, point: Point) -> Option<(f64, f64)> {
        let is_visible = |before: &Point| self.seen.joins(before.at.0, point.at.0);
        let before = before.filter(is_visible);
        growth(before.or_else(|| self.zero(point).filter(is_visible))?, point)
    }

    fn close(&mut self) {
        if let Some(bucket) = self.bucket.take() {
            let value = bucket.sum / bucket.weight;
            self.times.push(bucket.start);
            self.values.push(Some(value).filter(|value| value.is_finite()));
            self.seconds.push(bucket.weight);
        }
    }

    pub(crate) fn finish(mut self, help: &HashMap<&str, &Metric>) -> api::RangeSeries {
        self.close();
        let Points { times, values, seconds } =
            with_missing_points(&self.times, &self.values, &self.seconds, self.step);
        let unit = self.info.unit.word();
        let value_unit = if self.rate { format!("{unit}/s") } else { unit.to_owned() };
        let meaning = help.get(&*self.info.series.metric);
        api::RangeSeries {
            series: described(&self.info),
            value_unit,
            help: meaning.map(|metric| metric.help.to_string()).unwrap_or_default(),
            times: times.into_iter().map(|at| Timestamp(at).seconds()).collect(),
            values,
            seconds: if self.rate { seconds } else { Vec::new() },
            totals: None,
        }
    }
}

/// Growth of a counter from one reading to the next, and the seconds between them; `None` at one instant.
pub(crate) fn growth(before: Point, point: Point) -> Option<(f64, f64)> {
    let seconds = point.at.since(before.at) as f64 / 1e6;
    (seconds > 0.0).then(|| (increase(before, point).amount, seconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ranges::range::whole_steps;
    use model::{DeviceId, Labels, RollupWindows, Series, Unit};
    use proptest::prelude::*;
    use storage::Selector;

    const S: i64 = Timestamp::SECOND;
    type Rows = [(i64, f64, Option<i64>)];

    fn info(kind: Kind) -> Arc<SeriesInfo> {
        let metric = if kind == Kind::Counter { "x_seconds_total" } else { "x_seconds" };
        let series = Series {
            device: DeviceId::new("n1").unwrap(),
            metric: Arc::from(metric),
            job: None,
            labels: Labels::default(),
        };
        Arc::new(SeriesInfo { series, unit: Unit::Seconds, kind, divisor: 1 })
    }

    fn query((from, to): (i64, i64), step: i64, rate: Rate) -> RangeQuery {
        let (from, to) = (Timestamp(from * S), Timestamp(to * S));
        RangeQuery { select: Selector::default(), from, to, step_us: step * S, rate }
    }

    fn chunk(info: &Arc<SeriesInfo>, rows: &Rows) -> Chunk {
        let at = |start: Option<i64>| start.map(|start| Timestamp(start * S));
        Chunk {
            series: Arc::clone(info),
            times: rows.iter().map(|row| row.0 * S).collect(),
            values: rows.iter().map(|row| row.1).collect(),
            starts: rows.iter().enumerate().map(|(row, (_, _, start))| (row, at(*start))).collect(),
        }
    }

    fn line(kind: Kind, from: i64, to: i64, step: i64, rows: &Rows) -> api::RangeSeries {
        let info = info(kind);
        let query = query((from, to), step, Rate::Counters);
        let mut line = SeriesPoints::new(&info, &query, query.from, &Visibility::Always);
        line.take(&chunk(&info, rows));
        line.finish(&HashMap::new())
    }

    /// The points by definition: sample by sample, each assigned to its step by a division.
    fn points_by_definition(
        like: &SeriesPoints,
        rows: &[(i64, f64, Option<i64>)],
    ) -> Vec<(i64, u64, u64)> {
        let (mut buckets, mut before) = (Vec::<Bucket>::new(), None::<Point>);
        for (row, (at, value, start)) in rows.iter().enumerate() {
            let again = like.rate && rows.get(row + 1).is_some_and(|(next, ..)| next == at);
            if again || !like.seen.at(at * S) {
                continue;
            }
            let start = start.map(|start| Timestamp(start * S));
            let point = Point { at: Timestamp(at * S), value: *value, start };
            let zero = point.zero().filter(|zero| zero.at.0 >= like.since);
            let joins = |before: &Point| like.seen.joins(before.at.0, point.at.0);
            let grown = before.into_iter().chain(zero).find(joins).and_then(|before| {
                let seconds = point.at.since(before.at) as f64 / 1e6;
                (seconds > 0.0).then(|| (increase(before, point).amount, seconds))
            });
            before = Some(point);
            let added = if like.rate { grown } else { Some((*value, 1.0)) };
            let Some((sum, weight)) = added.filter(|_| (like.from..=like.to).contains(&(at * S)))
            else {
                continue;
            };
            let start = if like.step > 0 { at * S / like.step * like.step } else { at * S };
            match buckets.last_mut().filter(|last| last.start == start && like.step > 0) {
                Some(last) if like.info.kind == Kind::Counter && !like.rate => last.sum = sum,
                Some(last) => (last.sum, last.weight) = (last.sum + sum, last.weight + weight),
                None => buckets.push(Bucket { start, end: start, sum, weight }),
            }
        }
        let bits =
            |one: &Bucket| (one.start, (one.sum / one.weight).to_bits(), one.weight.to_bits());
        buckets.iter().map(bits).collect()
    }

    proptest! {
        /// Samples in runs and chunks give, bit by bit, the points that the definition gives.
        #[test]
        fn chunks_give_the_points_of_the_definition(
            steps in prop::collection::vec((0_i64..9, -5_i32..20, 0_usize..4), 0..60),
            cuts in prop::collection::vec(0_usize..60, 0..4),
            (counter, rate, step) in (any::<bool>(), any::<bool>(), 0_i64..20),
            seen in prop::option::of((100_i64..200, 1_i64..150)),
        ) {
            let (mut at, mut value) = (100, 3.25_f64);
            let rows: Vec<_> = steps.into_iter().map(|(dt, change, start)| {
                at += dt;
                value = (value + f64::from(change) / 3.0).max(0.0);
                (at, value, [None, Some(90), Some(130), Some(180)][start])
            }).collect();
            let info = info(if counter { Kind::Counter } else { Kind::Gauge });
            let rate = if rate { Rate::Counters } else { Rate::Raw };
            let query = query((110, 260), step, rate);
            let seen = seen.map_or(Visibility::Always, |(from, length)| {
                Visibility::within(vec![(from * S, (from + length) * S)])
            });
            let mut line = SeriesPoints::new(&info, &query, Timestamp(95 * S), &seen);
            let want = points_by_definition(&line, &rows);
            // A chunk does not end between two samples of one instant.
            let apart = |cut: &usize| *cut > 0 && *cut < rows.len() && rows[cut - 1].0 < rows[*cut].0;
            let mut cuts: Vec<usize> = cuts.into_iter().filter(apart).chain([0, rows.len()]).collect();
            cuts.sort_unstable();
            for part in cuts.windows(2) {
                line.take(&chunk(&info, &rows[part[0]..part[1]]));
            }
            line.close();
            let have = line.times.iter().zip(&line.values).zip(&line.seconds);
            let bits = |((at, value), seconds): ((&i64, &Option<f64>), &f64)| {
                (*at, value.unwrap().to_bits(), seconds.to_bits())
            };
            prop_assert_eq!(have.map(bits).collect::<Vec<_>>(), want);
        }

        /// Steps of 1 h have the same points from samples, from windows of 5 min and from windows of 1 h.
        #[test]
        fn rollups_give_the_points_that_samples_give(
            steps in prop::collection::vec((1_i64..900, -50_i32..200, any::<bool>()), 1..120),
            counter in any::<bool>(),
            rate in any::<bool>(),
        ) {
            let kind = if counter { Kind::Counter } else { Kind::Gauge };
            let (mut at, mut value, mut start) = (3000, 0.0_f64, 2990);
            let rows: Vec<_> = steps.into_iter().map(|(dt, change, reported)| {
                at += dt;
                value += f64::from(change);
                if counter && value < 0.0 {
                    value = 0.0;
                    start = if reported { at - 1 } else { start };
                }
                (at, value, reported.then_some(start))
            }).collect();
            let info = info(kind);
            let rate = if rate { Rate::Counters } else { Rate::Raw };
            let aligned = whole_steps(&query((5000, 40_000), 3600, rate), 3600 * S);
            prop_assert_eq!((aligned.from.0, aligned.to.0), (3600 * S, 43_200 * S - 1));
            let first = aligned.from.plus(-3600 * S);
            let chunk = chunk(&info, &rows);
            let mut line = SeriesPoints::new(&info, &aligned, first, &Visibility::Always);
            line.take(&chunk);
            let want = line.finish(&HashMap::new());
            for window in storage::WINDOWS_US {
                let mut rolled = RollupWindows::new(window);
                let mut windows = Vec::new();
                for (at, value, start) in chunk.rows() {
                    windows.extend(rolled.push(Point { at, value, start }));
                }
                windows.extend(rolled.finish());
                windows.retain(|(start, _)| *start >= first && *start <= aligned.to);
                let mut line = SeriesPoints::new(&info, &aligned, first, &Visibility::Always);
                prop_assert!(line.take_windows(&windows));
                let have = line.finish(&HashMap::new());
                prop_assert_eq!(&have.times, &want.times);
                for (have, want) in have.values.iter().zip(&want.values) {
                    let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * a.abs().max(1.0);
                    prop_assert!(match (have, want) {
                        (Some(have), Some(want)) => near(*have, *want),
                        (have, want) => have == want,
                    }, "{have:?} for {want:?}");
                }
            }
        }
    }

    #[test]
    fn gauges_are_averaged_in_steps_at_whole_multiples() {
        let rows = [(98, 9.0, None), (101, 1.0, None), (103, 3.0, None), (106, 5.0, None)];
        let shown = line(Kind::Gauge, 100, 110, 5, &rows);
        assert_eq!((shown.times, shown.values), (vec![100.0, 105.0], vec![Some(2.0), Some(5.0)]));
        assert_eq!(shown.value_unit, "seconds");
    }

    #[test]
    fn a_rate_is_growth_over_the_time_it_took() {
        // 2 per second, read every 2 s, in steps of 5 s with two or three readings each.
        let rows: Vec<_> = (0..15).map(|i| (2 * i, 4.0 * i as f64, None)).collect();
        let shown = line(Kind::Counter, 10, 28, 5, &rows);
        assert_eq!(shown.times, [10.0, 15.0, 20.0, 25.0]);
        assert_eq!(shown.values, [Some(2.0); 4]);
        assert_eq!(shown.seconds, [6.0, 4.0, 6.0, 4.0]);
        assert_eq!(shown.value_unit, "seconds/s");
    }

    #[test]
    fn a_counter_that_begins_counts_from_its_start() {
        let rows = [(12, 6.0, Some(10)), (14, 10.0, Some(10))];
        assert_eq!(line(Kind::Counter, 10, 20, 0, &rows).values, [Some(3.0), Some(2.0)]);
        // The counter started before the range: its first reading yields no growth.
        assert_eq!(line(Kind::Counter, 11, 20, 0, &rows).values, [Some(2.0)]);
    }

    #[test]
    fn missing_samples_leave_no_points_and_their_growth_makes_no_peak() {
        let rows =
            [(0, 0.0, None), (1, 1.0, None), (2, 2.0, None), (12, 12.0, None), (13, 13.0, None)];
        let shown = line(Kind::Counter, 0, 20, 1, &rows);
        assert_eq!(shown.times, [1.0, 2.0, 7.0, 12.0, 13.0]);
        assert_eq!(shown.values, [Some(1.0), Some(1.0), None, Some(1.0), Some(1.0)]);
        let raw = line(Kind::Gauge, 0, 20, 0, &rows[..3]);
        assert_eq!(raw.values.len(), 3, "no hole in an even line");
    }

    #[test]
    fn what_is_no_number_is_no_value() {
        let rows = [(0, f64::NAN, None), (1, 1.0, None)];
        assert_eq!(line(Kind::Gauge, 0, 9, 0, &rows).values, [None, Some(1.0)]);
    }
}
