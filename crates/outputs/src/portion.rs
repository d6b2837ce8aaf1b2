//! What an output writes at once.

use colmet::record::Record;
use model::Gap;
use std::sync::Arc;
use storage::{FollowMark, OutputGap, SeriesInfo, TimeSlice};

/// Samples and gaps in the order of storing.
#[derive(Clone, Debug, PartialEq)]
pub struct Portion {
    /// The position before it. Portions with the same mark are the same portion.
    pub mark: FollowMark,
    /// The samples, ordered by time.
    pub samples: TimeSlice,
    /// The records of Colmet that are complete after these samples, ordered by time; empty if the kind wants none.
    pub records: Vec<Record>,
    /// Gaps of the nodes, in the order in which they were reported.
    pub gaps: Vec<Gap>,
    /// Samples that this output lost.
    pub lost: Option<OutputGap>,
}

/// A sample of a slice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a> {
    pub(crate) series: &'a Arc<SeriesInfo>,
    /// In microseconds since 1970.
    pub(crate) at: i64,
    pub(crate) value: f64,
    /// In microseconds since 1970, or [`TimeSlice::NO_START`].
    pub(crate) start: i64,
}

/// The rows of a slice.
pub(crate) fn rows(slice: &TimeSlice) -> impl Iterator<Item = Row<'_>> {
    let numbers = slice.times.iter().zip(&slice.values).zip(&slice.starts);
    slice.places.iter().zip(numbers).filter_map(|(place, ((at, value), start))| {
        let series = slice.series.get(*place as usize)?;
        Some(Row { series, at: *at, value: *value, start: *start })
    })
}

/// A slice of rows that are ordered by time.
pub(crate) fn slice_of<'a>(rows: impl Iterator<Item = Row<'a>>) -> TimeSlice {
    let mut rows: Vec<Row<'_>> = rows.collect();
    let mut series: Vec<&Arc<SeriesInfo>> = rows.iter().map(|row| row.series).collect();
    series.sort_unstable_by(|a, b| SeriesInfo::order(a, b));
    series.dedup_by(|a, b| SeriesInfo::same(a, b));
    let place = |info: &Arc<SeriesInfo>| {
        let found = series.binary_search_by(|one| SeriesInfo::order(one, info)).unwrap_or(0);
        u32::try_from(found).unwrap_or(u32::MAX)
    };
    rows.sort_by(|a, b| a.at.cmp(&b.at).then_with(|| SeriesInfo::order(a.series, b.series)));
    TimeSlice {
        places: rows.iter().map(|row| place(row.series)).collect(),
        times: rows.iter().map(|row| row.at).collect(),
        values: rows.iter().map(|row| row.value).collect(),
        starts: rows.iter().map(|row| row.start).collect(),
        series: series.into_iter().map(Arc::clone).collect(),
    }
}
