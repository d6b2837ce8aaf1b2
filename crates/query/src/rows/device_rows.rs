//! Rows of devices under their own names.

use crate::engine::access_filter::Visibility;
use crate::rows::line_cache::LineCache;
use crate::rows::node_rows_filter::NodeRowsFilter;
use crate::rows::slices::{Slice, Slices, leave, validity};
use crate::{Cancel, QueryError, RowBatch};
use storage::{Chunk, Parts};

/// Rows ascending by time.
#[derive(Debug)]
pub(crate) struct DeviceRows {
    slices: Slices,
    lines: LineCache,
    /// When node samples (not attributed to a job) are included.
    node_rows: NodeRowsFilter,
}

impl DeviceRows {
    pub(crate) fn new(slices: Slices, lines: LineCache, node_rows: NodeRowsFilter) -> Self {
        Self { slices, lines, node_rows }
    }

    fn rows_of(&mut self, slice: Slice) -> Result<RowBatch, QueryError> {
        let mut batch = RowBatch::default();
        // For each series of the slice: its index in the batch, and when its rows are included (`None`: always).
        let mut places = Vec::with_capacity(slice.series.len());
        let mut whole = true;
        let ends = slice.times.first().zip(slice.times.last());
        for info in &slice.series {
            let line = self.lines.own(info)?;
            places.push(line.map(|line| {
                let place = u32::try_from(batch.lines.len()).unwrap_or(u32::MAX);
                let ranges = line.job.is_none().then(|| self.node_rows.on(&line.device));
                let ranges = ranges
                    .filter(|ranges| !ends.is_none_or(|(first, last)| ranges.cover(*first, *last)));
                whole &= ranges.is_none();
                batch.lines.push(line);
                (place, ranges)
            }));
        }
        if whole && places.iter().all(Option::is_some) {
            // The indexes in slice and batch are equal, so no rows are removed.
            let Slice { places, times, values, valid, .. } = slice;
            return Ok(RowBatch { places, times, values, valid, ..batch });
        }
        for (row, (place, at)) in slice.places.iter().zip(&slice.times).enumerate() {
            let place = usize::try_from(*place).ok().and_then(|place| places.get(place));
            let Some((place, ranges)) = place.and_then(Option::as_ref) else { continue };
            let value = slice.values.get(row).copied().unwrap_or(f64::NAN);
            if ranges.as_ref().is_none_or(|ranges| ranges.have(*at)) {
                batch.push(*place, *at, value, slice.valid.get(row).copied().unwrap_or(true));
            }
        }
        Ok(batch)
    }
}

impl Iterator for DeviceRows {
    type Item = Result<RowBatch, QueryError>;

    fn next(&mut self) -> Option<Self::Item> {
        let Self { slices, lines, .. } = self;
        let slice = slices.next(&mut |info| lines.seen(info))?;
        Some(slice.and_then(|slice| self.rows_of(slice)))
    }
}

/// Rows series by series.
#[derive(Debug)]
pub(crate) struct DeviceChunks {
    scan: Parts<Chunk>,
    lines: LineCache,
    cancel: Cancel,
}

impl DeviceChunks {
    pub(crate) fn new(scan: Parts<Chunk>, lines: LineCache, cancel: Cancel) -> Self {
        Self { scan, lines, cancel }
    }

    fn read(&mut self) -> Result<Option<RowBatch>, QueryError> {
        loop {
            self.cancel.check()?;
            let Some(chunk) = self.scan.next().transpose()? else { return Ok(None) };
            if let Some(line) = self.lines.own(&chunk.series)? {
                let (mut times, mut values) = (chunk.times, chunk.values);
                let seen = self.lines.seen(&chunk.series)?;
                if seen != Visibility::Always {
                    let kept: Vec<bool> = times.iter().map(|at| seen.at(*at)).collect();
                    leave(&mut times, &kept);
                    leave(&mut values, &kept);
                }
                let (lines, places) = (vec![line], vec![0; times.len()]);
                let valid = validity(&values);
                return Ok(Some(RowBatch { lines, places, times, values, valid }));
            }
        }
    }
}

impl Iterator for DeviceChunks {
    type Item = Result<RowBatch, QueryError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}
