//! Reads rows of a block by row number: only the pages that contain them.

use super::checks::Checks;
use super::column_target::{Lane, mixed};
use super::container::INDEX_KEY;
use super::index::{Entry, Part, directory as directory_of, entries};
use super::schema::{REAL, STEP, TIMESTAMP};
use super::{Block, BlockError};
use crate::files::disk::ReadFile;
use crate::files::errors::DiskError;
use bytes::Bytes;
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{DataType, DoubleType, Int64Type};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::{
    PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData,
};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::serialized_reader::SerializedPageReader;
use std::ops::Range;
use std::sync::Arc;
use storage::Meter;

/// Longest accepted tail: it is read as a whole.
const TAIL_BYTES_MAX: u64 = 256 << 20;

/// A block's file, as the Parquet library reads it.
#[derive(Debug)]
struct Counted {
    file: Arc<dyn ReadFile>,
    length: u64,
    meter: Arc<Meter>,
    opened: Arc<Opened>,
}

impl Length for Counted {
    fn len(&self) -> u64 {
        self.length
    }
}

impl ChunkReader for Counted {
    type T = bytes::buf::Reader<Bytes>;

    fn get_read(&self, start: u64) -> ParquetResult<Self::T> {
        // Only a reader without page locations requests this; all our columns have them.
        Err(ParquetError::General(format!("a page at {start} is read without its length")))
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        let mut bytes = vec![0; length];
        self.file.read_at(&mut bytes, start)?;
        self.meter.add(length as u64, 0, 0);
        if !self.opened.checks.hold(start, &bytes) {
            let why = format!("the page at byte {start} is damaged: its checksum differs");
            return Err(ParquetError::General(why));
        }
        Ok(bytes.into())
    }
}

/// The end of a file, in memory: the source of the footer and the page indexes.
#[derive(Debug)]
struct Tail {
    bytes: Bytes,
    /// Its start in the file.
    at: u64,
}

impl Tail {
    fn from(&self, start: u64) -> ParquetResult<Bytes> {
        let offset = start.checked_sub(self.at).and_then(|offset| usize::try_from(offset).ok());
        let offset = offset.filter(|offset| *offset <= self.bytes.len());
        let outside = || ParquetError::EOF(format!("byte {start} is outside of the tail"));
        Ok(self.bytes.slice(offset.ok_or_else(outside)?..))
    }
}

impl Length for Tail {
    fn len(&self) -> u64 {
        self.at + self.bytes.len() as u64
    }
}

impl ChunkReader for Tail {
    type T = bytes::buf::Reader<Bytes>;

    fn get_read(&self, start: u64) -> ParquetResult<Self::T> {
        Ok(bytes::Buf::reader(self.from(start)?))
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        let rest = self.from(start)?;
        if length > rest.len() {
            return Err(ParquetError::EOF(format!("the tail has no {length} bytes at {start}")));
        }
        Ok(rest.slice(..length))
    }
}

/// A block's footer and the directory of its index.
#[derive(Debug)]
pub(crate) struct Opened {
    metadata: ParquetMetaData,
    /// First row of each row group, and the number of rows at the end.
    first_rows: Vec<u64>,
    pub(crate) parts: Vec<Part>,
    pub(super) checks: Checks,
}

impl Opened {
    pub(super) fn read(block: &Block, meter: &Meter) -> Result<Self, BlockError> {
        let at = block.note.tail;
        let length = block.note.bytes.saturating_sub(at);
        if length > TAIL_BYTES_MAX {
            return Err(block.damaged("it is too long"));
        }
        let bytes = block.bytes(meter, at, length)?;
        if crc32c::crc32c(&bytes) != block.note.tail_crc {
            return Err(block.damaged("the checksum of the file's tail differs"));
        }
        let file = Tail { bytes, at };
        let metadata = ParquetMetaDataReader::new()
            .with_page_index_policy(PageIndexPolicy::Required)
            .parse_and_finish(&file)
            .map_err(|source| block.parquet(source))?;
        let mut first_rows = vec![0];
        let mut row = 0;
        for group in metadata.row_groups() {
            row += u64::try_from(group.num_rows()).unwrap_or(0);
            first_rows.push(row);
            if group.num_columns() != block.note.columns() {
                return Err(block.damaged("a row group has other columns"));
            }
        }
        if row != block.note.rows {
            return Err(block.damaged("the footer and the manifest have different numbers of rows"));
        }
        let directory = directory_bytes(&file, &metadata);
        let directory = directory.as_deref().and_then(directory_of);
        let (parts, checks) =
            directory.ok_or_else(|| block.damaged("the directory is malformed"))?;
        Ok(Self { metadata, first_rows, parts, checks })
    }

    /// The rows of a series (`rows` of the block) without pages wholly outside the interval.
    pub(crate) fn narrow(&self, rows: Range<u64>, from: i64, to: i64) -> Range<u64> {
        let mut narrow = rows.clone();
        let (Some(times), Some(offsets)) =
            (self.metadata.column_index(), self.metadata.offset_index())
        else {
            return narrow;
        };
        let begun = self.first_rows.partition_point(|first| *first <= rows.start).saturating_sub(1);
        let groups = self.first_rows.windows(2).zip(times).zip(offsets).skip(begun);
        for ((group, times), offsets) in groups {
            let [first, end] = group else { continue };
            if *first >= rows.end {
                break;
            }
            let (Some(ColumnIndexMetaData::INT64(times)), Some(offsets)) =
                (times.get(TIMESTAMP), offsets.get(TIMESTAMP))
            else {
                continue;
            };
            let locations = offsets.page_locations();
            for (page, location) in locations.iter().enumerate() {
                let page_row = |row: i64| first + u64::try_from(row).unwrap_or(0);
                let start = page_row(location.first_row_index);
                let next = locations.get(page + 1);
                let stop = next.map_or(*end, |next| page_row(next.first_row_index));
                if start < rows.start || stop > rows.end {
                    continue;
                }
                if times.max_value(page).is_some_and(|last| *last < from) {
                    narrow.start = narrow.start.max(stop);
                }
                if times.min_value(page).is_some_and(|first| *first > to) {
                    narrow.end = narrow.end.min(start);
                }
            }
        }
        narrow
    }
}

impl Block {
    fn parquet(&self, error: ParquetError) -> BlockError {
        BlockError::Parquet { path: self.path.clone(), error }
    }

    fn damaged(&self, why: &str) -> BlockError {
        BlockError::Index { path: self.path.clone(), why: why.to_owned() }
    }

    pub(super) fn bytes(
        &self,
        meter: &Meter,
        offset: u64,
        length: u64,
    ) -> Result<Bytes, BlockError> {
        let inside = offset.checked_add(length).is_some_and(|end| end <= self.note.bytes);
        let length = usize::try_from(length).ok().filter(|_| inside);
        let length = length.ok_or_else(|| self.damaged("it points outside the file"))?;
        let mut bytes = vec![0; length];
        self.file.read_at(&mut bytes, offset).map_err(DiskError::of("read", &self.path))?;
        meter.add(length as u64, 0, 0);
        Ok(bytes.into())
    }

    /// The series of a part of the index.
    ///
    /// # Errors
    /// It is damaged or cannot be read.
    pub(crate) fn entries(&self, part: &Part, meter: &Meter) -> Result<Vec<Entry>, BlockError> {
        let bytes = self.bytes(meter, part.offset, part.length)?;
        entries(part, &bytes).ok_or_else(|| self.damaged("a part's checksum differs"))
    }
}

/// The directory's bytes, at the location in the footer.
fn directory_bytes(file: &Tail, metadata: &ParquetMetaData) -> Option<Bytes> {
    let values = metadata.file_metadata().key_value_metadata()?;
    let value = values.iter().find(|value| value.key == INDEX_KEY)?.value.as_deref()?;
    let mut words = value.split(' ');
    if words.next()? != "1" {
        return None;
    }
    let (offset, length) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    file.get_bytes(offset, length).ok()
}

/// The columns of a file, page by page.
#[derive(Debug)]
pub(super) struct Pages {
    block: Arc<Block>,
    opened: Arc<Opened>,
    file: Arc<Counted>,
}

impl Pages {
    pub(super) fn new(block: &Arc<Block>, opened: &Arc<Opened>, meter: &Arc<Meter>) -> Self {
        let file = Arc::new(Counted {
            file: Arc::clone(&block.file),
            length: block.note.bytes,
            meter: Arc::clone(meter),
            opened: Arc::clone(opened),
        });
        Self { block: Arc::clone(block), opened: Arc::clone(opened), file }
    }

    /// The row group of a row: its number and its rows.
    pub(super) fn group(&self, row: u64) -> ParquetResult<(usize, Range<u64>)> {
        let outside = || ParquetError::EOF(format!("there is no row {row}"));
        let firsts = &self.opened.first_rows;
        let index = firsts.partition_point(|first| *first <= row).checked_sub(1);
        let index = index.ok_or_else(outside)?;
        let (first, end) = firsts.get(index).zip(firsts.get(index + 1)).ok_or_else(outside)?;
        self.file.meter.add(0, 1, 0);
        Ok((index, *first..*end))
    }

    /// Counts decoded rows.
    pub(super) fn read(&self, rows: usize) {
        self.file.meter.add(0, 0, rows as u64);
    }

    /// An error of the library for this file.
    pub(super) fn error(&self, error: ParquetError) -> BlockError {
        self.block.parquet(error)
    }

    /// A column of a row group, unless no row has a value.
    pub(super) fn sparse<T: DataType>(
        &self,
        index: usize,
        column: usize,
    ) -> ParquetResult<Option<ColumnReaderImpl<T>>> {
        let group = self.opened.metadata.row_group(index);
        (!all_null(group, column)).then(|| self.column(index, column)).transpose()
    }

    /// A column of a row group.
    pub(super) fn column<T: DataType>(
        &self,
        index: usize,
        column: usize,
    ) -> ParquetResult<ColumnReaderImpl<T>> {
        let group = self.opened.metadata.row_group(index);
        let chunk = group.column(column);
        let offsets = self.opened.metadata.offset_index();
        let offsets = offsets.and_then(|groups| groups.get(index)?.get(column));
        let locations = offsets.map(|offsets| offsets.page_locations().clone());
        let rows = usize::try_from(group.num_rows())?;
        let pages = SerializedPageReader::new(Arc::clone(&self.file), chunk, rows, locations)?;
        Ok(ColumnReaderImpl::new(chunk.column_descr_ptr(), Box::new(pages)))
    }
}

/// Reads rows of a block; each call reads later rows.
#[derive(Debug)]
pub(crate) struct RowCursor {
    pages: Pages,
    group: Option<GroupCursor>,
    levels: Vec<i16>,
    steps: Vec<i64>,
    reals: Vec<f64>,
}

/// The progress within a row group.
struct GroupCursor {
    rows: Range<u64>,
    /// The next row of the block.
    next: u64,
    times: ColumnReaderImpl<Int64Type>,
    steps: Option<ColumnReaderImpl<Int64Type>>,
    reals: Option<ColumnReaderImpl<DoubleType>>,
}

impl std::fmt::Debug for GroupCursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GroupCursor").field("next", &self.next).finish_non_exhaustive()
    }
}

impl RowCursor {
    pub(crate) fn new(block: &Arc<Block>, opened: &Arc<Opened>, meter: &Arc<Meter>) -> Self {
        Self {
            pages: Pages::new(block, opened, meter),
            group: None,
            levels: Vec::new(),
            steps: Vec::new(),
            reals: Vec::new(),
        }
    }

    /// Appends the instants and values of some rows of one series.
    ///
    /// # Errors
    /// The block is damaged or cannot be read.
    pub(crate) fn read(
        &mut self,
        rows: Range<u64>,
        divisor: u32,
        times: &mut Vec<i64>,
        values: &mut impl Lane,
    ) -> Result<(), BlockError> {
        let mut row = rows.start;
        while row < rows.end {
            let count = self.some(row, rows.end, divisor, times, values);
            row += count.map_err(|source| self.pages.error(source))?;
        }
        Ok(())
    }

    fn some(
        &mut self,
        row: u64,
        end: u64,
        divisor: u32,
        times: &mut Vec<i64>,
        values: &mut impl Lane,
    ) -> ParquetResult<u64> {
        let mut group = match self.group.take() {
            Some(group) if group.rows.contains(&row) && group.next <= row => group,
            _ => self.group(row)?,
        };
        let skip = usize::try_from(row - group.next)?;
        let count = usize::try_from(end.min(group.rows.end) - row)?;
        skip_all(&mut group.times, skip)?;
        exactly(count, group.times.read_records(count, None, None, times)?.0)?;
        self.levels.clear();
        self.steps.clear();
        self.reals.clear();
        if let Some(column) = &mut group.reals {
            skip_all(column, skip)?;
            let read = column.read_records(count, Some(&mut self.levels), None, &mut self.reals)?;
            exactly(count, read.0)?;
        }
        if let Some(column) = &mut group.steps {
            skip_all(column, skip)?;
            self.levels.clear();
            let read = column.read_records(count, Some(&mut self.levels), None, &mut self.steps)?;
            exactly(count, read.0)?;
        } else {
            self.levels.iter_mut().for_each(|level| *level = 0);
        }
        if self.reals.is_empty() {
            exactly(count, self.steps.len())?;
            values.steps(&self.steps, divisor);
        } else {
            exactly(count, self.steps.len() + self.reals.len())?;
            mixed(values, &self.levels, &self.steps, &self.reals, divisor);
        }
        group.next = row + count as u64;
        self.pages.read(count);
        self.group = Some(group);
        Ok(count as u64)
    }

    /// Begins the row group of a row.
    fn group(&self, row: u64) -> ParquetResult<GroupCursor> {
        let (index, rows) = self.pages.group(row)?;
        Ok(GroupCursor {
            next: rows.start,
            times: self.pages.column(index, TIMESTAMP)?,
            steps: self.pages.sparse(index, STEP)?,
            reals: self.pages.sparse(index, REAL)?,
            rows,
        })
    }
}

/// Whether no row of a column has a value, so that it need not be read.
fn all_null(group: &RowGroupMetaData, column: usize) -> bool {
    let statistics = group.column(column).statistics();
    let nulls = statistics.and_then(|statistics| statistics.null_count_opt());
    nulls.is_some() && nulls == u64::try_from(group.num_rows()).ok()
}

pub(super) fn skip_all<T: DataType>(
    column: &mut ColumnReaderImpl<T>,
    rows: usize,
) -> ParquetResult<()> {
    exactly(rows, column.skip_records(rows)?)
}

pub(super) fn exactly(want: usize, have: usize) -> ParquetResult<()> {
    if want == have {
        return Ok(());
    }
    Err(ParquetError::EOF(format!("{have} of {want} rows are there")))
}
