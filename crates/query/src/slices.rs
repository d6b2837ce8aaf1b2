//! Samples in the order of time, on their way to rows: read, summed up to five minutes, turned to
//! rates. Each stage keeps one state a series and gives slices like those it takes.

use crate::print::SCRAPE_TIME;
use crate::{AsRate, Cancel, QueryError};
use model::{Kind, Point, Series, Timestamp, increase};
use std::collections::HashMap;
use std::sync::Arc;
use store::{ByTime, SeriesInfo, TimeSlice};

/// A summary's bucket, in microseconds.
pub(crate) const BUCKET: i64 = 300 * Timestamp::SECOND;

/// Samples in the order of time, those of one instant in the order of their series. No instant is cut.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slice {
    pub(crate) series: Vec<Arc<SeriesInfo>>,
    pub(crate) places: Vec<u32>,
    pub(crate) times: Vec<i64>,
    pub(crate) values: Vec<f64>,
    pub(crate) starts: Vec<i64>,
    /// Whether a row has a value at all; empty: each has.
    pub(crate) valid: Vec<bool>,
}

impl Slice {
    /// The series of a row.
    fn series_of(&self, row: usize) -> Option<&Arc<SeriesInfo>> {
        self.series.get(usize::try_from(*self.places.get(row)?).ok()?)
    }

    /// The rows: place, instant, value, start.
    fn rows(&self) -> impl Iterator<Item = (u32, i64, f64, i64)> {
        let places = self.places.iter().copied().zip(self.times.iter().copied());
        places
            .zip(self.values.iter().copied().zip(self.starts.iter().copied()))
            .map(|((place, at), (value, start))| (place, at, value, start))
    }
}

impl From<TimeSlice> for Slice {
    fn from(slice: TimeSlice) -> Self {
        let TimeSlice { series, places, times, values, starts } = slice;
        Self { series, places, times, values, starts, valid: Vec::new() }
    }
}

/// The stages in a row.
#[derive(Debug)]
pub(crate) struct Slices {
    walk: ByTime,
    summary: Option<Summary>,
    rates: Option<Rates>,
    cancel: Cancel,
    done: bool,
}

impl Slices {
    pub(crate) fn new(walk: ByTime, summary: bool, as_rate: AsRate, cancel: Cancel) -> Self {
        let rates = (as_rate != AsRate::No).then(|| Rates::new(as_rate));
        Self { walk, summary: summary.then(Summary::default), rates, cancel, done: false }
    }

    fn read(&mut self) -> Result<Option<Slice>, QueryError> {
        loop {
            self.cancel.check()?;
            let slice = self.walk.next().transpose()?.map(Slice::from);
            let slice = match (&mut self.summary, slice) {
                (None, slice) => slice,
                (Some(summary), Some(slice)) => match summary.take(&slice) {
                    ready if ready.times.is_empty() => continue,
                    ready => Some(ready),
                },
                (Some(summary), None) => summary.finish(),
            };
            let Some(mut slice) = slice else { return Ok(None) };
            if let Some(rates) = &mut self.rates {
                rates.turn(&mut slice);
            }
            return Ok(Some(slice));
        }
    }
}

impl Iterator for Slices {
    type Item = Result<Slice, QueryError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let next = self.read().transpose();
        self.done = !matches!(next, Some(Ok(_)));
        next
    }
}

/// Where a series is found: the same for one series all through a walk, as long as somebody holds it.
pub(crate) fn address(info: &Arc<SeriesInfo>) -> usize {
    Arc::as_ptr(info).addr()
}

/// Values of five minutes each, standing at their beginning: the largest of a metric whose name ends in
/// `_total`, the mean of any other. A value that is no number makes the bucket's none.
#[derive(Debug, Default)]
struct Summary {
    bucket: i64,
    /// Which sum a series of the walk goes into; several series, where only the time of the scrape
    /// tells them apart.
    sums_of: HashMap<usize, usize>,
    by_series: HashMap<Series, usize>,
    sums: Vec<Sum>,
    /// The sums that have a value in this bucket.
    touched: Vec<usize>,
    /// Series of the walk, kept so that no address is given to another.
    held: Vec<Arc<SeriesInfo>>,
}

#[derive(Debug)]
struct Sum {
    info: Arc<SeriesInfo>,
    largest: bool,
    count: u32,
    value: f64,
}

impl Summary {
    fn take(&mut self, slice: &Slice) -> Slice {
        let places: Vec<usize> = slice.series.iter().map(|info| self.sum_of(info)).collect();
        let mut ready = Slice::default();
        for (place, at, value, _) in slice.rows() {
            let bucket = at.div_euclid(BUCKET) * BUCKET;
            if bucket != self.bucket {
                self.close(&mut ready);
                self.bucket = bucket;
            }
            let place = usize::try_from(place).ok().and_then(|place| places.get(place));
            let Some((place, sum)) = place.and_then(|p| Some((*p, self.sums.get_mut(*p)?))) else {
                continue;
            };
            if sum.count == 0 {
                self.touched.push(place);
                sum.value = value;
            } else if !sum.largest {
                sum.value += value;
            } else if value > sum.value || value.is_nan() {
                sum.value = value;
            }
            sum.count = sum.count.saturating_add(1);
        }
        ready
    }

    fn finish(&mut self) -> Option<Slice> {
        let mut ready = Slice::default();
        self.close(&mut ready);
        (!ready.times.is_empty()).then_some(ready)
    }

    /// Ends the bucket at hand: one row for each series that has a value in it.
    fn close(&mut self, ready: &mut Slice) {
        let sums = &mut self.sums;
        self.touched.sort_unstable_by(|a, b| {
            let series = |place: &usize| sums.get(*place).map(|sum| &sum.info.series);
            series(a).cmp(&series(b))
        });
        for place in self.touched.drain(..) {
            let Some(sum) = sums.get_mut(place) else { continue };
            let value = if sum.largest { sum.value } else { sum.value / f64::from(sum.count) };
            sum.count = 0;
            ready.places.push(u32::try_from(ready.series.len()).unwrap_or(u32::MAX));
            ready.series.push(Arc::clone(&sum.info));
            ready.times.push(self.bucket);
            ready.values.push(value);
            ready.starts.push(TimeSlice::NO_START);
        }
    }

    fn sum_of(&mut self, info: &Arc<SeriesInfo>) -> usize {
        if let Some(place) = self.sums_of.get(&address(info)) {
            return *place;
        }
        let kept = if info.series.labels.get(SCRAPE_TIME).is_some() {
            let labels = info.series.labels.without(SCRAPE_TIME);
            let series = Series { labels, ..info.series.clone() };
            Arc::new(SeriesInfo { series, ..SeriesInfo::clone(info) })
        } else {
            Arc::clone(info)
        };
        let next = self.sums.len();
        let place = *self.by_series.entry(kept.series.clone()).or_insert(next);
        if place == next {
            let largest = kept.series.metric.ends_with("_total");
            self.sums.push(Sum { info: kept, largest, count: 0, value: 0.0 });
        }
        self.sums_of.insert(address(info), place);
        self.held.push(Arc::clone(info));
        place
    }
}

/// Values as what they changed by per second since the reading before: a counter by its
/// [`model::increase`], anything else by its difference. The first reading of a series, and a second one
/// of the same instant, have no value.
#[derive(Debug)]
struct Rates {
    all: bool,
    last: HashMap<usize, Point>,
    held: Vec<Arc<SeriesInfo>>,
}

impl Rates {
    fn new(as_rate: AsRate) -> Self {
        Self { all: as_rate == AsRate::All, last: HashMap::new(), held: Vec::new() }
    }

    fn turn(&mut self, slice: &mut Slice) {
        let mut valid = vec![true; slice.times.len()];
        for row in 0..slice.times.len() {
            let Some(info) = slice.series_of(row) else { continue };
            let counter = info.kind == Kind::Counter;
            if !(self.all || counter) {
                continue;
            }
            let (Some(at), Some(value), Some(start)) =
                (slice.times.get(row), slice.values.get(row), slice.starts.get(row))
            else {
                continue;
            };
            let start = (*start != TimeSlice::NO_START).then_some(Timestamp(*start));
            let point = Point { at: Timestamp(*at), value: *value, start };
            let before = self.last.insert(address(info), point);
            if before.is_none() {
                self.held.push(Arc::clone(info));
            }
            let rate = before.and_then(|before| rate(before, point, counter));
            if let (Some(value), Some(valid)) = (slice.values.get_mut(row), valid.get_mut(row)) {
                (*value, *valid) = (rate.unwrap_or(0.0), rate.is_some());
            }
        }
        slice.valid = valid;
    }
}

/// Growth per second between two readings; `None` when they are of one instant.
fn rate(before: Point, now: Point, counter: bool) -> Option<f64> {
    let seconds = now.at.since(before.at) as f64 / 1e6;
    let change = if counter { increase(before, now).amount } else { now.value - before.value };
    (seconds > 0.0).then_some(change / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{DeviceId, Labels, Unit};

    fn info(metric: &str, kind: Kind, labels: &[(&str, &str)]) -> Arc<SeriesInfo> {
        let series = Series {
            device: DeviceId::new("n1").unwrap(),
            metric: Arc::from(metric),
            job: None,
            labels: Labels::new(labels.iter().copied()).unwrap(),
        };
        Arc::new(SeriesInfo { series, unit: Unit::Count, kind, divisor: 1 })
    }

    fn slice(series: &[Arc<SeriesInfo>], rows: &[(u32, i64, f64)]) -> Slice {
        Slice {
            series: series.to_vec(),
            places: rows.iter().map(|row| row.0).collect(),
            times: rows.iter().map(|row| row.1 * Timestamp::SECOND).collect(),
            values: rows.iter().map(|row| row.2).collect(),
            starts: vec![TimeSlice::NO_START; rows.len()],
            valid: Vec::new(),
        }
    }

    fn rows(slice: &Slice) -> Vec<(String, i64, f64)> {
        let metric = |row| slice.series_of(row).unwrap().series.metric.to_string();
        let one = |row| (metric(row), slice.times[row] / Timestamp::SECOND, slice.values[row]);
        (0..slice.times.len()).map(one).collect()
    }

    #[test]
    fn buckets_hold_the_mean_or_the_largest() {
        let series = [info("load_1m", Kind::Gauge, &[]), info("x_total", Kind::Counter, &[])];
        let mut summary = Summary::default();
        let first = slice(&series, &[(0, 300, 1.0), (1, 300, 5.0), (0, 310, 2.0)]);
        assert!(summary.take(&first).times.is_empty());
        let second = slice(&series, &[(1, 599, 9.0), (0, 600, 4.0), (1, 900, 1.0)]);
        let ready = summary.take(&second);
        let (load, total) = ("load_1m".to_owned(), "x_total".to_owned());
        assert_eq!(
            rows(&ready),
            [(load.clone(), 300, 1.5), (total.clone(), 300, 9.0), (load, 600, 4.0)]
        );
        assert_eq!(rows(&summary.finish().unwrap()), [(total, 900, 1.0)]);
        assert!(summary.finish().is_none());
    }

    #[test]
    fn what_is_no_number_spoils_its_bucket_only() {
        let series = [info("a", Kind::Gauge, &[]), info("b_total", Kind::Counter, &[])];
        let nan = f64::NAN;
        let mut summary = Summary::default();
        let both = [(0, 0, nan), (1, 0, 3.0), (0, 1, 1.0), (1, 1, nan), (1, 2, 4.0), (0, 300, 7.0)];
        let ready = summary.take(&slice(&series, &both));
        assert!(ready.values[0].is_nan() && ready.values[1].is_nan());
        assert_eq!(summary.finish().unwrap().values, [7.0]);
    }

    #[test]
    fn the_time_of_a_scrape_tells_no_series_apart() {
        let series = [("_metric_scrape_time", "1"), ("_metric_scrape_time", "2")]
            .map(|label| info("m", Kind::Gauge, &[label, ("a", "b")]));
        let mut summary = Summary::default();
        summary.take(&slice(&series, &[(0, 0, 1.0), (1, 5, 3.0)]));
        let ready = summary.finish().unwrap();
        assert_eq!(ready.values, [2.0]);
        assert_eq!(ready.series[0].series.labels.as_str(), r#"{"a": "b"}"#);
    }

    #[test]
    fn rates_of_counters_and_of_all() {
        let series = [info("g", Kind::Gauge, &[]), info("c_total", Kind::Counter, &[])];
        let data =
            [(0, 0, 8.0), (1, 0, 10.0), (0, 2, 4.0), (1, 2, 16.0), (1, 2, 17.0), (1, 4, 1.0)];
        let turned = |as_rate| {
            let mut slice = slice(&series, &data);
            Rates::new(as_rate).turn(&mut slice);
            let valid = slice.valid.clone();
            slice.values.into_iter().zip(valid).map(|(v, ok)| ok.then_some(v)).collect::<Vec<_>>()
        };
        // The counter begins anew: what it shows is what it counted since.
        let counter = [None, Some(3.0), None, Some(0.5)];
        let all = turned(AsRate::All);
        assert_eq!([all[1], all[3], all[4], all[5]], counter);
        assert_eq!((all[0], all[2]), (None, Some(-2.0)));
        let auto = turned(AsRate::Auto);
        assert_eq!([auto[1], auto[3], auto[4], auto[5]], counter);
        assert_eq!((auto[0], auto[2]), (Some(8.0), Some(4.0)));
    }

    #[test]
    fn rates_go_on_from_slice_to_slice() {
        let series = [info("c_total", Kind::Counter, &[])];
        let mut rates = Rates::new(AsRate::Auto);
        let mut first = slice(&series, &[(0, 0, 1.0)]);
        rates.turn(&mut first);
        let mut second = slice(&series, &[(0, 10, 6.0)]);
        rates.turn(&mut second);
        assert_eq!((first.valid[0], second.valid[0], second.values[0]), (false, true, 0.5));
    }
}
