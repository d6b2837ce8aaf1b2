//! Totals of one series over a time range, from rollups: integral, mean, minimum, maximum, increase, and the seconds
//! that they cover.
//!
//! Whole hours are rollups of an hour, the other windows those of five minutes. A window that the range or the
//! reader's permission cuts is computed from its samples, as far as they are stored.

use crate::engine::access_filter::Visibility;
use crate::ranges::range::reading_before;
use crate::ranges::series_points::growth;
use crate::rows::summary::{BUCKET, seen_windows};
use crate::{Cancel, QueryError};
use model::{Kind, Point, Rollup, Timestamp};
use storage::{Selector, SeriesInfo, Snapshot, Windows};

const HOUR: i64 = 3600 * Timestamp::SECOND;

/// A time range (bounds included) of which series have totals.
#[derive(Debug)]
pub(crate) struct TotalsOf<'a> {
    pub(crate) snapshot: &'a dyn Snapshot,
    pub(crate) from: Timestamp,
    pub(crate) to: Timestamp,
    pub(crate) cancel: &'a Cancel,
}

/// Sums over the parts of a range.
#[derive(Debug, Default)]
struct Sums {
    /// The part at hand: rollups that join.
    part: Option<Rollup>,
    count: u64,
    sum: f64,
    integral: f64,
    seconds: f64,
    min: Option<f64>,
    max: Option<f64>,
    increase: f64,
    /// Seconds between the readings that the increase covers.
    grown_seconds: f64,
}

impl TotalsOf<'_> {
    /// The totals of a series, as far as it is visible.
    ///
    /// # Errors
    /// A block cannot be read; the query was cancelled.
    pub(crate) fn of(
        &self,
        info: &SeriesInfo,
        seen: &Visibility,
    ) -> Result<api::SeriesTotals, QueryError> {
        let select = Selector::of(&info.series);
        let within = seen.limited(self.from.0, self.to.0);
        let is_counter = info.kind == Kind::Counter;
        let mut sums = Sums::default();
        let first = Timestamp(self.from.0.div_euclid(HOUR).saturating_mul(HOUR));
        for windows in self.snapshot.windows(&select, first, self.to, HOUR) {
            for rollup in self.cut(windows?, &select, &within)? {
                let joins = |part: &Rollup| within.joins(part.last.at.0, rollup.first.at.0);
                match sums.part.as_mut().filter(|part| joins(part)) {
                    Some(part) => part.join(&rollup),
                    None => {
                        let is_first = sums.part.is_none();
                        sums.end_part();
                        if is_counter {
                            self.begin(&select, seen, rollup.first, is_first, &mut sums)?;
                        }
                        sums.part = Some(rollup);
                    }
                }
            }
        }
        sums.end_part();
        Ok(sums.shown(is_counter))
    }

    /// The visible windows: hours, and shorter ones where a bound cuts the hour.
    fn cut(
        &self,
        hours: Windows,
        select: &Selector,
        within: &Visibility,
    ) -> Result<Vec<Rollup>, QueryError> {
        let mut rollups = Vec::with_capacity(hours.windows.len());
        for (start, rollup) in hours.windows {
            self.cancel.check()?;
            let end = start.plus(HOUR - 1);
            if within.joins(start.0, end.0) {
                rollups.push(rollup);
            } else if within.touches(start.0, end.0) {
                for shorter in self.snapshot.windows(select, start, end, BUCKET) {
                    let seen = seen_windows(self.snapshot, shorter?, within, BUCKET, self.cancel)?;
                    rollups.extend(seen.windows.into_iter().map(|(_, rollup)| rollup));
                }
            }
        }
        Ok(rollups)
    }

    /// Adds the growth of a counter up to the first reading of a part: since the reading before the range, or since the
    /// counter's start.
    fn begin(
        &self,
        select: &Selector,
        seen: &Visibility,
        first: Point,
        is_first: bool,
        sums: &mut Sums,
    ) -> Result<(), QueryError> {
        let joins = |before: &Point| seen.joins(before.at.0, first.at.0);
        let (before, since) = match is_first {
            true => reading_before(self.snapshot, select, self.from)?,
            false => (None, self.from),
        };
        let zero = || first.zero().filter(|zero| zero.at >= since);
        let before = before.filter(joins).or_else(|| zero().filter(joins));
        if let Some((amount, seconds)) = before.and_then(|before| growth(before, first)) {
            sums.increase += amount;
            sums.grown_seconds += seconds;
        }
        Ok(())
    }
}

impl Sums {
    fn end_part(&mut self) {
        let Some(part) = self.part.take() else { return };
        let finite = |value: f64| Some(value).filter(|value| value.is_finite());
        self.count += part.count;
        self.sum += part.sum;
        self.integral += part.integral;
        self.seconds += part.seconds;
        self.min = [self.min, finite(part.min)].into_iter().flatten().reduce(f64::min);
        self.max = [self.max, finite(part.max)].into_iter().flatten().reduce(f64::max);
        self.increase += part.increase();
        self.grown_seconds += part.last.at.since(part.first.at) as f64 / 1e6;
    }

    fn shown(self, is_counter: bool) -> api::SeriesTotals {
        let seconds = if is_counter { self.grown_seconds } else { self.seconds };
        let finite = |value: f64| Some(value).filter(|value| value.is_finite());
        let covered = |value: f64| finite(value).filter(|_| seconds > 0.0);
        let gauge = |value: Option<f64>| value.filter(|_| !is_counter);
        let mean = match is_counter {
            true => covered(self.increase / seconds),
            // A single sample, or samples too far apart for a line.
            false if seconds <= 0.0 => finite(self.sum / self.count as f64),
            false => covered(self.integral / seconds),
        };
        api::SeriesTotals {
            integral: gauge(covered(self.integral)),
            mean,
            min: gauge(self.min),
            max: gauge(self.max),
            increase: covered(self.increase).filter(|_| is_counter),
            seconds,
            samples: self.count,
        }
    }
}
