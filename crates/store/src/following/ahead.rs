//! Samples of a file that are read before a slice needs them: small slices would decode the same pages again and again.

use super::plan::{Plan, Source};
use super::read::Contents;
use crate::files::point::Point;
use crate::state::positions::{Cursor, Position};
use std::ops::Range;
use storage::TimeSlice;

/// Rows that are read at once for smaller slices: about 28 bytes each, for each follower.
pub(super) const AHEAD_ROWS: u32 = 1 << 14;

/// The samples of a file from a cursor on.
#[derive(Debug)]
pub(super) struct Ahead {
    points: Range<Point>,
    since: i64,
    /// Delivered samples of the file before these.
    first: u64,
    /// Delivered samples of the first instant before these.
    skip: u64,
    contents: Contents,
}

/// The delivered samples of a planned file.
fn delivered(plan: &Plan) -> u64 {
    plan.cursor.map_or(0, |cursor| cursor.rows)
}

impl Plan {
    /// Whether its samples are read from a file.
    pub(super) const fn is_of_file(&self) -> bool {
        matches!(self.source, Source::Block(_) | Source::RestFile(_))
    }
}

impl Ahead {
    /// The contents of a planned range, from its cursor on.
    pub(super) fn new(plan: &Plan, since: i64, contents: Contents) -> Self {
        let first_at = contents.samples.times.first();
        let cursor = plan.cursor.filter(|cursor| Some(&cursor.at) == first_at);
        let skip = cursor.map_or(0, |cursor| cursor.skip);
        Self { points: plan.points.clone(), since, first: delivered(plan), skip, contents }
    }

    /// Whether the next sample of a planned range is among these. Files never change, so the range identifies it.
    pub(super) fn has(&self, plan: &Plan, since: i64) -> bool {
        let end = self.first + self.contents.samples.times.len() as u64;
        (&self.points, self.since) == (&plan.points, since)
            && (self.first..end).contains(&delivered(plan))
    }

    /// At most `rows_max` samples of a planned range: whole instants, unless one alone has more.
    pub(super) fn slice(&self, plan: &Plan, rows_max: u32) -> Contents {
        let Contents { samples, to, .. } = &self.contents;
        let times = &samples.times;
        let before = delivered(plan).saturating_sub(self.first);
        let start = usize::try_from(before).unwrap_or(usize::MAX).min(times.len());
        let most = start.saturating_add(rows_max as usize);
        let Some(at) = times.get(most).copied() else {
            return Contents::of(part(samples, start..times.len()), *to);
        };
        let of_instant = times.partition_point(|other| *other < at);
        let end = if of_instant > start { of_instant } else { most };
        let skip = (end - of_instant) as u64 + if of_instant == 0 { self.skip } else { 0 };
        let rows = self.first + end as u64;
        let cursor = Cursor { end: self.points.end, at, skip, rows };
        let to = Position { point: self.points.start, cursor: Some(cursor) };
        Contents::of(part(samples, start..end), to)
    }
}

/// Some rows of a slice, with their series alone.
fn part(of: &TimeSlice, rows: Range<usize>) -> TimeSlice {
    let places = of.places.get(rows.clone()).unwrap_or_default();
    let mut used = places.to_vec();
    used.sort_unstable();
    used.dedup();
    let place =
        |old: &u32| u32::try_from(used.partition_point(|one| one < old)).unwrap_or(u32::MAX);
    TimeSlice {
        series: used.iter().filter_map(|old| of.series.get(*old as usize).cloned()).collect(),
        places: places.iter().map(place).collect(),
        times: of.times.get(rows.clone()).unwrap_or_default().to_vec(),
        values: of.values.get(rows.clone()).unwrap_or_default().to_vec(),
        starts: of.starts.get(rows).unwrap_or_default().to_vec(),
    }
}
