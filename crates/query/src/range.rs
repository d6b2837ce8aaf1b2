//! Points of series over time, to plot: cut into steps, counters as rates.

use crate::lists::{described, gap};
use crate::sight::Sight;
use crate::{Asker, QueryError, Questions, RangeQuestion, Rate};
use model::{Kind, Metric, Point, Timestamp, increase};
use std::collections::HashMap;
use std::sync::Arc;
use store::{Chunk, SeriesInfo};

/// How far back the reading before a range is looked for, so that its first point has a rate.
const BEFORE_MIN: i64 = 120 * Timestamp::SECOND;

/// How many usual distances may lie between two points before a hole is drawn.
const HOLE: f64 = 2.5;

impl Questions {
    /// Points of series over time. What passes the limits of series and points is cut, and said.
    ///
    /// # Errors
    /// A block cannot be read; the registry fails; it was cancelled.
    pub fn range(&self, question: &RangeQuestion, asker: &Asker) -> Result<api::Range, QueryError> {
        let mut sight = Sight::new(&self.registry, asker.reader);
        let metrics = self.store.catalogue();
        let help: HashMap<&str, &Metric> =
            metrics.iter().map(|metric| (&*metric.name, &**metric)).collect();
        let step = question.step_us.max(0);
        let first = question.from.plus(-BEFORE_MIN.max(step));
        let (mut series, mut points, mut truncated) = (Vec::new(), 0_usize, false);
        let mut line: Option<LineOf> = None;
        let mut close = |line: LineOf, series: &mut Vec<api::RangeSeries>| {
            let shown = line.finish(&help);
            if shown.times.is_empty() {
                return true;
            }
            points = points.saturating_add(shown.times.len());
            let room =
                points <= self.settings.points_max && series.len() < self.settings.series_max;
            if room {
                series.push(shown);
            }
            room
        };
        for chunk in self.store.snapshot().scan(&question.select, first, question.to) {
            asker.cancel.check()?;
            let chunk = chunk?;
            if !sight.sees(chunk.series.series.job.as_ref())? {
                continue;
            }
            let same = line.as_ref().is_some_and(|line| Arc::ptr_eq(&line.info, &chunk.series));
            if !same {
                let next = LineOf::new(&chunk.series, question, step);
                if let Some(done) = line.replace(next)
                    && !close(done, &mut series)
                {
                    (truncated, line) = (true, None);
                    break;
                }
            }
            if let Some(line) = &mut line {
                line.take(&chunk);
            }
        }
        if let Some(done) = line {
            truncated |= !close(done, &mut series);
        }
        Ok(api::Range {
            start: question.from.seconds(),
            end: question.to.seconds(),
            step_seconds: step as f64 / 1e6,
            gaps: self.gaps_of(question),
            series,
            truncated,
        })
    }

    fn gaps_of(&self, question: &RangeQuestion) -> Vec<api::Gap> {
        let (from, to) = (question.from, question.to);
        match &question.select.devices {
            None => self.gaps(from, to, None),
            Some(devices) => {
                let of = |device| self.store.gaps(from, to, Some(device));
                devices.iter().flat_map(of).map(|found| gap(&found)).collect()
            }
        }
    }
}

/// A series being turned into points.
#[derive(Debug)]
struct LineOf {
    info: Arc<SeriesInfo>,
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
    fn new(info: &Arc<SeriesInfo>, question: &RangeQuestion, step: i64) -> Self {
        let rate = info.kind == Kind::Counter && question.rate == Rate::Counters;
        let (from, to) = (question.from.0, question.to.0);
        let (times, values) = (Vec::new(), Vec::new());
        let info = Arc::clone(info);
        Self { info, from, to, step, rate, before: None, bucket: None, times, values }
    }

    fn take(&mut self, chunk: &Chunk) {
        for (at, value, start) in chunk.rows() {
            let point = Point { at, value, start };
            if at.0 >= self.from && at.0 <= self.to {
                self.add(point);
            }
            self.before = Some(point);
        }
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
        let start =
            if self.step > 0 { point.at.0.div_euclid(self.step) * self.step } else { point.at.0 };
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
    /// reading since its start, if that lies within the range. `None`: nothing to compare with.
    fn growth(&self, point: Point) -> Option<(f64, f64)> {
        let before = match (self.before, point.start) {
            (Some(before), _) => before,
            (None, Some(start)) if start.0 >= self.from => Point { at: start, value: 0.0, ..point },
            (None, _) => return None,
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

/// The points with one without a value in the middle of each hole.
fn with_holes(times: &[i64], values: &[Option<f64>], step: i64) -> (Vec<i64>, Vec<Option<f64>>) {
    let mut distances: Vec<i64> =
        times.iter().zip(times.iter().skip(1)).map(|(a, b)| b.saturating_sub(*a)).collect();
    distances.sort_unstable();
    let usual = distances.get(distances.len() / 2).copied().unwrap_or(0).max(step);
    let hole = usual as f64 * HOLE;
    let (mut out_times, mut out_values) = (Vec::new(), Vec::new());
    let mut before: Option<i64> = None;
    for (at, value) in times.iter().zip(values) {
        if let Some(before) = before
            && at.saturating_sub(before) as f64 > hole
        {
            out_times.push(before + (at - before) / 2);
            out_values.push(None);
        }
        out_times.push(*at);
        out_values.push(*value);
        before = Some(*at);
    }
    (out_times, out_values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{DeviceId, Labels, Series, Unit};
    use store::Selector;

    fn line(
        kind: Kind,
        from: i64,
        to: i64,
        step: i64,
        rows: &[(i64, f64, Option<i64>)],
    ) -> api::RangeSeries {
        let second = Timestamp::SECOND;
        let series = Series {
            device: DeviceId::new("n1").unwrap(),
            metric: Arc::from("x_seconds_total"),
            job: None,
            labels: Labels::default(),
        };
        let info = Arc::new(SeriesInfo { series, unit: Unit::Seconds, kind, divisor: 1 });
        let question = RangeQuestion {
            select: Selector::default(),
            from: Timestamp(from * second),
            to: Timestamp(to * second),
            step_us: step * second,
            rate: Rate::Counters,
        };
        let mut line = LineOf::new(&info, &question, step * second);
        let at = |start: Option<i64>| start.map(|start| Timestamp(start * second));
        let starts =
            rows.iter().enumerate().map(|(row, (_, _, start))| (row, at(*start))).collect();
        line.take(&Chunk {
            series: Arc::clone(&info),
            times: rows.iter().map(|row| row.0 * second).collect(),
            values: rows.iter().map(|row| row.1).collect(),
            starts,
        });
        line.finish(&HashMap::new())
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
    fn what_is_no_number_is_no_value() {
        let rows = [(0, f64::NAN, None), (1, 1.0, None)];
        assert_eq!(line(Kind::Gauge, 0, 9, 0, &rows).values, [None, Some(1.0)]);
    }
}
