//! Encodes columns of values, page by page, each in the smaller of two encodings.
//!
//! Bytes before compression: `PLAIN`, which zstd reduces well where values repeat; and differences of integers
//! (`DELTA_BINARY_PACKED`) or byte streams of doubles (`BYTE_STREAM_SPLIT`). Both are tried on the first page of a long
//! series and on every eighth page; the pages between follow.

use super::column_chunk::{ColumnChunk, EncodedColumn, PageBytes, put_levels, put_run};
use super::delta;
use crate::blocks::schema::ZSTD_LEVEL;
use parquet::basic::{Encoding, Type};
use parquet::errors::Result;
use parquet::file::metadata::ColumnIndexBuilder;
use parquet::file::statistics::Statistics;
use parquet::schema::types::ColumnDescPtr;
use std::fmt;
use std::ops::Range;
use zstd::bulk::Compressor;

/// Most pages without a value that become one.
const NULL_PAGES_MAX: usize = 16;
/// Pages that follow a trial.
const FOLLOWING: u32 = 7;
/// Plain pages of merged blocks may take this level, which finds repetitions of values that level 3 does not, in three
/// to five times its time.
const STRONG_LEVEL: i32 = 7;
/// It must save one in this many bytes.
const STRONG_SAVES: usize = 24;

/// How much time a file's encoding may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    /// Ingest waits for the file.
    Low,
    /// The file lasts.
    High,
}

/// Ends of a row group's pages.
#[derive(Debug)]
pub(crate) struct Pages {
    page_rows: usize,
    /// The end of each page, and whether it is the first one of a series and has no other.
    ends: Vec<(usize, bool)>,
    /// Start of the current series; `None` if that is before the row group.
    series: Option<usize>,
}

impl Pages {
    pub(crate) const fn new(page_rows: usize) -> Self {
        Self { page_rows, ends: Vec::new(), series: None }
    }

    fn open(&self) -> usize {
        self.ends.last().map_or(0, |(end, _)| *end)
    }

    fn end(&mut self, end: usize) {
        let first = self.series == Some(self.open());
        self.ends.push((end, first));
    }

    /// A series begins at a row: a page of some length ends there, if the series before is not one of many in it.
    pub(crate) fn series(&mut self, row: usize) {
        let before = row - self.series.unwrap_or(0);
        if row - self.open() >= self.page_rows.div_ceil(2) && before >= self.page_rows.div_ceil(4) {
            self.end(row);
        }
        self.series = Some(row);
    }

    /// The row group has this many rows by now.
    pub(crate) fn rows(&mut self, rows: usize) {
        while rows - self.open() >= self.page_rows.max(1) {
            self.end(self.open() + self.page_rows.max(1));
        }
    }

    /// Ends the last page.
    pub(crate) fn finish(&mut self, rows: usize) {
        if rows > self.open() {
            self.end(rows);
        }
    }

    /// Begins another row group.
    pub(crate) fn clear(&mut self) {
        self.ends.clear();
        self.series = None;
    }

    fn each(&self) -> impl Iterator<Item = (Range<usize>, bool)> {
        let starts = std::iter::once(0).chain(self.ends.iter().map(|(end, _)| *end));
        starts.zip(&self.ends).map(|(start, (end, first))| (start..*end, *first))
    }
}

/// The rows with a value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Presence<'a> {
    /// The column is mandatory.
    All,
    /// Those with this flag.
    Where(&'a [bool], bool),
}

/// Values of eight bytes.
pub(crate) trait Value: Copy {
    /// The encoding beside `PLAIN`.
    const OTHER: Encoding;

    /// Appends them in that encoding.
    fn encode(values: &[Self], out: &mut Vec<u8>);

    fn bytes(self) -> [u8; 8];

    /// The column's statistics.
    fn statistics(values: &[Self], nulls: u64) -> Statistics;

    /// The smallest and the largest value, for the page index.
    fn ends(values: &[Self]) -> Option<(Self, Self)>;
}

impl Value for i64 {
    const OTHER: Encoding = Encoding::DELTA_BINARY_PACKED;

    fn encode(values: &[Self], out: &mut Vec<u8>) {
        delta::encode(values, out);
    }

    fn bytes(self) -> [u8; 8] {
        self.to_le_bytes()
    }

    fn statistics(values: &[Self], nulls: u64) -> Statistics {
        let (least, greatest) = Self::ends(values).unzip();
        Statistics::int64(least, greatest, None, Some(nulls), false)
    }

    fn ends(values: &[Self]) -> Option<(Self, Self)> {
        values.iter().min().copied().zip(values.iter().max().copied())
    }
}

impl Value for f64 {
    const OTHER: Encoding = Encoding::BYTE_STREAM_SPLIT;

    fn encode(values: &[Self], out: &mut Vec<u8>) {
        for byte in 0..8 {
            out.extend(values.iter().filter_map(|value| value.to_le_bytes().get(byte).copied()));
        }
    }

    fn bytes(self) -> [u8; 8] {
        self.to_le_bytes()
    }

    fn statistics(_: &[Self], nulls: u64) -> Statistics {
        Statistics::double(None, None, None, Some(nulls), false)
    }

    fn ends(_: &[Self]) -> Option<(Self, Self)> {
        None
    }
}

/// The encoding that won the last trial.
#[derive(Clone, Copy, Debug, Default)]
struct Choice {
    plain: bool,
    strong: bool,
    /// Pages until the next trial.
    pages: u32,
}

/// Encodes columns of values.
pub(crate) struct ValueEncoder {
    compressor: Compressor<'static>,
    strong: Option<Compressor<'static>>,
    levels: Vec<u8>,
    buffer: Vec<u8>,
}

impl fmt::Debug for ValueEncoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValueEncoder").finish_non_exhaustive()
    }
}

impl ValueEncoder {
    pub(crate) fn new(effort: Effort) -> Result<Self> {
        let strong = (effort == Effort::High).then(|| Compressor::new(STRONG_LEVEL));
        Ok(Self {
            compressor: Compressor::new(ZSTD_LEVEL)?,
            strong: strong.transpose()?,
            levels: Vec::new(),
            buffer: Vec::new(),
        })
    }

    /// A column of a row group; with `index`, the footer has the bounds of its pages.
    pub(crate) fn column<T: Value>(
        &mut self,
        column: &ColumnDescPtr,
        pages: &Pages,
        presence: Presence<'_>,
        values: &[T],
        index: bool,
    ) -> Result<EncodedColumn> {
        let mut chunk = ColumnChunk::new();
        let mut bounds = index.then(|| ColumnIndexBuilder::new(Type::INT64));
        let (mut rest, mut rows, mut choice) = (values, 0, Choice::default());
        // Pages without a value that are not written yet, and their rows.
        let mut nulls = (0, 0);
        for (page, first) in pages.each() {
            rows = page.end;
            let count = self.levels(presence, page.clone());
            if count == 0 && nulls.0 < NULL_PAGES_MAX {
                nulls = (nulls.0 + 1, nulls.1 + page.len());
                continue;
            }
            let (now, later) = rest.split_at_checked(count).unwrap_or((rest, &[]));
            rest = later;
            if let (Some(bounds), Some((least, greatest))) = (&mut bounds, T::ends(now)) {
                bounds.append(false, least.bytes().to_vec(), greatest.bytes().to_vec(), 0);
            }
            if first {
                choice.pages = 0;
            }
            self.nulls::<T>(&mut chunk, std::mem::take(&mut nulls).1)?;
            let (bytes, encoding) = self.page(now, &mut choice)?;
            chunk.data(bytes, page.len(), encoding)?;
        }
        self.nulls::<T>(&mut chunk, nulls.1)?;
        let nulls = rows.saturating_sub(values.len()) as u64;
        chunk.finish(column, Some(T::statistics(values, nulls)), bounds)
    }

    /// Adds a page of rows without a value, if there are any.
    fn nulls<T: Value>(&mut self, chunk: &mut ColumnChunk, rows: usize) -> Result<()> {
        if rows == 0 {
            return Ok(());
        }
        let prepared = std::mem::take(&mut self.levels);
        let mut levels = Vec::new();
        put_run(&mut levels, rows, 0, 1);
        put_levels(&mut self.levels, &levels);
        let (bytes, encoding) = self.page::<T>(&[], &mut Choice::default())?;
        self.levels = prepared;
        chunk.data(bytes, rows, encoding)
    }

    /// Prepares a page's definition levels, and counts its values.
    fn levels(&mut self, presence: Presence<'_>, page: Range<usize>) -> usize {
        self.levels.clear();
        let (flags, is) = match presence {
            Presence::All => return page.len(),
            Presence::Where(flags, is) => (flags.get(page).unwrap_or_default(), is),
        };
        let mut levels = Vec::new();
        let runs = || flags.chunk_by(|a, b| a == b);
        if runs().count() * 16 <= flags.len() {
            for run in runs() {
                put_run(&mut levels, run.len(), u32::from(run.first() == Some(&is)), 1);
            }
        } else {
            crate::files::varint::put(&mut levels, (flags.len().div_ceil(8) as u64) << 1 | 1);
            levels.extend(flags.chunks(8).map(|eight| {
                eight
                    .iter()
                    .zip(0..)
                    .fold(0, |byte, (flag, bit)| byte | u8::from(*flag == is) << bit)
            }));
        }
        put_levels(&mut self.levels, &levels);
        flags.iter().filter(|flag| **flag == is).count()
    }

    fn page<T: Value>(
        &mut self,
        values: &[T],
        choice: &mut Choice,
    ) -> Result<(PageBytes, Encoding)> {
        if values.is_empty() {
            return self.encode(values, Choice { plain: true, strong: false, pages: 0 });
        }
        if let Some(pages) = choice.pages.checked_sub(1) {
            choice.pages = pages;
            return self.encode(values, *choice);
        }
        *choice = Choice { plain: false, strong: false, pages: FOLLOWING };
        let mut best = self.encode(values, *choice)?;
        let plain = Choice { plain: true, ..*choice };
        let page = self.encode(values, plain)?;
        if page.0.compressed.len() < best.0.compressed.len() {
            (best, *choice) = (page, plain);
            if self.strong.is_some() {
                let strong = Choice { strong: true, ..plain };
                let page = self.encode(values, strong)?;
                let length = best.0.compressed.len();
                if page.0.compressed.len() + length / STRONG_SAVES < length {
                    (best, *choice) = (page, strong);
                }
            }
        }
        Ok(best)
    }

    fn encode<T: Value>(&mut self, values: &[T], choice: Choice) -> Result<(PageBytes, Encoding)> {
        self.buffer.clear();
        self.buffer.extend_from_slice(&self.levels);
        let encoding = if choice.plain { Encoding::PLAIN } else { T::OTHER };
        if choice.plain {
            self.buffer.reserve(values.len() * 8);
            self.buffer.extend(values.iter().flat_map(|value| value.bytes()));
        } else {
            T::encode(values, &mut self.buffer);
        }
        let compressor = match &mut self.strong {
            Some(strong) if choice.strong => strong,
            _ => &mut self.compressor,
        };
        let compressed = compressor.compress(&self.buffer)?;
        Ok((PageBytes { plain: self.buffer.len(), compressed }, encoding))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::column::reader::ColumnReaderImpl;
    use parquet::data_type::{DataType, DoubleType, Int64Type};
    use parquet::file::serialized_reader::SerializedPageReader;
    use parquet::schema::parser::parse_message_type;
    use parquet::schema::types::SchemaDescriptor;
    use proptest::prelude::*;
    use std::sync::Arc;

    fn column(what: &str) -> ColumnDescPtr {
        let schema = parse_message_type(&format!("message m {{ OPTIONAL {what} v; }}")).unwrap();
        SchemaDescriptor::new(Arc::new(schema)).column(0)
    }

    fn pages(page_rows: usize, rows: usize, series: &[usize]) -> Pages {
        let mut pages = Pages::new(page_rows);
        for first in series.iter().filter(|first| **first < rows) {
            pages.rows(*first);
            pages.series(*first);
        }
        pages.rows(rows);
        pages.finish(rows);
        pages
    }

    /// The library's reading of an encoded column.
    fn read<D: DataType>(column: &ColumnDescPtr, encoded: EncodedColumn) -> (Vec<bool>, Vec<D::T>) {
        let EncodedColumn { bytes, close } = encoded;
        let rows = usize::try_from(close.rows_written).unwrap();
        let locations = close.offset_index.unwrap().page_locations().clone();
        let bytes = Arc::new(bytes::Bytes::from(bytes));
        let pages =
            SerializedPageReader::new(bytes, &close.metadata, rows, Some(locations)).unwrap();
        let mut reader = ColumnReaderImpl::<D>::new(Arc::clone(column), Box::new(pages));
        let (mut levels, mut values) = (Vec::new(), Vec::new());
        reader.read_records(rows, Some(&mut levels), None, &mut values).unwrap();
        (levels.into_iter().map(|level| level == 1).collect(), values)
    }

    fn encodings(encoded: &EncodedColumn) -> Vec<Encoding> {
        let encodings = encoded.close.metadata.encodings();
        encodings.filter(|encoding| *encoding != Encoding::RLE).collect()
    }

    /// Values that change now and then, as sizes in pages do.
    fn plateaus(rows: usize) -> Vec<i64> {
        let mut random = 7_i64;
        let next = |value: &mut i64, _| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *value = if random >> 33 & 15 == 0 { random >> 40 & 0xffff } else { *value };
            Some(*value * 4096)
        };
        (0..rows).scan(0, next).collect()
    }

    #[test]
    fn each_kind_of_values_has_the_smaller_encoding() {
        let (rows, pages) = (10_000, pages(1000, 10_000, &[0]));
        let mut encoder = ValueEncoder::new(Effort::High).unwrap();
        let flags = vec![true; rows];
        let all = Presence::Where(&flags, true);
        let steady: Vec<i64> = (0..10_000).map(|row| row * 4_000_037 + row * row % 13).collect();
        let waves: Vec<f64> = (0..10_000).map(|row| 5.0 + f64::from(row).sin()).collect();
        let ints = column("INT64");
        let plateaus = encoder.column(&ints, &pages, all, &plateaus(rows), false).unwrap();
        assert_eq!(encodings(&plateaus), [Encoding::PLAIN]);
        let steady = encoder.column(&ints, &pages, all, &steady, false).unwrap();
        assert_eq!(encodings(&steady), [Encoding::DELTA_BINARY_PACKED]);
        let waves = encoder.column(&column("DOUBLE"), &pages, all, &waves, false).unwrap();
        assert_eq!(encodings(&waves), [Encoding::BYTE_STREAM_SPLIT]);
    }

    #[test]
    fn series_that_follow_each_other_have_an_encoding_each() {
        let steady = (0..5000).map(|row| row * 4_000_037 + row * row % 13);
        let values: Vec<i64> = steady.chain(plateaus(5000)).collect();
        let pages = pages(1000, 10_000, &[0, 5000]);
        let mut encoder = ValueEncoder::new(Effort::Low).unwrap();
        let encoded =
            encoder.column(&column("INT64"), &pages, Presence::All, &values, true).unwrap();
        let mut found = encodings(&encoded);
        found.sort_unstable();
        assert_eq!(found, [Encoding::PLAIN, Encoding::DELTA_BINARY_PACKED]);
    }

    #[test]
    fn a_page_ends_where_a_series_begins_if_it_has_some_length() {
        let ends = |series: &[usize]| -> Vec<(usize, bool)> { pages(100, 250, series).ends };
        assert_eq!(ends(&[0]), [(100, true), (200, false), (250, false)]);
        assert_eq!(ends(&[0, 49, 149]), [(100, false), (200, false), (250, false)]);
        assert_eq!(ends(&[0, 50, 180]), [(50, true), (150, true), (250, false)]);
        let short: Vec<usize> = (0..25).map(|number| number * 10).collect();
        assert_eq!(ends(&short), [(100, false), (200, false), (250, false)]);
    }

    proptest! {
        #[test]
        fn values_come_back(
            rows in prop::collection::vec((any::<bool>(), prop_oneof![
                2 => -3_i64..3, 1 => any::<i64>(), 1 => Just(1 << 40)
            ], 0_usize..3), 1..2000),
            (page_rows, few, high) in (1_usize..600, any::<bool>(), any::<bool>()),
            series in prop::collection::btree_set(0_usize..2000, 0..5),
        ) {
            // Long runs, or none.
            let flags: Vec<bool> = rows.iter().enumerate().map(|(row, (flag, ..))| {
                if few { row / 700 == 1 } else { *flag }
            }).collect();
            let present = rows.iter().zip(&flags).filter(|(_, flag)| !**flag);
            let ints: Vec<i64> = present.map(|((_, value, _), _)| *value).collect();
            let reals: Vec<f64> = ints.iter().map(|value| *value as f64 / 3.0).collect();
            let pages = pages(page_rows, rows.len(), &series.into_iter().collect::<Vec<_>>());
            let effort = if high { Effort::High } else { Effort::Low };
            let mut encoder = ValueEncoder::new(effort).unwrap();
            let is = Presence::Where(&flags, false);
            let want: Vec<bool> = flags.iter().map(|flag| !flag).collect();
            let described = column("INT64");
            let encoded = encoder.column(&described, &pages, is, &ints, false).unwrap();
            prop_assert_eq!(read::<Int64Type>(&described, encoded), (want.clone(), ints));
            let described = column("DOUBLE");
            let encoded = encoder.column(&described, &pages, is, &reals, false).unwrap();
            prop_assert_eq!(read::<DoubleType>(&described, encoded), (want, reals));
        }
    }
}
