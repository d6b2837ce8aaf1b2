//! Scans samples by time: slices of bounded rows, each read series by series and sorted in memory.

use crate::answer::{Chunk, SeriesInfo, TimeSlice};
use crate::error::StorageError;
use crate::select::Selector;
use crate::storage::Snapshot;
use model::Timestamp;
use std::sync::Arc;

/// Slices of a selection, ordered by time. It ends after an error.
#[derive(Debug)]
pub struct ByTime {
    snapshot: Arc<dyn Snapshot>,
    selector: Selector,
    rows_max: usize,
    /// The first instant of the next slice, and the last of all; `None` at the end.
    rest: Option<(i64, i64)>,
    /// Length of the next slice, in microseconds; `None` before the first.
    width: Option<i64>,
    /// Most series of a slice so far.
    series: usize,
}

/// A slice, or an instant that alone has more rows than a slice may have.
#[derive(Debug)]
pub enum Bounded {
    /// The rows.
    Slice(TimeSlice),
    /// The instant, with the earliest remaining samples.
    Crowded(Timestamp),
}

impl ByTime {
    /// Slices of at most `rows_max` rows (more only if one instant alone has more) between two instants, both inclusive.
    pub fn new(
        snapshot: Arc<dyn Snapshot>,
        selector: &Selector,
        (from, to): (Timestamp, Timestamp),
        rows_max: usize,
    ) -> Self {
        let rest = snapshot.extent().map(|(first, last)| (from.0.max(first.0), to.0.min(last.0)));
        let rest = rest.filter(|(from, to)| from <= to);
        let (selector, rows_max) = (selector.clone(), rows_max.max(1));
        Self { snapshot, selector, rows_max, rest, width: None, series: 1 }
    }

    /// The next slice, never with more rows than allowed: an instant that alone has more is returned, and remains the next.
    ///
    /// # Errors
    /// The store cannot answer.
    pub fn next_bounded(&mut self) -> Result<Option<Bounded>, StorageError> {
        self.slice(true)
    }

    /// The first instant after the slices returned so far; `None` at the end.
    pub fn rest(&self) -> Option<Timestamp> {
        self.rest.map(|(from, _)| Timestamp(from))
    }

    fn slice(&mut self, is_bounded: bool) -> Result<Option<Bounded>, StorageError> {
        while let Some((from, to)) = self.rest {
            let width = match self.width {
                Some(width) => width,
                None => self.first_width(from, to)?,
            };
            let end = from.saturating_add(width.saturating_sub(1)).min(to);
            let chunks = match self.chunks((from, end), is_bounded)? {
                Ok(chunks) => chunks,
                Err(_) if from == end => return Ok(Some(Bounded::Crowded(Timestamp(from)))),
                Err(shorter) => {
                    self.width = Some(shorter.saturating_sub(from).saturating_add(1));
                    continue;
                }
            };
            self.rest = end.checked_add(1).filter(|next| *next <= to).map(|next| (next, to));
            let rows: usize = chunks.iter().map(|chunk| chunk.times.len()).sum();
            self.width =
                Some(fitting(end.saturating_sub(from).saturating_add(1), rows, self.rows_max));
            if rows > 0 {
                let slice = TimeSlice::of_chunks(&chunks);
                self.series = self.series.max(slice.series.len());
                return Ok(Some(Bounded::Slice(slice)));
            }
        }
        Ok(None)
    }

    fn first_width(&self, from: i64, to: i64) -> Result<i64, StorageError> {
        let all = to.saturating_sub(from).saturating_add(1);
        let rows = self.snapshot.estimate_rows(&self.selector, Timestamp(from), Timestamp(to))?;
        let rows = usize::try_from(rows).unwrap_or(usize::MAX);
        Ok(if rows <= self.rows_max { all } else { fitting(all, rows, self.rows_max) })
    }

    /// The samples of a slice; or, if there are too many, an earlier end.
    fn chunks(
        &self,
        (from, to): (i64, i64),
        is_bounded: bool,
    ) -> Result<Result<Vec<Chunk>, i64>, StorageError> {
        let (mut chunks, mut rows) = (Vec::new(), 0);
        for chunk in self.snapshot.scan(&self.selector, Timestamp(from), Timestamp(to)) {
            let chunk = chunk?;
            rows += chunk.times.len();
            chunks.push(chunk);
            if rows > self.rows_max && (is_bounded || from < to) {
                return Ok(Err(self.earlier_end(&chunks, from)));
            }
        }
        Ok(Ok(chunks))
    }

    /// An earlier end for a slice that begins at `from` and has too many samples, including these. It lies
    /// among their instants, as far as samples of that many series fit, at most in their middle. If all are
    /// of one instant, it is just before it, or at it if the slice begins there.
    fn earlier_end(&self, chunks: &[Chunk], from: i64) -> i64 {
        let mut instants: Vec<i64> =
            chunks.iter().flat_map(|chunk| chunk.times.iter().copied()).collect();
        instants.sort_unstable();
        instants.dedup();
        match instants.as_slice() {
            [] => from,
            [one] => one.saturating_sub(1).max(from),
            more => {
                let fit = (self.rows_max / self.series.max(chunks.len())).saturating_sub(1);
                more.get(fit.min((more.len() - 1) / 2)).copied().unwrap_or(from)
            }
        }
    }
}

/// A width that yields about three quarters of the allowed rows, if `width` yielded `rows`.
fn fitting(width: i64, rows: usize, rows_max: usize) -> i64 {
    let wanted = i128::try_from(rows_max / 4 * 3).unwrap_or(i128::MAX).max(1);
    let none = rows == 0;
    let widest = i128::from(width) * if none { 1024 } else { 4 };
    let rows = i128::try_from(rows).unwrap_or(i128::MAX).max(1);
    let fitting = if none { widest } else { i128::from(width) * wanted / rows };
    i64::try_from(fitting.clamp(1, widest)).unwrap_or(i64::MAX)
}

impl TimeSlice {
    /// The rows of chunks in the order of a scan, ordered by time.
    pub fn of_chunks(chunks: &[Chunk]) -> Self {
        let mut series: Vec<Arc<SeriesInfo>> = Vec::new();
        let rows: usize = chunks.iter().map(|chunk| chunk.times.len()).sum();
        // An instant, and the row's number in the concatenated chunks.
        let mut order: Vec<(i64, u32)> = Vec::with_capacity(rows);
        let (mut places, mut values) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
        let mut starts = Vec::with_capacity(rows);
        for chunk in chunks {
            if series.last().is_none_or(|last| !SeriesInfo::same(last, &chunk.series)) {
                series.push(Arc::clone(&chunk.series));
            }
            let place = u32::try_from(series.len().saturating_sub(1)).unwrap_or(u32::MAX);
            for (at, value, start) in chunk.rows() {
                order.push((at.0, u32::try_from(places.len()).unwrap_or(u32::MAX)));
                places.push(place);
                values.push(value);
                starts.push(start.map_or(Self::NO_START, |start| start.0));
            }
        }
        // Stable, and quick on its input: ascending runs, one per chunk.
        order.sort_by_key(|(at, _)| *at);
        let pick = |row: &u32| *row as usize;
        Self {
            times: order.iter().map(|(at, _)| *at).collect(),
            places: order.iter().filter_map(|(_, row)| places.get(pick(row)).copied()).collect(),
            values: order.iter().filter_map(|(_, row)| values.get(pick(row)).copied()).collect(),
            starts: order.iter().filter_map(|(_, row)| starts.get(pick(row)).copied()).collect(),
            series,
        }
    }
}

impl Iterator for ByTime {
    type Item = Result<TimeSlice, StorageError>;

    fn next(&mut self) -> Option<Self::Item> {
        let slice = self.slice(false).transpose();
        if !matches!(slice, Some(Ok(_))) {
            self.rest = None;
        }
        slice.and_then(|slice| match slice {
            Ok(Bounded::Slice(slice)) => Some(Ok(slice)),
            // Only bounded slices skip an instant.
            Ok(Bounded::Crowded(_)) => None,
            Err(error) => Some(Err(error)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_follow_the_density_and_never_vanish() {
        assert_eq!(fitting(1000, 100, 100), 750);
        assert_eq!(fitting(1000, 10_000, 100), 7);
        assert_eq!(fitting(1000, 1_000_000, 100), 1);
        assert_eq!(fitting(1000, 1, 100), 4000);
        assert_eq!(fitting(1000, 0, 100), 1_024_000);
        assert_eq!(fitting(i64::MAX, 1, usize::MAX), i64::MAX);
    }
}
