//! Aggregates of 5 min from the store's rollups, ascending by time: the maximum of metrics named `*_total`, the
//! mean of the others. Each carries the start of its 5 min.
//!
//! A NaN value makes the mean NaN, as in PostgreSQL; the maximum ignores it. Of several samples at one instant
//! the last counts.

use crate::common::print::SCRAPE_TIME;
use crate::engine::access_filter::Visibility;
use crate::rows::slices::{Slice, VisibilityOf};
use crate::{Cancel, QueryError};
use model::{Point, Rollup, RollupWindows, Series, Timestamp};
use std::cmp::Ordering::Equal;
use std::collections::HashMap;
use std::sync::Arc;
use storage::{Chunk, Selector, SeriesInfo, Snapshot, TimeSlice, Windows};

/// Length of an aggregate, in microseconds.
pub(crate) const BUCKET: i64 = 300 * Timestamp::SECOND;

/// The aggregates of a selection, slice by slice. After an error the iteration ends.
#[derive(Debug)]
pub(crate) struct Summary {
    snapshot: Arc<dyn Snapshot>,
    selector: Selector,
    cancel: Cancel,
    /// Maximum rows of a slice; exceeded only if one 5 min bucket alone has more.
    rows_max: usize,
    /// The first bucket of the query.
    first: i64,
    /// The first and the last bucket not returned yet.
    rest: Option<(i64, i64)>,
    /// Number of buckets in the next slice.
    width: i64,
    names: Names,
}

/// The series of the answer. Series that differ only in the scrape time become one. Each is the same `Arc` in
/// all slices.
#[derive(Debug, Default)]
struct Names {
    places: HashMap<Series, usize>,
    infos: Vec<Arc<SeriesInfo>>,
}

/// A bucket of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Bucket {
    start: i64,
    place: usize,
    count: u64,
    sum: f64,
    max: f64,
    growth: Growth,
}

/// Growth of a counter between the first and the last visible sample of a bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Growth {
    pub(crate) first: Point,
    pub(crate) last: Point,
    pub(crate) amount: f64,
    /// Time between the samples that the amount covers, in microseconds.
    pub(crate) covered_us: i64,
    /// The counter's start as a reading of 0, if no sample can lie between it and the first sample.
    pub(crate) zero: Option<Point>,
}

impl Growth {
    /// The growth in a window of a query that reads all samples since an instant.
    fn of(rollup: &Rollup, since: i64) -> Self {
        let Rollup { first, last, .. } = *rollup;
        let zero = first.zero().filter(|zero| zero.at.0 >= since);
        Self { first, last, amount: rollup.increase(), covered_us: last.at.since(first.at), zero }
    }

    /// Merges a second part of the same bucket. The time between the parts is not covered.
    fn join(&mut self, other: &Self) {
        self.amount += other.amount;
        self.covered_us = self.covered_us.saturating_add(other.covered_us);
        if other.first.at < self.first.at {
            (self.first, self.zero) = (other.first, other.zero);
        }
        if other.last.at > self.last.at {
            self.last = other.last;
        }
    }
}

impl Summary {
    /// Buckets that begin between two instants (bounds included).
    pub(crate) fn new(
        snapshot: Arc<dyn Snapshot>,
        selector: &Selector,
        (from, to): (Timestamp, Timestamp),
        rows_max: usize,
        cancel: Cancel,
    ) -> Self {
        let first = from.0.saturating_add(BUCKET - 1).div_euclid(BUCKET).saturating_mul(BUCKET);
        let last = to.0.div_euclid(BUCKET).saturating_mul(BUCKET);
        let extent = snapshot.extent().map(|(from, to)| (bucket(from.0), bucket(to.0)));
        let rest = extent.map(|(from, to)| (first.max(from), last.min(to)));
        let rest = rest.filter(|(first, last)| first <= last);
        let (selector, names) = (selector.clone(), Names::default());
        let rows_max = rows_max.max(1);
        // Begins with one day per slice, which fits about 100 series.
        Self { snapshot, selector, cancel, rows_max, first, rest, width: 288, names }
    }

    /// The next slice, made of visible samples only. After an error the iteration ends.
    pub(crate) fn next(
        &mut self,
        seen: &mut VisibilityOf<'_>,
    ) -> Option<Result<Slice, QueryError>> {
        let next = self.slice(seen).transpose();
        if !matches!(next, Some(Ok(_))) {
            self.rest = None;
        }
        next
    }

    fn slice(&mut self, seen: &mut VisibilityOf<'_>) -> Result<Option<Slice>, QueryError> {
        while let Some((first, last)) = self.rest {
            let long = self.width.saturating_sub(1).saturating_mul(BUCKET);
            let end = first.saturating_add(long).min(last);
            let Some(buckets) = self.read((first, end), seen)? else {
                self.width = (self.width / 2).max(1);
                continue;
            };
            self.rest = Some((end.saturating_add(BUCKET), last)).filter(|(next, _)| *next <= last);
            if buckets.len() < self.rows_max / 4 {
                self.width = self.width.saturating_mul(2);
            }
            if !buckets.is_empty() {
                return Ok(Some(self.names.slice(buckets)));
            }
        }
        Ok(None)
    }

    /// Buckets in an interval; `None` if they are too many and a smaller slice is possible.
    fn read(
        &mut self,
        (first, last): (i64, i64),
        seen: &mut VisibilityOf<'_>,
    ) -> Result<Option<Vec<Bucket>>, QueryError> {
        let mut buckets = Vec::new();
        let (from, to) = (Timestamp(first), Timestamp(last));
        for series in self.snapshot.windows(&self.selector, from, to, BUCKET) {
            self.cancel.check()?;
            let series = series?;
            let seen = seen(&series.series)?;
            if seen == Visibility::Never {
                continue;
            }
            let windows = seen_windows(&*self.snapshot, series, &seen, BUCKET, &self.cancel)?;
            let place = self.names.place(&windows.series);
            buckets
                .extend(windows.windows.iter().map(|window| Bucket::of(place, window, self.first)));
            if buckets.len() > self.rows_max && first < last {
                return Ok(None);
            }
        }
        Ok(Some(buckets))
    }
}

/// The visible part of windows. A partly visible window is recomputed from its visible samples, separately for
/// each visible time range, as far as the samples are still stored.
pub(crate) fn seen_windows(
    snapshot: &dyn Snapshot,
    mut series: Windows,
    seen: &Visibility,
    width: i64,
    cancel: &Cancel,
) -> Result<Windows, QueryError> {
    if *seen == Visibility::Always {
        return Ok(series);
    }
    let mut windows = Vec::with_capacity(series.windows.len());
    for window in series.windows {
        let (first, last) = (window.0.0, window.0.0.saturating_add(width - 1));
        if seen.joins(first, last) {
            windows.push(window);
        } else if seen.touches(first, last) {
            cancel.check()?;
            let span = (window.0, Timestamp(last));
            let mut rolled = RollupWindows::new(width);
            let mut before = None;
            for chunk in snapshot.scan(&Selector::of(&series.series.series), span.0, span.1) {
                let chunk = chunk?;
                let rows = chunk.rows().filter(|(_, value, _)| Chunk::has_value(*value));
                for (at, value, start) in rows.filter(|(at, ..)| seen.at(at.0)) {
                    // Separate visible ranges have separate parts: no value spans the time between them.
                    if before.is_some_and(|before: Timestamp| !seen.joins(before.0, at.0)) {
                        windows.extend(rolled.finish());
                    }
                    before = Some(at);
                    rolled.push(Point { at, value, start });
                }
            }
            windows.extend(rolled.finish());
        }
    }
    series.windows = windows;
    Ok(series)
}

/// The start of the window that contains an instant.
pub(crate) const fn window_of(at: Timestamp) -> Timestamp {
    Timestamp(bucket(at.0))
}

const fn bucket(at: i64) -> i64 {
    at.div_euclid(BUCKET).saturating_mul(BUCKET)
}

impl Bucket {
    fn of(place: usize, (start, rollup): &(Timestamp, Rollup), since: i64) -> Self {
        let Rollup { count, sum, max, .. } = *rollup;
        Self { start: start.0, place, count, sum, max, growth: Growth::of(rollup, since) }
    }

    /// Merges the bucket of another series with the same name in the answer.
    fn join(&mut self, other: &Self) {
        self.count += other.count;
        self.sum += other.sum;
        self.max = self.max.max(other.max);
        self.growth.join(&other.growth);
    }

    fn value(&self, info: &SeriesInfo) -> f64 {
        if storage::is_total(&info.series.metric) { self.max } else { self.sum / self.count as f64 }
    }
}

impl Names {
    fn place(&mut self, info: &Arc<SeriesInfo>) -> usize {
        let labels = &info.series.labels;
        let shown = if labels.get(SCRAPE_TIME).is_some() {
            let series = Series { labels: labels.without(SCRAPE_TIME), ..info.series.clone() };
            Arc::new(SeriesInfo { series, ..SeriesInfo::clone(info) })
        } else {
            Arc::clone(info)
        };
        if let Some(place) = self.places.get(&shown.series) {
            return *place;
        }
        let place = self.infos.len();
        self.places.insert(shown.series.clone(), place);
        self.infos.push(shown);
        place
    }

    /// Converts buckets to rows ascending by time; rows of one instant follow the order of their series.
    fn slice(&self, mut buckets: Vec<Bucket>) -> Slice {
        let series = |place: usize| self.infos.get(place).map(|info| &info.series);
        buckets.sort_by(|a, b| {
            let places = || series(a.place).cmp(&series(b.place));
            a.start.cmp(&b.start).then_with(|| if a.place == b.place { Equal } else { places() })
        });
        buckets.dedup_by(|next, kept| {
            let same = (next.start, next.place) == (kept.start, kept.place);
            if same {
                kept.join(next);
            }
            same
        });
        let mut slice = Slice::default();
        // The index of each series in this slice.
        let mut used: Vec<usize> = buckets.iter().map(|bucket| bucket.place).collect();
        used.sort_by(|a, b| series(*a).cmp(&series(*b)));
        used.dedup();
        let ranks: HashMap<usize, u32> = used.iter().copied().zip(0..).collect();
        slice.series = used.iter().filter_map(|place| self.infos.get(*place).cloned()).collect();
        for bucket in buckets {
            let (Some(info), Some(rank)) = (self.infos.get(bucket.place), ranks.get(&bucket.place))
            else {
                continue;
            };
            slice.places.push(*rank);
            slice.times.push(bucket.start);
            slice.values.push(bucket.value(info));
            slice.starts.push(TimeSlice::NO_START);
            slice.growths.push(bucket.growth);
        }
        slice
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{DeviceId, Kind, Labels, Unit};

    fn info(metric: &str, labels: &[(&str, &str)]) -> Arc<SeriesInfo> {
        let series = Series {
            device: DeviceId::new("n1").unwrap(),
            metric: Arc::from(metric),
            job: None,
            labels: Labels::new(labels.iter().copied()).unwrap(),
        };
        Arc::new(SeriesInfo { series, unit: Unit::Count, kind: Kind::Gauge, divisor: 1 })
    }

    fn bucket(place: usize, start: i64, count: u64, sum: f64, max: f64) -> Bucket {
        let point = Point { at: Timestamp(start * BUCKET), value: max, start: None };
        Bucket {
            start: start * BUCKET,
            place,
            count,
            sum,
            max,
            growth: Growth::of(&Rollup::of(point), 0),
        }
    }

    #[test]
    fn buckets_hold_the_mean_or_the_largest_in_the_order_of_time() {
        let mut names = Names::default();
        let (total, load) = (names.place(&info("x_total", &[])), names.place(&info("load", &[])));
        assert_eq!(names.place(&info("load", &[])), load);
        let slice = names.slice(vec![
            bucket(total, 1, 2, f64::NAN, 9.0),
            bucket(total, 2, 1, f64::NAN, 4.0),
            bucket(load, 1, 2, 3.0, 2.0),
        ]);
        let shown = |row: usize| &*slice.series[slice.places[row] as usize].series.metric;
        assert_eq!([shown(0), shown(1), shown(2)], ["load", "x_total", "x_total"]);
        assert_eq!(slice.times, [BUCKET, BUCKET, 2 * BUCKET]);
        assert_eq!(slice.values, [1.5, 9.0, 4.0]);
    }

    #[test]
    fn the_time_of_a_scrape_does_not_divide_series() {
        let mut names = Names::default();
        let places = ["1", "2"]
            .map(|at| names.place(&info("m", &[("_metric_scrape_time", at), ("a", "b")])));
        let slice =
            names.slice(places.map(|place| bucket(place, 0, 1, 1.0 + place as f64, 1.0)).to_vec());
        let slice_of_two = names.slice(vec![bucket(0, 0, 1, 1.0, 1.0), bucket(0, 0, 1, 3.0, 3.0)]);
        assert_eq!((slice.values.len(), slice_of_two.values), (1, vec![2.0]));
        assert_eq!(slice.series[0].series.labels.as_str(), r#"{"a": "b"}"#);
    }
}
