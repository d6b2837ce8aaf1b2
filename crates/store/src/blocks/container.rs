//! A Parquet file while it is written: row groups of encoded columns, the index of their series, the checksums.

use super::checks::Checks;
use super::columns::EncodedColumn;
use super::index::{Entry, IndexWriter};
use crate::files::disk::WriteFile;
use model::Series;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterPropertiesPtr;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnDescPtr, TypePtr};
use std::io;

/// Key in the file's metadata: the location of the index's directory.
pub(crate) const INDEX_KEY: &str = "jobmeter.index";

/// A finished file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) rows: u64,
    pub(crate) series: u64,
    pub(crate) bytes: u64,
    /// First and last instant.
    pub(crate) from: i64,
    pub(crate) to: i64,
    /// Start of the part that is read when the block is opened, and its CRC-32C.
    pub(crate) tail: u64,
    pub(crate) tail_crc: u32,
}

/// The columns of a row group while it is collected.
pub(super) trait Columns {
    /// Rows collected so far.
    fn rows(&self) -> usize;

    /// Encodes the columns as described, and empties them. Returns for each whether it is encoded as runs.
    fn encode(&mut self, described: &[ColumnDescPtr]) -> Result<Vec<(EncodedColumn, bool)>>;
}

/// A file while it is written.
#[derive(Debug)]
pub(super) struct Container<C> {
    /// The current row group.
    pub(super) columns: C,
    row_group_rows: usize,
    file: SerializedFileWriter<Sink>,
    index: IndexWriter,
    /// The current series.
    entry: Option<Entry>,
    checks: Checks,
    written: Written,
}

/// The file is synced in pieces of this size. The log waits for the disk at each commit: behind a large block
/// written at once, it would wait for seconds.
const SYNC_EVERY_BYTES: u64 = 4 << 20;

/// The output file, as the Parquet library writes to it.
#[derive(Debug)]
struct Sink {
    file: Box<dyn WriteFile>,
    bytes: u64,
    /// Number of bytes that are synced.
    synced: u64,
    /// Start of the tail; `u64::MAX` until known.
    tail: u64,
    tail_crc: u32,
}

impl io::Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)?;
        // The library buffers: bytes from before the tail may arrive after its start was announced.
        let before = usize::try_from(self.tail.saturating_sub(self.bytes)).unwrap_or(usize::MAX);
        let tail = bytes.get(before..).unwrap_or_default();
        self.tail_crc = crc32c::crc32c_append(self.tail_crc, tail);
        self.bytes += bytes.len() as u64;
        if self.bytes - self.synced >= SYNC_EVERY_BYTES {
            self.file.sync()?;
            self.synced = self.bytes;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Rows of one series, as described by its index entry.
#[derive(Debug)]
pub(super) struct RowRange<'a> {
    pub(super) series: &'a Series,
    pub(super) divisor: u32,
    pub(super) rows: usize,
    /// First and last instant.
    pub(super) span: (i64, i64),
    /// The last value.
    pub(super) last: f64,
    /// First position of each run of one start.
    pub(super) starts: &'a [(usize, i64)],
    /// Positions per row.
    pub(super) places: usize,
}

impl<C: Columns> Container<C> {
    /// Begins an empty file.
    pub(super) fn new(
        file: Box<dyn WriteFile>,
        columns: C,
        (schema, properties): (TypePtr, WriterPropertiesPtr),
        row_group_rows: usize,
    ) -> Result<Self> {
        let sink = Sink { file, bytes: 0, synced: 0, tail: u64::MAX, tail_crc: 0 };
        let (from, to) = (i64::MAX, i64::MIN);
        Ok(Self {
            columns,
            row_group_rows: row_group_rows.max(1),
            file: SerializedFileWriter::new(sink, schema, properties)?,
            index: IndexWriter::default(),
            entry: None,
            checks: Checks::default(),
            written: Written { rows: 0, series: 0, bytes: 0, from, to, tail: 0, tail_crc: 0 },
        })
    }

    /// Records rows of a series: the next series, or more rows of the current one with the same divisor.
    pub(super) fn note(&mut self, row_range: &RowRange<'_>) -> Result<()> {
        if self.entry.as_ref().is_some_and(|entry| entry.series != *row_range.series) {
            self.end_series()?;
        }
        let (row, (from, to)) = (self.written.rows, row_range.span);
        let entry = self.entry.get_or_insert_with(|| Entry {
            series: row_range.series.clone(),
            row,
            rows: 0,
            from,
            to,
            divisor: row_range.divisor,
            last: 0.0,
            starts: Vec::new(),
        });
        let before = usize::try_from(entry.rows)? * row_range.places;
        for (place, start) in row_range.starts {
            if entry.starts.last().is_none_or(|(_, last)| last != start) {
                entry.starts.push((before + place, *start));
            }
        }
        entry.rows += row_range.rows as u64;
        entry.to = to;
        entry.last = row_range.last;
        self.written.rows += row_range.rows as u64;
        self.written.from = self.written.from.min(from);
        self.written.to = self.written.to.max(to);
        Ok(())
    }

    fn end_series(&mut self) -> Result<()> {
        if let Some(entry) = self.entry.take() {
            self.index.push(&entry)?;
            self.written.series += 1;
        }
        Ok(())
    }

    /// Free rows in the current row group.
    pub(super) fn free_rows(&self) -> usize {
        self.row_group_rows.saturating_sub(self.columns.rows())
    }

    /// Ends the current row group, if it is full.
    pub(super) fn end_full(&mut self) -> Result<()> {
        if self.free_rows() == 0 { self.end_row_group() } else { Ok(()) }
    }

    fn end_row_group(&mut self) -> Result<()> {
        let described = self.file.schema_descr().columns().to_vec();
        let columns = self.columns.encode(&described)?;
        let mut offset = self.file.bytes_written() as u64;
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

    /// Writes the rest, the index and the footer, and syncs the file.
    pub(super) fn finish(mut self) -> Result<Written> {
        if self.columns.rows() > 0 {
            self.end_row_group()?;
        }
        self.end_series()?;
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

pub(super) fn odd() -> ParquetError {
    ParquetError::General("the columns do not match the schema".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use std::io::Write as _;
    use std::sync::Arc;

    /// Bytes written, and their number at each sync.
    #[derive(Clone, Debug, Default)]
    struct Watched(Arc<Mutex<(u64, Vec<u64>)>>);

    impl WriteFile for Watched {
        fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
            self.0.lock().0 += bytes.len() as u64;
            Ok(())
        }

        fn sync(&mut self) -> io::Result<()> {
            let (bytes, syncs) = &mut *self.0.lock();
            syncs.push(*bytes);
            Ok(())
        }
    }

    #[test]
    fn a_large_file_is_synced_in_pieces() {
        let watched = Watched::default();
        let file = Box::new(watched.clone());
        let mut sink = Sink { file, bytes: 0, synced: 0, tail: u64::MAX, tail_crc: 0 };
        for _ in 0..9 {
            sink.write_all(&vec![0; 1_000_000]).unwrap();
        }
        assert_eq!(watched.0.lock().1, [5_000_000]);
        sink.write_all(&vec![0; 1_000_000]).unwrap();
        assert_eq!(watched.0.lock().1, [5_000_000, 10_000_000]);
    }
}
