//! Reads windows of a rollup file by row number: only the pages that contain them.

use super::index::Entry;
use super::read::{Opened, Pages, exactly, skip_all};
use super::rollup_writer::{INTS, REALS, Row, SPARSE, Window, unpack};
use super::schema::TIMESTAMP;
use super::{Block, BlockError};
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{DataType, DoubleType, Int64Type};
use parquet::errors::Result as ParquetResult;
use senders::NO_START;
use std::ops::Range;
use std::sync::Arc;
use storage::Meter;

/// Reads windows; each call reads later rows.
#[derive(Debug)]
pub(crate) struct RolledCursor {
    pages: Pages,
    group: Option<GroupCursor>,
    rows: Vec<Row>,
}

/// The progress within a row group.
struct GroupCursor {
    rows: Range<u64>,
    /// The next row of the file.
    next: u64,
    ints: Vec<ColumnReaderImpl<Int64Type>>,
    reals: Vec<ColumnReaderImpl<DoubleType>>,
    sparse: Vec<Option<ColumnReaderImpl<DoubleType>>>,
    resets: Option<ColumnReaderImpl<Int64Type>>,
}

impl std::fmt::Debug for GroupCursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GroupCursor").field("next", &self.next).finish_non_exhaustive()
    }
}

impl RolledCursor {
    pub(crate) fn new(block: &Arc<Block>, opened: &Arc<Opened>, meter: &Arc<Meter>) -> Self {
        Self { pages: Pages::new(block, opened, meter), group: None, rows: Vec::new() }
    }

    /// Appends the windows of some rows of a series.
    ///
    /// # Errors
    /// The file is damaged or cannot be read.
    pub(crate) fn read(
        &mut self,
        entry: &Entry,
        rows: Range<u64>,
        windows: &mut Vec<Window>,
    ) -> Result<(), BlockError> {
        let mut row = rows.start;
        while row < rows.end {
            self.rows.clear();
            let count = self.some(row, rows.end).map_err(|source| self.pages.error(source))?;
            let first = usize::try_from(row - entry.row).unwrap_or(usize::MAX);
            for (place, row) in (first..).zip(&self.rows) {
                let starts = [2 * place, 2 * place + 1].map(|place| start_at(entry, place));
                windows.push(unpack(&entry.series.metric, row, starts));
            }
            row += count;
        }
        Ok(())
    }

    fn some(&mut self, row: u64, end: u64) -> ParquetResult<u64> {
        let mut group = match self.group.take() {
            Some(group) if group.rows.contains(&row) && group.next <= row => group,
            _ => self.group(row)?,
        };
        let skip = usize::try_from(row - group.next)?;
        let count = usize::try_from(end.min(group.rows.end) - row)?;
        self.rows.resize(count, Row::default());
        for (place, column) in group.ints.iter_mut().enumerate() {
            let set = |row: &mut Row, value| row.ints.get_mut(place).map(|int| *int = value);
            dense(column, skip, &mut self.rows, set)?;
        }
        for (place, column) in group.reals.iter_mut().enumerate() {
            let set = |row: &mut Row, value| row.reals.get_mut(place).map(|real| *real = value);
            dense(column, skip, &mut self.rows, set)?;
        }
        for (place, column) in group.sparse.iter_mut().enumerate() {
            let set = |row: &mut Row, value| {
                row.sparse.get_mut(place).into_iter().for_each(|sparse| *sparse = Some(value));
            };
            sparse(column.as_mut(), skip, &mut self.rows, set)?;
        }
        let set = |row: &mut Row, value| row.resets = Some(value);
        sparse(group.resets.as_mut(), skip, &mut self.rows, set)?;
        group.next = row + count as u64;
        self.pages.read(count);
        self.group = Some(group);
        Ok(count as u64)
    }

    /// Begins the row group of a row.
    fn group(&self, row: u64) -> ParquetResult<GroupCursor> {
        let (index, rows) = self.pages.group(row)?;
        let ints = TIMESTAMP..TIMESTAMP + INTS;
        let reals = ints.end..ints.end + REALS;
        let sparse = reals.end..reals.end + SPARSE;
        Ok(GroupCursor {
            next: rows.start,
            rows,
            resets: self.pages.sparse(index, sparse.end)?,
            sparse: sparse
                .map(|column| self.pages.sparse(index, column))
                .collect::<Result<_, _>>()?,
            ints: ints.map(|column| self.pages.column(index, column)).collect::<Result<_, _>>()?,
            reals: reals
                .map(|column| self.pages.column(index, column))
                .collect::<Result<_, _>>()?,
        })
    }
}

/// The start at a position: row r has its first sample at 2 r and its last one at 2 r + 1.
fn start_at(entry: &Entry, place: usize) -> i64 {
    let run = entry.starts.partition_point(|(first, _)| *first <= place).checked_sub(1);
    run.and_then(|run| entry.starts.get(run)).map_or(NO_START, |(_, start)| *start)
}

/// Reads a mandatory column.
fn dense<T: DataType>(
    column: &mut ColumnReaderImpl<T>,
    skip: usize,
    rows: &mut [Row],
    set: impl Fn(&mut Row, T::T) -> Option<()>,
) -> ParquetResult<()> {
    skip_all(column, skip)?;
    let mut values = Vec::with_capacity(rows.len());
    exactly(rows.len(), column.read_records(rows.len(), None, None, &mut values)?.0)?;
    exactly(rows.len(), values.len())?;
    rows.iter_mut().zip(values).try_for_each(|(row, value)| set(row, value)).unwrap_or_default();
    Ok(())
}

/// Reads an optional column, if any row has it.
fn sparse<T: DataType>(
    column: Option<&mut ColumnReaderImpl<T>>,
    skip: usize,
    rows: &mut [Row],
    set: impl Fn(&mut Row, T::T),
) -> ParquetResult<()> {
    let Some(column) = column else { return Ok(()) };
    skip_all(column, skip)?;
    let (mut levels, mut values) = (Vec::with_capacity(rows.len()), Vec::new());
    let read = column.read_records(rows.len(), Some(&mut levels), None, &mut values)?;
    exactly(rows.len(), read.0)?;
    let mut values = values.into_iter();
    for (row, level) in rows.iter_mut().zip(levels) {
        if level != 0
            && let Some(value) = values.next()
        {
            set(row, value);
        }
    }
    Ok(())
}
