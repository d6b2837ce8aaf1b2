//! Points of series over time, to plot: cut into steps, counters as rates.

use crate::lists::{described, gap};
use crate::sight::{Seen, Sight};
use crate::summary::seen_windows;
use crate::{Asker, QueryError, Questions, RangeQuestion, Rate, Settings};
use model::{Kind, Metric, Point, Rollup, Timestamp, increase};
use std::collections::HashMap;
use std::sync::Arc;
use store::{Chunk, Selector, SeriesInfo, Store};

/// How far back the reading before a range is looked for, so that its first point has a rate.
const BEFORE_MIN: i64 = 120 * Timestamp::SECOND;

/// So many distances to each side say what is usual around a place.
const AROUND: usize = 3;
/// How many usual distances may lie between two points before a hole is drawn.
const HOLE: f64 = 2.5;

impl Questions {
    /// Points of series over time. What passes the limits of series and points is cut, and said.
    ///
    /// Steps that are whole multiples of a rollup's window are made of the longest such windows, and are
    /// whole: the first and the last one reach beyond the range.
    ///
    /// # Errors
    /// A block cannot be read; the registry fails; it was cancelled.
    pub fn range(&self, question: &RangeQuestion, asker: &Asker) -> Result<api::Range, QueryError> {
        let devices = question.select.devices.as_ref();
        let mut sight = Sight::new(self, asker, reach(question), devices);
        let metrics = self.store.catalogue();
        let help: HashMap<&str, &Metric> =
            metrics.iter().map(|metric| (&*metric.name, &**metric)).collect();
        let step = question.step_us.max(0);
        let window = Store::WINDOWS_US.into_iter().rev().find(|w| step > 0 && step % w == 0);
        let mut shown = Shown::new(&self.settings, help);
        let snapshot = self.store.snapshot();
        match window {
            Some(window) => {
                let whole = whole_steps(question, step);
                let first = whole.from.plus(-step);
                for found in snapshot.windows(&whole.select, first, whole.to, window) {
                    asker.cancel.check()?;
                    let found = found?;
                    let series = &found.series.series;
                    let seen = sight.of(&series.device, series.job.as_ref())?;
                    if !seen.touches(first.0, whole.to.0) {
                        continue;
                    }
                    let select = Selector::of(series);
                    let found = seen_windows(&snapshot, found, &seen, window, &asker.cancel)?;
                    let mut line = LineOf::new(&found.series, &whole, step, &seen);
                    if !line.take_windows(&found.windows) {
                        line = LineOf::new(&found.series, &whole, step, &seen);
                        for chunk in snapshot.scan(&select, first, whole.to) {
                            line.take(&chunk?);
                        }
                    }
                    if !shown.close(line) {
                        break;
                    }
                }
            }
            None => {
                let first = question.from.plus(-BEFORE_MIN.max(step));
                let mut line: Option<LineOf> = None;
                for chunk in snapshot.scan(&question.select, first, question.to) {
                    asker.cancel.check()?;
                    let chunk = chunk?;
                    let series = &chunk.series.series;
                    let seen = sight.of(&series.device, series.job.as_ref())?;
                    if !seen.touches(first.0, question.to.0) {
                        continue;
                    }
                    let same = |line: &LineOf| Arc::ptr_eq(&line.info, &chunk.series);
                    if !line.as_ref().is_some_and(same) {
                        let next = LineOf::new(&chunk.series, question, step, &seen);
                        if let Some(done) = line.replace(next)
                            && !shown.close(done)
                        {
                            line = None;
                            break;
                        }
                    }
                    line.iter_mut().for_each(|line| line.take(&chunk));
                }
                line.map(|line| shown.close(line));
            }
        }
        Ok(api::Range {
            start: question.from.seconds(),
            end: question.to.seconds(),
            step_seconds: step as f64 / 1e6,
            rollup_seconds: window.map_or(0.0, |window| window as f64 / 1e6),
            gaps: self.gaps_of(question, asker)?,
            series: shown.series,
            truncated: shown.truncated,
        })
    }

    fn gaps_of(&self, of: &RangeQuestion, asker: &Asker) -> Result<Vec<api::Gap>, QueryError> {
        let span = (of.from, of.to);
        let Some(devices) = &of.select.devices else {
            return Ok(self.gaps(span, None, asker)?.iter().map(gap).collect());
        };
        let mut gaps = Vec::new();
        for device in devices {
            gaps.extend(self.gaps(span, Some(device), asker)?.iter().map(gap));
        }
        Ok(gaps)
    }
}

/// From when until when something may be read.
fn reach(question: &RangeQuestion) -> (Timestamp, Timestamp) {
    let before = BEFORE_MIN.max(question.step_us.saturating_mul(2));
    (question.from.plus(-before), question.to.plus(question.step_us.max(0)))
}

/// The range widened to whole steps.
fn whole_steps(question: &RangeQuestion, step: i64) -> RangeQuestion {
    let begin = |at: Timestamp| at.0.div_euclid(step).saturating_mul(step);
    RangeQuestion {
        select: question.select.clone(),
        from: Timestamp(begin(question.from)),
        to: Timestamp(begin(question.to).saturating_add(step - 1)),
        ..*question
    }
}

/// The series that are shown, as far as there is room.
struct Shown<'a> {
    help: HashMap<&'a str, &'a Metric>,
    points_max: usize,
    series_max: usize,
    points: usize,
    series: Vec<api::RangeSeries>,
    truncated: bool,
}

impl<'a> Shown<'a> {
    fn new(settings: &Settings, help: HashMap<&'a str, &'a Metric>) -> Self {
        let Settings { points_max, series_max, .. } = *settings;
        Self { help, points_max, series_max, points: 0, series: Vec::new(), truncated: false }
    }

    /// Takes a line that is complete; false when there is no room.
    fn close(&mut self, line: LineOf) -> bool {
        let shown = line.finish(&self.help);
        if shown.times.is_empty() {
            return true;
        }
        self.points = self.points.saturating_add(shown.times.len());
        let room = self.points <= self.points_max && self.series.len() < self.series_max;
        if room {
            self.series.push(shown);
        }
        self.truncated |= !room;
        room
    }
}

/// A series being turned into points.
#[derive(Debug)]
struct LineOf {
    info: Arc<SeriesInfo>,
    seen: Seen,
    from: i64,
    to: i64,
    step: i64,
    /// Whether a counter is shown as what it grows by.
    rate: bool,
    before: Option<Point>,
    bucket: Option<Bucket>,
    times: Vec<i64>,
    values: Vec<Option<f64>>,
}

/// A step being filled.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    start: i64,
    /// Gauges: the sum of the values. Rates: the growth. Counters as they are: the last value.
    sum: f64,
    /// Gauges: how many values. Rates: the seconds that the growth took.
    weight: f64,
}

impl LineOf {
    fn new(info: &Arc<SeriesInfo>, question: &RangeQuestion, step: i64, seen: &Seen) -> Self {
        let rate = info.kind == Kind::Counter && question.rate == Rate::Counters;
        let (from, to) = (question.from.0, question.to.0);
        let (times, values) = (Vec::new(), Vec::new());
        let (info, seen) = (Arc::clone(info), seen.clone());
        Self { info, seen, from, to, step, rate, before: None, bucket: None, times, values }
    }

    fn take(&mut self, chunk: &Chunk) {
        for (at, value, start) in chunk.rows() {
            if !self.seen.at(at.0) {
                continue;
            }
            let point = Point { at, value, start };
            if at.0 >= self.from && at.0 <= self.to {
                self.add(point);
            }
            self.before = Some(point);
        }
    }

    /// The same for windows; false where they do not tell what is shown.
    fn take_windows(&mut self, windows: &[(Timestamp, Rollup)]) -> bool {
        for (start, rollup) in windows {
            if start.0 >= self.from && start.0 <= self.to {
                let (sum, weight) = if self.rate {
                    let begun = self.growth(rollup.first);
                    let (grown, seconds) = begun.unwrap_or((0.0, 0.0));
                    let within = rollup.last.at.since(rollup.first.at) as f64 / 1e6;
                    (grown + rollup.increase(), seconds + within)
                } else if self.info.kind == Kind::Counter {
                    (rollup.last.value, 1.0)
                } else if store::is_total(&self.info.series.metric) {
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

    fn add(&mut self, point: Point) {
        let (sum, weight) = if self.rate {
            match self.growth(point) {
                Some(growth) => growth,
                None => return,
            }
        } else {
            (point.value, 1.0)
        };
        self.put(point.at.0, sum, weight);
    }

    /// Adds to the step that an instant lies in.
    fn put(&mut self, at: i64, sum: f64, weight: f64) {
        let start = if self.step > 0 { at.div_euclid(self.step) * self.step } else { at };
        match &mut self.bucket {
            Some(bucket) if bucket.start == start && self.step > 0 => {
                let last = self.info.kind == Kind::Counter && !self.rate;
                bucket.sum = if last { sum } else { bucket.sum + sum };
                bucket.weight = if last { 1.0 } else { bucket.weight + weight };
            }
            _ => {
                self.close();
                self.bucket = Some(Bucket { start, sum, weight });
            }
        }
    }

    /// What a counter grew by since the reading before, and the seconds that took; for the first
    /// reading since its start, if that lies within the range. `None`: nothing to compare with that is seen
    /// all the way from there.
    fn growth(&self, point: Point) -> Option<(f64, f64)> {
        let before = match (self.before, point.start) {
            (Some(before), _) if self.seen.joins(before.at.0, point.at.0) => before,
            (_, Some(start)) if start.0 >= self.from && self.seen.joins(start.0, point.at.0) => {
                Point { at: start, value: 0.0, ..point }
            }
            _ => return None,
        };
        let seconds = point.at.since(before.at) as f64 / 1e6;
        (seconds > 0.0).then(|| (increase(before, point).amount, seconds))
    }

    fn close(&mut self) {
        if let Some(bucket) = self.bucket.take() {
            let value = bucket.sum / bucket.weight;
            self.times.push(bucket.start);
            self.values.push(Some(value).filter(|value| value.is_finite()));
        }
    }

    fn finish(mut self, help: &HashMap<&str, &Metric>) -> api::RangeSeries {
        self.close();
        let (times, values) = with_holes(&self.times, &self.values, self.step);
        let unit = self.info.unit.word();
        let value_unit = if self.rate { format!("{unit}/s") } else { unit.to_owned() };
        let meaning = help.get(&*self.info.series.metric);
        api::RangeSeries {
            series: described(&self.info),
            value_unit,
            help: meaning.map(|metric| metric.help.to_string()).unwrap_or_default(),
            times: times.into_iter().map(|at| Timestamp(at).seconds()).collect(),
            values,
        }
    }
}

/// The points with one without a value in the middle of each hole. A series that is read more often for a
/// while has no holes where it is read as before: what counts is the distance that is usual around.
fn with_holes(times: &[i64], values: &[Option<f64>], step: i64) -> (Vec<i64>, Vec<Option<f64>>) {
    let distances: Vec<i64> =
        times.iter().zip(times.iter().skip(1)).map(|(a, b)| b.saturating_sub(*a)).collect();
    let usual = upper_median(&mut distances.clone()).max(step);
    let (mut out_times, mut out_values) = (Vec::new(), Vec::new());
    let mut before: Option<(usize, i64)> = None;
    for (place, (at, value)) in times.iter().zip(values).enumerate() {
        if let Some((between, before)) = before {
            let distance = at.saturating_sub(before) as f64;
            let is_hole = distance > usual as f64 * HOLE
                && distance > usual_around(&distances, between) as f64 * HOLE;
            if is_hole {
                out_times.push(before + (at - before) / 2);
                out_values.push(None);
            }
        }
        out_times.push(*at);
        out_values.push(*value);
        before = Some((place, *at));
    }
    (out_times, out_values)
}

/// The usual one of the three distances before a place and the three after it.
fn usual_around(distances: &[i64], place: usize) -> i64 {
    let near = distances.iter().enumerate().skip(place.saturating_sub(AROUND)).take(2 * AROUND + 1);
    let mut others = [0; 2 * AROUND];
    let mut count = 0;
    let near = near.filter(|(at, _)| *at != place && *at <= place + AROUND);
    for (other, (_, distance)) in others.iter_mut().zip(near) {
        *other = *distance;
        count += 1;
    }
    upper_median(others.get_mut(..count).unwrap_or_default())
}

fn upper_median(distances: &mut [i64]) -> i64 {
    distances.sort_unstable();
    distances.get(distances.len() / 2).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{DeviceId, Labels, RollupWindows, Series, Unit};
    use proptest::prelude::*;

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

    fn question((from, to): (i64, i64), step: i64, rate: Rate) -> RangeQuestion {
        let (from, to) = (Timestamp(from * S), Timestamp(to * S));
        RangeQuestion { select: Selector::default(), from, to, step_us: step * S, rate }
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
        let question = question((from, to), step, Rate::Counters);
        let mut line = LineOf::new(&info, &question, step * S, &Seen::Always);
        line.take(&chunk(&info, rows));
        line.finish(&HashMap::new())
    }

    proptest! {
        /// Steps of an hour are the same, be they made of samples, of five minutes or of hours.
        #[test]
        fn rollups_give_the_points_that_samples_give(
            steps in prop::collection::vec((1_i64..900, -50_i32..200, any::<bool>()), 1..120),
            counter in any::<bool>(),
            rate in any::<bool>(),
        ) {
            let kind = if counter { Kind::Counter } else { Kind::Gauge };
            let (mut at, mut value, mut start) = (3000, 0.0_f64, 2990);
            let rows: Vec<_> = steps.into_iter().map(|(dt, change, told)| {
                at += dt;
                value += f64::from(change);
                if counter && value < 0.0 {
                    value = 0.0;
                    start = if told { at - 1 } else { start };
                }
                (at, value, told.then_some(start))
            }).collect();
            let info = info(kind);
            let rate = if rate { Rate::Counters } else { Rate::Raw };
            let asked = whole_steps(&question((5000, 40_000), 3600, rate), 3600 * S);
            prop_assert_eq!((asked.from.0, asked.to.0), (3600 * S, 43_200 * S - 1));
            let first = asked.from.plus(-3600 * S);
            let chunk = chunk(&info, &rows);
            let mut line = LineOf::new(&info, &asked, 3600 * S, &Seen::Always);
            line.take(&chunk);
            let want = line.finish(&HashMap::new());
            for window in Store::WINDOWS_US {
                let mut rolled = RollupWindows::new(window);
                let mut windows = Vec::new();
                for (at, value, start) in chunk.rows() {
                    windows.extend(rolled.push(Point { at, value, start }));
                }
                windows.extend(rolled.finish());
                windows.retain(|(start, _)| *start >= first && *start <= asked.to);
                let mut line = LineOf::new(&info, &asked, 3600 * S, &Seen::Always);
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
        // 2 a second, read every 2 s, shown in steps of 5 s, which hold two or three readings.
        let rows: Vec<_> = (0..15).map(|i| (2 * i, 4.0 * i as f64, None)).collect();
        let shown = line(Kind::Counter, 10, 28, 5, &rows);
        assert_eq!(shown.times, [10.0, 15.0, 20.0, 25.0]);
        assert_eq!(shown.values, [Some(2.0); 4]);
        assert_eq!(shown.value_unit, "seconds/s");
    }

    #[test]
    fn a_counter_that_begins_counts_from_its_start() {
        let rows = [(12, 6.0, Some(10)), (14, 10.0, Some(10))];
        assert_eq!(line(Kind::Counter, 10, 20, 0, &rows).values, [Some(3.0), Some(2.0)]);
        // Begun before the range: its first reading tells nothing.
        assert_eq!(line(Kind::Counter, 11, 20, 0, &rows).values, [Some(2.0)]);
    }

    #[test]
    fn a_hole_is_a_hole_and_its_growth_makes_no_peak() {
        let rows =
            [(0, 0.0, None), (1, 1.0, None), (2, 2.0, None), (12, 12.0, None), (13, 13.0, None)];
        let shown = line(Kind::Counter, 0, 20, 1, &rows);
        assert_eq!(shown.times, [1.0, 2.0, 7.0, 12.0, 13.0]);
        assert_eq!(shown.values, [Some(1.0), Some(1.0), None, Some(1.0), Some(1.0)]);
        let raw = line(Kind::Gauge, 0, 20, 0, &rows[..3]);
        assert_eq!(raw.values.len(), 3, "no hole in an even line");
    }

    #[test]
    fn a_series_that_was_read_more_often_for_a_while_has_no_holes() {
        let slow = |from: i64| (0..12).map(move |n| from + 2000 * n);
        let fast = (0..50).map(|n| 24_000 + 200 * n);
        let times: Vec<i64> = slow(0).chain(fast).chain(slow(34_000)).collect();
        let values: Vec<_> = times.iter().map(|at| Some(*at as f64)).collect();
        assert_eq!(with_holes(&times, &values, 0).0, times);
        // Of what is missing in either part, something is shown.
        let missing = |at: &&i64| !(26_000..28_000).contains(*at) && !(4000..9000).contains(*at);
        let kept: Vec<i64> = times.iter().filter(missing).copied().collect();
        let (shown, values) = with_holes(&kept, &vec![Some(1.0); kept.len()], 0);
        let holes: Vec<i64> =
            shown.iter().zip(values).filter(|(_, v)| v.is_none()).map(|(at, _)| *at).collect();
        assert_eq!(holes, [6000, 26_900]);
    }

    #[test]
    fn what_is_no_number_is_no_value() {
        let rows = [(0, f64::NAN, None), (1, 1.0, None)];
        assert_eq!(line(Kind::Gauge, 0, 9, 0, &rows).values, [None, Some(1.0)]);
    }
}
