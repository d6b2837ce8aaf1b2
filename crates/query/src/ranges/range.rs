//! Points of series over time, to plot: in steps, with counters as rates.

use crate::engine::access_filter::{AccessFilter, ListedAs};
use crate::ranges::parallel::by_devices;
use crate::ranges::series_points::SeriesPoints;
use crate::ranges::series_totals::TotalsOf;
use crate::rows::summary::seen_windows;
use crate::{Cancel, QueryContext, QueryEngine, QueryError, RangeQuery, Settings};
use model::{Metric, Point, Timestamp};
use std::collections::HashMap;
use std::sync::Arc;
use storage::{Chunk, Selector, Snapshot};

/// How far to search for the reading before a range, so that the first point has a rate.
const BEFORE_MIN: i64 = 120 * Timestamp::SECOND;
/// Extended search for the reading before a range, if the series is read rarely or had a gap.
const BEFORE_MAX: i64 = 24 * HOUR;
const HOUR: i64 = 3600 * Timestamp::SECOND;

impl QueryEngine {
    /// Points of series over time. The answer omits what exceeds the limits of series and points, and states so.
    ///
    /// Steps that are whole multiples of a rollup's window use the longest such windows. These steps are whole:
    /// the first and the last one extend beyond the range.
    ///
    /// # Errors
    /// A block cannot be read; the registry fails; the query was cancelled.
    pub fn range(
        &self,
        query: &RangeQuery,
        context: &QueryContext,
    ) -> Result<api::Range, QueryError> {
        self.range_with(query, false, context)
    }

    /// Like [`Self::range`], on request with the totals of each series over exactly this range.
    ///
    /// # Errors
    /// The same.
    pub fn range_with(
        &self,
        query: &RangeQuery,
        totals: bool,
        context: &QueryContext,
    ) -> Result<api::Range, QueryError> {
        let metrics = self.store.catalogue();
        let help: HashMap<&str, &Metric> =
            metrics.iter().map(|metric| (&*metric.name, &**metric)).collect();
        let step = query.step_us.max(0);
        let window = storage::WINDOWS_US.into_iter().rev().find(|w| step > 0 && step % w == 0);
        // One filter for all threads: what it looks up in the registry counts once for a query.
        let devices = query.select.devices.as_ref();
        let access = AccessFilter::new(self, context, reach(query), devices);
        let snapshot =
            access.limit(&self.store.snapshot_until(context.cancel.flag()), ListedAs::Device);
        let (from, to, cancel) = (query.from, query.to, &context.cancel);
        let totals = totals.then_some(TotalsOf { snapshot: &*snapshot, from, to, cancel });
        let shown = by_devices(query, &context.cancel, |query| {
            let mut shown = LimitedSeries::new(&self.settings, &help, totals.as_ref());
            match window {
                Some(window) => {
                    take_rolled(query, window, &*snapshot, &access, &mut shown, &context.cancel)
                }
                None => take_samples(query, &*snapshot, &access, &mut shown, &context.cancel),
            }
            .map(|()| shown)
        })?;
        // Points from rollups are whole steps: the answer states the range that they cover.
        let (from, to) = match window {
            Some(_) => {
                let whole = whole_steps(query, step);
                (whole.from, whole.to.plus(1))
            }
            None => (query.from, query.to),
        };
        Ok(api::Range {
            start: from.seconds(),
            end: to.seconds(),
            step_seconds: step as f64 / 1e6,
            rollup_seconds: window.map_or(0.0, |window| window as f64 / 1e6),
            gaps: self.gaps_of(query, &shown.series, context)?,
            series: shown.series,
            truncated: shown.truncated,
        })
    }
}

/// Adds points of whole steps, computed from rollups with this window.
fn take_rolled(
    query: &RangeQuery,
    window: i64,
    snapshot: &dyn Snapshot,
    access: &AccessFilter,
    shown: &mut LimitedSeries<'_>,
    cancel: &Cancel,
) -> Result<(), QueryError> {
    let step = query.step_us.max(0);
    let whole = whole_steps(query, step);
    let first = before(whole.from, step);
    for found in snapshot.windows(&whole.select, first, whole.to, window) {
        cancel.check()?;
        let found = found?;
        let series = &found.series.series;
        let seen = access.of(&series.device, series.job.as_ref())?;
        if !seen.touches(first.0, whole.to.0) {
            continue;
        }
        let select = Selector::of(series);
        let found = seen_windows(snapshot, found, &seen, window, cancel)?;
        let mut line = SeriesPoints::new(&found.series, &whole, first, &seen);
        if let Some((_, rollup)) = found.windows.first()
            && line.lacks_before(rollup.first)
        {
            line.set_before(reading_before(snapshot, &select, first)?);
        }
        if !line.take_windows(&found.windows) {
            // Only gauges reach this branch; they need no reading before the range.
            line = SeriesPoints::new(&found.series, &whole, first, &seen);
            for chunk in snapshot.scan(&select, first, whole.to) {
                line.take(&chunk?);
            }
        }
        if !shown.close(line)? {
            break;
        }
    }
    Ok(())
}

/// Adds points of steps computed from samples.
fn take_samples(
    query: &RangeQuery,
    snapshot: &dyn Snapshot,
    access: &AccessFilter,
    shown: &mut LimitedSeries<'_>,
    cancel: &Cancel,
) -> Result<(), QueryError> {
    let step = query.step_us.max(0);
    let first = before(query.from, step);
    let mut line: Option<SeriesPoints> = None;
    for chunk in snapshot.scan(&query.select, first, query.to) {
        cancel.check()?;
        let chunk = chunk?;
        let series = &chunk.series.series;
        let seen = access.of(&series.device, series.job.as_ref())?;
        if !seen.touches(first.0, query.to.0) {
            continue;
        }
        let same = |line: &SeriesPoints| Arc::ptr_eq(&line.info, &chunk.series);
        if !line.as_ref().is_some_and(same) {
            let mut next = SeriesPoints::new(&chunk.series, query, first, &seen);
            if let Some(reading) = first_reading(&chunk)
                && next.lacks_before(reading)
            {
                let select = Selector::of(series);
                next.set_before(reading_before(snapshot, &select, first)?);
            }
            if let Some(done) = line.replace(next)
                && !shown.close(done)?
            {
                line = None;
                break;
            }
        }
        line.iter_mut().for_each(|line| line.take(&chunk));
    }
    line.map(|line| shown.close(line)).transpose()?;
    Ok(())
}

/// Start of the samples to read for a range that begins at `from`.
fn before(from: Timestamp, step: i64) -> Timestamp {
    from.plus(-BEFORE_MIN.max(step))
}

fn first_reading(chunk: &Chunk) -> Option<Point> {
    let (at, value, start) = chunk.rows().next()?;
    Some(Point { at, value, start })
}

/// The last reading of a series before an instant, and the limit of the search: one day back. The search uses
/// samples back to the full hour, and windows of 1 h before that.
pub(crate) fn reading_before(
    snapshot: &dyn Snapshot,
    select: &Selector,
    first: Timestamp,
) -> Result<(Option<Point>, Timestamp), QueryError> {
    let (last, since) = (first.plus(-1), first.plus(-BEFORE_MAX));
    let hour = Timestamp(first.0.div_euclid(HOUR).saturating_mul(HOUR));
    let mut found = None;
    for chunk in snapshot.scan(select, hour, last) {
        let chunk = chunk?;
        found = chunk.rows().last().map(|(at, value, start)| Point { at, value, start }).or(found);
    }
    if found.is_none() {
        for windows in snapshot.windows(select, since, hour.plus(-1), HOUR) {
            found = windows?.windows.last().map(|(_, rollup)| rollup.last).or(found);
        }
    }
    Ok((found, since))
}

/// Time range in which the query may read.
fn reach(query: &RangeQuery) -> (Timestamp, Timestamp) {
    let before = BEFORE_MIN.max(query.step_us.saturating_mul(2));
    (query.from.plus(-before), query.to.plus(query.step_us.max(0)))
}

/// The range widened to whole steps.
pub(crate) fn whole_steps(query: &RangeQuery, step: i64) -> RangeQuery {
    let begin = |at: Timestamp| at.0.div_euclid(step).saturating_mul(step);
    RangeQuery {
        select: query.select.clone(),
        from: Timestamp(begin(query.from)),
        to: Timestamp(begin(query.to).saturating_add(step - 1)),
        ..*query
    }
}

/// The series in the answer, up to the limits.
pub(super) struct LimitedSeries<'a> {
    help: &'a HashMap<&'a str, &'a Metric>,
    totals: Option<&'a TotalsOf<'a>>,
    points_max: usize,
    series_max: usize,
    points: usize,
    series: Vec<api::RangeSeries>,
    truncated: bool,
}

impl<'a> LimitedSeries<'a> {
    fn new(
        settings: &Settings,
        help: &'a HashMap<&'a str, &'a Metric>,
        totals: Option<&'a TotalsOf<'a>>,
    ) -> Self {
        let Settings { points_max, series_max, .. } = *settings;
        let (points, series, truncated) = (0, Vec::new(), false);
        Self { help, totals, points_max, series_max, points, series, truncated }
    }

    /// Adds a complete line; `false` if a limit is exceeded.
    fn close(&mut self, line: SeriesPoints) -> Result<bool, QueryError> {
        let (info, seen) = (Arc::clone(&line.info), line.seen.clone());
        let mut shown = line.finish(self.help);
        if shown.times.is_empty() {
            return Ok(true);
        }
        if self.has_space(&shown) {
            shown.totals = self.totals.map(|totals| totals.of(&info, &seen)).transpose()?;
        }
        Ok(self.add(shown))
    }

    fn has_space(&self, next: &api::RangeSeries) -> bool {
        let points = self.points.saturating_add(next.times.len());
        points <= self.points_max && self.series.len() < self.series_max
    }

    /// Adds the series of later devices.
    pub(super) fn append(&mut self, later: Self) {
        let all = !self.truncated && later.series.into_iter().all(|series| self.add(series));
        self.truncated |= !all || later.truncated;
    }

    /// Adds a series; `false` if a limit is exceeded.
    fn add(&mut self, shown: api::RangeSeries) -> bool {
        let space = self.has_space(&shown);
        self.points = self.points.saturating_add(shown.times.len());
        if space {
            self.series.push(shown);
        }
        self.truncated |= !space;
        space
    }
}
