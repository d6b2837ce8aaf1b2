//! Samples or 5 min aggregates, ascending by time, on their way to rows: reads them, removes invisible ones, and
//! converts them to rates.

use crate::engine::access_filter::Visibility;
use crate::rows::summary::{BUCKET, Growth, Summary};
use crate::{Cancel, QueryContext, QueryError};
use model::{Kind, Point, Timestamp, increase};
use std::collections::HashMap;
use std::sync::Arc;
use storage::{Chunk, Parts, SeriesInfo, TimeSlice};

/// Samples ascending by time, those of one instant in the order of their series. One instant is never split.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slice {
    pub(crate) series: Vec<Arc<SeriesInfo>>,
    pub(crate) places: Vec<u32>,
    pub(crate) times: Vec<i64>,
    pub(crate) values: Vec<f64>,
    pub(crate) starts: Vec<i64>,
    /// Whether each row has a value; empty: all have one.
    pub(crate) valid: Vec<bool>,
    /// The growth of each row within its 5 min; empty: rows are samples.
    pub(crate) growths: Vec<Growth>,
}

impl Slice {
    /// The series of a row, and its index.
    fn series_of(&self, row: usize) -> Option<(usize, &Arc<SeriesInfo>)> {
        let place = usize::try_from(*self.places.get(row)?).ok()?;
        Some((place, self.series.get(place)?))
    }

    /// Keeps the visible rows; `seen` has the visibility of each series.
    fn cut(&mut self, seen: &[Visibility]) {
        let of = |place: &u32| usize::try_from(*place).ok().and_then(|place| seen.get(place));
        let rows = self.places.iter().zip(&self.times);
        let kept: Vec<bool> =
            rows.map(|(place, at)| of(place).is_some_and(|seen| seen.at(*at))).collect();
        self.keep(&kept);
    }

    /// Keeps the rows from an instant on.
    fn begin_at(&mut self, from: i64) {
        let kept: Vec<bool> = self.times.iter().map(|at| *at >= from).collect();
        self.keep(&kept);
    }

    fn keep(&mut self, kept: &[bool]) {
        leave(&mut self.places, kept);
        leave(&mut self.times, kept);
        leave(&mut self.values, kept);
        leave(&mut self.starts, kept);
        leave(&mut self.valid, kept);
        leave(&mut self.growths, kept);
    }
}

/// Keeps the elements with `true` in `kept`.
pub(crate) fn leave<T>(list: &mut Vec<T>, kept: &[bool]) {
    let mut kept = kept.iter();
    list.retain(|_| kept.next().copied().unwrap_or(false));
}

/// Whether each sample has a value; empty: all have one.
pub(crate) fn validity(values: &[f64]) -> Vec<bool> {
    match values.iter().all(|value| Chunk::has_value(*value)) {
        true => Vec::new(),
        false => values.iter().map(|value| Chunk::has_value(*value)).collect(),
    }
}

impl From<TimeSlice> for Slice {
    fn from(slice: TimeSlice) -> Self {
        let TimeSlice { series, places, times, values, starts } = slice;
        let valid = validity(&values);
        Self { series, places, times, values, starts, valid, ..Self::default() }
    }
}

/// The source of slices.
#[derive(Debug)]
pub(crate) enum SliceSource {
    /// Samples.
    Samples(Parts<TimeSlice>),
    /// Aggregates of 5 min.
    Summary(Box<Summary>),
}

/// Looks up the visibility of a series.
pub(crate) type VisibilityOf<'a> =
    dyn FnMut(&Arc<SeriesInfo>) -> Result<Visibility, QueryError> + 'a;

/// The stages of a pipeline: read, access control, rates.
#[derive(Debug)]
pub(crate) struct Slices {
    walk: SliceSource,
    rates: Option<Rates>,
    /// Whether the reader sees everything, so that no lookup is needed.
    all: bool,
    cancel: Cancel,
    done: bool,
}

impl Slices {
    /// The slices of a query that reads all samples since an instant.
    pub(crate) fn new(
        walk: SliceSource,
        as_rate: AsRate,
        since: Timestamp,
        context: &QueryContext,
    ) -> Self {
        let rates = (as_rate != AsRate::No).then(|| Rates::new(as_rate, since));
        let (all, cancel) = (context.reader.sees_every_job(), context.cancel.clone());
        Self { walk, rates, all, cancel, done: false }
    }

    /// The next slice, with the visible part of each series. After an error the iteration ends.
    pub(crate) fn next(
        &mut self,
        seen: &mut VisibilityOf<'_>,
    ) -> Option<Result<Slice, QueryError>> {
        if self.done {
            return None;
        }
        let next = self.read(seen).transpose();
        self.done = !matches!(next, Some(Ok(_)));
        next
    }

    fn read(&mut self, seen: &mut VisibilityOf<'_>) -> Result<Option<Slice>, QueryError> {
        self.cancel.check()?;
        let (slice, width) = match &mut self.walk {
            SliceSource::Samples(walk) => (walk.next().transpose()?.map(Slice::from), 1),
            // The aggregates contain only visible samples.
            SliceSource::Summary(summary) => (summary.next(seen).transpose()?, BUCKET),
        };
        let Some(mut slice) = slice else { return Ok(None) };
        let one = |info| if self.all { Ok(Visibility::Always) } else { seen(info) };
        let seen: Vec<Visibility> = slice.series.iter().map(one).collect::<Result<_, _>>()?;
        if width == 1 && seen.iter().any(|seen| *seen != Visibility::Always) {
            slice.cut(&seen);
        }
        if let Some(rates) = &mut self.rates {
            rates.turn(&mut slice, &seen, width);
            if width == BUCKET {
                // The aggregates before the first one of the query only state where its growth begins.
                slice.begin_at(rates.since.0);
            }
        }
        Ok(Some(slice))
    }
}

/// Address of a series: unique and constant during a scan, as long as a reference to it exists.
pub(crate) fn address(info: &Arc<SeriesInfo>) -> usize {
    Arc::as_ptr(info).addr()
}

/// Whether values appear as their change per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AsRate {
    /// Values unchanged.
    #[default]
    No,
    /// Every metric.
    All,
    /// Counters only.
    Auto,
}

/// Converts values to their change per second since the previous reading. A counter uses [`model::increase`],
/// any other metric its difference.
///
/// The first reading of a counter counts from the counter's start if that was observed within the query
/// ([`model::Point::zero`]). No value: any other first reading of a series or of a visible time range, and a second one
/// at the same instant. An aggregate of 5 min of a counter is the growth up to its last sample, over the time between the
/// samples.
#[derive(Debug)]
struct Rates {
    all: bool,
    since: Timestamp,
    last: HashMap<usize, Point>,
    held: Vec<Arc<SeriesInfo>>,
}

impl Rates {
    fn new(as_rate: AsRate, since: Timestamp) -> Self {
        Self { all: as_rate == AsRate::All, since, last: HashMap::new(), held: Vec::new() }
    }

    fn turn(&mut self, slice: &mut Slice, seen: &[Visibility], width: i64) {
        let mut valid = std::mem::take(&mut slice.valid);
        valid.resize(slice.times.len(), true);
        for row in 0..slice.times.len() {
            let Some((place, info)) = slice.series_of(row) else { continue };
            let Some(seen) = seen.get(place) else { continue };
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
            let growth = slice.growths.get(row).filter(|_| counter).copied();
            let (first, last, width) = match growth {
                Some(growth) => (growth.first, growth.last, 1),
                None => (point, point, width),
            };
            let before = self.last.insert(address(info), last);
            if before.is_none() {
                self.held.push(Arc::clone(info));
            }
            // Growth does not count if the previous reading or the counter's start is not visible to the reader.
            let zero = match growth {
                Some(growth) => growth.zero,
                None => point.zero().filter(|zero| counter && zero.at >= self.since),
            };
            let mut before = before.into_iter().chain(zero);
            let before = before.find(|it| seen.connects(it.at.0, first.at.0, width));
            let rate = match growth {
                Some(growth) => window_rate(before, growth),
                None => before.and_then(|before| rate(before, point, counter)),
            };
            if let (Some(value), Some(valid)) = (slice.values.get_mut(row), valid.get_mut(row)) {
                (*value, *valid) = (rate.unwrap_or(0.0), rate.is_some());
            }
        }
        slice.valid = valid;
    }
}

/// Growth per second between two readings; `None` if both have the same instant, or one is no number.
fn rate(before: Point, now: Point, counter: bool) -> Option<f64> {
    let seconds = now.at.since(before.at) as f64 / 1e6;
    let change = if counter { increase(before, now).amount } else { now.value - before.value };
    let are_numbers = before.value.is_finite() && now.value.is_finite();
    (seconds > 0.0 && are_numbers).then_some(change / seconds)
}

/// Growth per second of a window. It counts since the previous window's last sample. Without one, it counts
/// since the counter's start if that was observed ([`model::Point::zero`]), otherwise since the first sample. `None`:
/// no time is covered.
fn window_rate(before: Option<Point>, growth: Growth) -> Option<f64> {
    let (mut amount, mut covered_us) = (growth.amount, growth.covered_us);
    if let Some(before) = before {
        amount += increase(before, growth.first).amount;
        covered_us = covered_us.saturating_add(growth.first.at.since(before.at));
    }
    (covered_us > 0).then(|| amount / (covered_us as f64 / 1e6))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{DeviceId, Labels, Series, Unit};

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
            ..Slice::default()
        }
    }

    #[test]
    fn a_first_reading_counts_from_the_start_of_its_counter() {
        let series = [info("c_total", Kind::Counter, &[])];
        let first = |start: i64, since: i64, seen: Visibility| {
            let mut slice = slice(&series, &[(0, 5, 8.0), (0, 6, 9.0)]);
            slice.starts = vec![start * Timestamp::SECOND; 2];
            let since = Timestamp(since * Timestamp::SECOND);
            Rates::new(AsRate::Auto, since).turn(&mut slice, &[seen], 1);
            assert_eq!((slice.values[1], slice.valid[1]), (1.0, true));
            slice.valid[0].then_some(slice.values[0])
        };
        assert_eq!(first(1, 0, Visibility::Always), Some(2.0));
        assert_eq!(first(1, 2, Visibility::Always), None, "the query begins later");
        assert_eq!(first(-700, -900, Visibility::Always), None, "counted before it was observed");
    }

    #[test]
    fn rates_of_counters_and_of_all() {
        let series = [info("g", Kind::Gauge, &[]), info("c_total", Kind::Counter, &[])];
        let data =
            [(0, 0, 8.0), (1, 0, 10.0), (0, 2, 4.0), (1, 2, 16.0), (1, 2, 17.0), (1, 4, 1.0)];
        let turned = |as_rate| {
            let mut slice = slice(&series, &data);
            Rates::new(as_rate, Timestamp(0)).turn(
                &mut slice,
                &[Visibility::Always, Visibility::Always],
                1,
            );
            let valid = slice.valid.clone();
            slice.values.into_iter().zip(valid).map(|(v, ok)| ok.then_some(v)).collect::<Vec<_>>()
        };
        // The counter restarts: its value is its growth since the restart.
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
        let mut rates = Rates::new(AsRate::Auto, Timestamp(0));
        let mut first = slice(&series, &[(0, 0, 1.0)]);
        rates.turn(&mut first, &[Visibility::Always], 1);
        let mut second = slice(&series, &[(0, 10, 6.0)]);
        rates.turn(&mut second, &[Visibility::Always], 1);
        assert_eq!((first.valid[0], second.valid[0], second.values[0]), (false, true, 0.5));
    }
}
