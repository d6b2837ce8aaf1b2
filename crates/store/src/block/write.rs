//! A block being written: series after series, row group after row group, then the index.

use super::checks::Checks;
use super::index::{Entry, IndexWriter};
use super::runs::{EncodedColumn, RunColumn, RunValue};
use super::schema;
use crate::disk::WriteFile;
use crate::head::Raw;
use crate::settings::Settings;
use crate::slab::SeriesRows;
use crate::table::NO_START;
use parquet::column::writer::ColumnWriterImpl;
use parquet::data_type::{DataType, DoubleType, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterPropertiesPtr;
use parquet::file::writer::{SerializedFileWriter, SerializedPageWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// In the file's key-value metadata: where the index's directory lies.
pub(crate) const INDEX_KEY: &str = "jobmeter.index";

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) rows: u64,
    pub(crate) series: u64,
    pub(crate) bytes: u64,
    /// First and last instant.
    pub(crate) from: i64,
    pub(crate) to: i64,
    /// Where the part begins that is read when the block is opened, and its CRC-32C.
    pub(crate) tail: u64,
    pub(crate) tail_crc: u32,
}

/// Writes one block.
#[derive(Debug)]
pub(crate) struct BlockWriter {
    file: SerializedFileWriter<Sink>,
    columns: Columns,
    index: IndexWriter,
    /// The series that was begun.
    entry: Option<Entry>,
    checks: Checks,
    row_group_rows: usize,
    written: Written,
}

/// The rows of the row group being collected.
#[derive(Debug, Default)]
struct Columns {
    times: Vec<i64>,
    steps: Vec<i64>,
    step_levels: Vec<i16>,
    reals: Vec<f64>,
    real_levels: Vec<i16>,
    runs: [RunColumn; 7],
}

/// A file of the disk as the Parquet library writes it.
#[derive(Debug)]
struct Sink {
    file: Box<dyn WriteFile>,
    bytes: u64,
    /// Where the tail begins; `u64::MAX` until that is known.
    tail: u64,
    tail_crc: u32,
}

impl io::Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)?;
        // The library buffers: bytes from before the tail may come after it was announced.
        let before = usize::try_from(self.tail.saturating_sub(self.bytes)).unwrap_or(usize::MAX);
        let tail = bytes.get(before..).unwrap_or_default();
        self.tail_crc = crc32c::crc32c_append(self.tail_crc, tail);
        self.bytes += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl BlockWriter {
    /// Begins a block in an empty file.
    pub(crate) fn new(file: Box<dyn WriteFile>, settings: &Settings) -> Result<Self> {
        let properties = schema::properties(settings.page_rows.max(1))?;
        let sink = Sink { file, bytes: 0, tail: u64::MAX, tail_crc: 0 };
        let file = SerializedFileWriter::new(sink, schema::schema()?, properties)?;
        Ok(Self {
            file,
            columns: Columns::default(),
            index: IndexWriter::default(),
            entry: None,
            checks: Checks::default(),
            row_group_rows: settings.row_group_rows.max(1),
            written: Written {
                rows: 0,
                series: 0,
                bytes: 0,
                from: i64::MAX,
                to: i64::MIN,
                tail: 0,
                tail_crc: 0,
            },
        })
    }

    /// Adds rows of a series: the next one, or more of the one before, with the same divisor.
    pub(crate) fn series(&mut self, rows: SeriesRows<'_>) -> Result<()> {
        let (Some(from), Some(to)) = (rows.times.first(), rows.times.last()) else { return Ok(()) };
        let (Some(bits), Some(real)) = (rows.bits.last(), rows.reals.last()) else { return Ok(()) };
        if self.entry.as_ref().is_some_and(|entry| entry.series != rows.series.series) {
            self.end_series()?;
        }
        let row = self.written.rows;
        let entry = self.entry.get_or_insert_with(|| Entry {
            series: rows.series.series.clone(),
            row,
            rows: 0,
            from: *from,
            to: *to,
            divisor: rows.divisor,
            last: 0.0,
            starts: Vec::new(),
        });
        let before = usize::try_from(entry.rows)?;
        for (row, start) in rows.starts {
            if entry.starts.last().is_none_or(|(_, last)| last != start) {
                entry.starts.push((before + row, *start));
            }
        }
        entry.rows += rows.times.len() as u64;
        entry.to = *to;
        entry.last = Raw { bits: *bits, real: *real }.value(rows.divisor);
        self.written.rows += rows.times.len() as u64;
        self.written.from = self.written.from.min(*from);
        self.written.to = self.written.to.max(*to);
        let mut at = 0;
        while at < rows.times.len() {
            let room = self.row_group_rows.saturating_sub(self.columns.times.len());
            let end = rows.times.len().min(at + room);
            self.columns.push(&rows, at..end);
            at = end;
            if self.columns.times.len() >= self.row_group_rows {
                self.end_row_group()?;
            }
        }
        Ok(())
    }

    fn end_series(&mut self) -> Result<()> {
        if let Some(entry) = self.entry.take() {
            self.index.push(&entry)?;
            self.written.series += 1;
        }
        Ok(())
    }

    fn end_row_group(&mut self) -> Result<()> {
        let described = self.file.schema_descr().columns().to_vec();
        let properties = Arc::clone(self.file.properties());
        let mut offset = self.file.bytes_written() as u64;
        let columns = self.columns.encode(&described, &properties)?;
        let mut group = self.file.next_row_group()?;
        for (EncodedColumn { bytes, close }, runs) in columns {
            let pages = close.offset_index.iter().flat_map(|pages| pages.page_locations());
            if runs {
                self.checks.push(offset, &bytes);
            } else {
                for page in pages {
                    let start = usize::try_from(page.offset)?;
                    let length = usize::try_from(page.compressed_page_size)?;
                    let page = bytes.get(start..start + length).ok_or_else(odd)?;
                    self.checks.push(offset + start as u64, page);
                }
            }
            offset += bytes.len() as u64;
            group.append_column(&bytes::Bytes::from(bytes), close)?;
        }
        group.close()?;
        Ok(())
    }

    /// Writes what is left, the index and the footer, and waits until all of it is on the disk.
    pub(crate) fn finish(mut self) -> Result<Written> {
        self.end_series()?;
        if !self.columns.times.is_empty() {
            self.end_row_group()?;
        }
        let offset = self.file.bytes_written() as u64;
        let (parts, mut directory) = self.index.finish(offset)?;
        self.checks.put(&mut directory);
        self.file.write_all(&parts)?;
        let place = offset + parts.len() as u64;
        self.file.inner_mut().tail = place;
        self.file.write_all(&directory)?;
        let value = format!("1 {place} {}", directory.len());
        self.file.append_key_value_metadata(KeyValue::new(INDEX_KEY.to_owned(), value));
        let mut sink = self.file.into_inner()?;
        sink.file.sync()?;
        Ok(Written { bytes: sink.bytes, tail: place, tail_crc: sink.tail_crc, ..self.written })
    }
}

impl Columns {
    fn push(&mut self, rows: &SeriesRows<'_>, range: Range<usize>) {
        self.times.extend_from_slice(rows.times.get(range.clone()).unwrap_or_default());
        let bits = rows.bits.get(range.clone()).unwrap_or_default();
        let reals = rows.reals.get(range.clone()).unwrap_or_default();
        if reals.contains(&true) {
            for (bits, real) in bits.iter().zip(reals) {
                if *real {
                    self.reals.push(f64::from_bits(bits.cast_unsigned()));
                } else {
                    self.steps.push(*bits);
                }
            }
            self.step_levels.extend(reals.iter().map(|real| i16::from(!*real)));
            self.real_levels.extend(reals.iter().map(|real| i16::from(*real)));
        } else {
            self.steps.extend_from_slice(bits);
            self.step_levels.resize(self.times.len(), 1);
            self.real_levels.resize(self.times.len(), 0);
        }
        let series = &rows.series.series;
        let job = series.job.as_ref();
        let same = [
            RunValue::Text(series.device.as_str()),
            RunValue::Text(&series.metric),
            job.map_or(RunValue::Null, |job| RunValue::Text(job.cluster.as_str())),
            job.map_or(RunValue::Null, |job| RunValue::Int64(job.id.get())),
            RunValue::Text(series.labels.as_str()),
        ];
        let [device, metric, cluster, job_id, labels, start, divisor] = &mut self.runs;
        for (column, value) in [device, metric, cluster, job_id, labels].into_iter().zip(same) {
            column.push(value, range.len());
        }
        divisor.push(RunValue::Int32(rows.divisor), range.len());
        for (run, (first, value)) in rows.starts.iter().enumerate() {
            let end = rows.starts.get(run + 1).map_or(rows.times.len(), |(next, _)| *next);
            let (first, end) = ((*first).max(range.start), end.min(range.end));
            if first < end {
                let value = *value;
                let value = (value != NO_START).then_some(RunValue::Int64(value));
                start.push(value.unwrap_or(RunValue::Null), end - first);
            }
        }
    }

    /// Encodes the columns of a row group, and empties them. Tells of each whether it is made of runs.
    fn encode(
        &mut self,
        described: &[ColumnDescPtr],
        properties: &WriterPropertiesPtr,
    ) -> Result<Vec<(EncodedColumn, bool)>> {
        let mut described = described.iter();
        let mut next = || described.next().ok_or_else(odd);
        let mut encoded = Vec::with_capacity(schema::COLUMNS);
        let (identity, rest) = self.runs.split_at_mut(schema::TIMESTAMP);
        for runs in identity {
            encoded.push((runs.finish(next()?)?, true));
        }
        encoded.push((values::<Int64Type>(next()?, properties, &self.times, None)?, false));
        let levels = Some(&*self.step_levels);
        encoded.push((values::<Int64Type>(next()?, properties, &self.steps, levels)?, false));
        let levels = Some(&*self.real_levels);
        encoded.push((values::<DoubleType>(next()?, properties, &self.reals, levels)?, false));
        for runs in rest {
            encoded.push((runs.finish(next()?)?, true));
        }
        self.times.clear();
        self.steps.clear();
        self.step_levels.clear();
        self.reals.clear();
        self.real_levels.clear();
        Ok(encoded)
    }
}

/// Encodes a column from values.
fn values<T: DataType>(
    column: &ColumnDescPtr,
    properties: &WriterPropertiesPtr,
    values: &[T::T],
    levels: Option<&[i16]>,
) -> Result<EncodedColumn> {
    let mut out = TrackedWrite::new(Vec::new());
    let pages = Box::new(SerializedPageWriter::new(&mut out));
    let mut writer = ColumnWriterImpl::<T>::new(Arc::clone(column), Arc::clone(properties), pages);
    writer.write_batch(values, levels, None)?;
    let close = writer.close()?;
    Ok(EncodedColumn { bytes: out.into_inner()?, close })
}

fn odd() -> ParquetError {
    ParquetError::General("the columns are not those of the schema".to_owned())
}
