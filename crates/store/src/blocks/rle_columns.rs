//! Encodes columns that are constant for thousands of rows (identity, start, divisor), run by run, as a
//! dictionary and RLE indices.
//! See Parquet format 2.10, "Dictionary Encoding" and "Run Length Encoding".
//! The library's writer looks up every row's value: ten such columns would cost more than the samples.

use super::schema::ZSTD_LEVEL;
use model::Series;
use parquet::basic::{Compression, Encoding, PageType, ZstdLevel};
use parquet::column::page::{CompressedPage, Page, PageWriter};
use parquet::column::writer::ColumnCloseResult;
use parquet::data_type::ByteArray;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{ColumnChunkMetaData, OffsetIndexBuilder, PageEncodingStats};
use parquet::file::statistics::Statistics;
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// A value of such a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunValue<'a> {
    Null,
    Text(&'a str),
    Int64(i64),
    Int32(u32),
}

impl<'a> RunValue<'a> {
    /// The identity of a series: the columns before the time.
    pub(crate) fn identity(series: &'a Series) -> [Self; 5] {
        let job = series.job.as_ref();
        [
            Self::Text(series.device.as_str()),
            Self::Text(&series.metric),
            job.map_or(Self::Null, |job| Self::Text(job.cluster.as_str())),
            job.map_or(Self::Null, |job| Self::Int64(job.id.get())),
            Self::Text(series.labels.as_str()),
        ]
    }
}

/// A column of one row group, as runs.
#[derive(Debug, Default)]
pub(crate) struct RunColumn {
    /// Each distinct value once, in Parquet's plain encoding.
    dictionary: Vec<u8>,
    places: FxHashMap<Box<[u8]>, u32>,
    /// Position of the value in the dictionary (none for null), and the number of its rows.
    runs: Vec<(Option<u32>, usize)>,
    least: Option<Box<[u8]>>,
    greatest: Option<Box<[u8]>>,
    key: Vec<u8>,
}

/// An encoded column chunk.
#[derive(Debug)]
pub(crate) struct EncodedColumn {
    pub(crate) bytes: Vec<u8>,
    pub(crate) close: ColumnCloseResult,
}

impl RunColumn {
    /// Adds rows with the same value.
    pub(crate) fn push(&mut self, value: RunValue<'_>, rows: usize) {
        self.key.clear();
        match value {
            RunValue::Null => return self.extend(None, rows),
            RunValue::Text(text) => self.key.extend_from_slice(text.as_bytes()),
            RunValue::Int64(number) => self.key.extend_from_slice(&number.to_le_bytes()),
            RunValue::Int32(number) => self.key.extend_from_slice(&number.to_le_bytes()),
        }
        let place = match self.places.get(&*self.key) {
            Some(place) => *place,
            None => self.add(matches!(value, RunValue::Text(_))),
        };
        self.extend(Some(place), rows);
    }

    fn add(&mut self, text: bool) -> u32 {
        let place = u32::try_from(self.places.len()).unwrap_or(u32::MAX);
        let key: Box<[u8]> = self.key.as_slice().into();
        if text {
            let length = u32::try_from(key.len()).unwrap_or(u32::MAX);
            self.dictionary.extend_from_slice(&length.to_le_bytes());
            if self.least.as_ref().is_none_or(|least| key < *least) {
                self.least = Some(key.clone());
            }
            if self.greatest.as_ref().is_none_or(|greatest| key > *greatest) {
                self.greatest = Some(key.clone());
            }
        }
        self.dictionary.extend_from_slice(&key);
        self.places.insert(key, place);
        place
    }

    fn extend(&mut self, place: Option<u32>, rows: usize) {
        match self.runs.last_mut() {
            Some((same, count)) if *same == place => *count += rows,
            _ => self.runs.push((place, rows)),
        }
    }

    /// Encodes the column, and empties it.
    pub(crate) fn finish(&mut self, column: &ColumnDescPtr) -> Result<EncodedColumn> {
        let rows: usize = self.runs.iter().map(|(_, rows)| rows).sum();
        let nulls: usize =
            self.runs.iter().filter(|(place, _)| place.is_none()).map(|(_, rows)| rows).sum();
        let mut out = TrackedWrite::new(Vec::new());
        let mut sizes = Sizes::default();
        let mut dictionary_offset = None;
        let encoding = if self.places.is_empty() {
            Encoding::PLAIN
        } else {
            dictionary_offset = Some(0);
            let buf = std::mem::take(&mut self.dictionary);
            let (encoding, num_values) = (Encoding::PLAIN, count(self.places.len())?);
            let page = |buf| Page::DictionaryPage { buf, num_values, encoding, is_sorted: false };
            sizes.write(&mut out, &buf, page)?;
            Encoding::RLE_DICTIONARY
        };
        let data_offset = signed(out.bytes_written())?;
        let num_values = count(rows)?;
        let levels = Encoding::RLE;
        let data = self.data(column.max_def_level() > 0);
        let page = |buf| Page::DataPage {
            buf,
            num_values,
            encoding,
            def_level_encoding: levels,
            rep_level_encoding: levels,
            statistics: None,
        };
        let page_bytes = sizes.write(&mut out, &data, page)?;
        let bytes = out.into_inner()?;

        let mut offsets = OffsetIndexBuilder::new();
        offsets.append_row_count(signed(rows)?);
        offsets.append_offset_and_size(data_offset, i32::try_from(page_bytes).map_err(outside)?);
        let mut encodings = vec![Encoding::RLE, encoding];
        let mut stats =
            vec![PageEncodingStats { page_type: PageType::DATA_PAGE, encoding, count: 1 }];
        if dictionary_offset.is_some() {
            encodings.push(Encoding::PLAIN);
            let (page_type, encoding) = (PageType::DICTIONARY_PAGE, Encoding::PLAIN);
            stats.push(PageEncodingStats { page_type, encoding, count: 1 });
        }
        let mut metadata = ColumnChunkMetaData::builder(Arc::clone(column))
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?))
            .set_encodings(encodings)
            .set_page_encoding_stats(stats)
            .set_num_values(signed(rows)?)
            .set_total_compressed_size(signed(bytes.len())?)
            .set_total_uncompressed_size(signed(sizes.plain)?)
            .set_data_page_offset(data_offset)
            .set_dictionary_page_offset(dictionary_offset);
        if let (Some(least), Some(greatest)) = (self.least.take(), self.greatest.take()) {
            let value = |bytes: Box<[u8]>| Some(ByteArray::from(bytes.into_vec()));
            let nulls = Some(nulls as u64);
            let (least, greatest) = (value(least), value(greatest));
            metadata = metadata
                .set_statistics(Statistics::byte_array(least, greatest, None, nulls, false));
        }
        let close = ColumnCloseResult {
            bytes_written: bytes.len() as u64,
            rows_written: rows as u64,
            metadata: metadata.build()?,
            bloom_filter: None,
            column_index: None,
            offset_index: Some(offsets.build()),
        };
        self.places.clear();
        self.runs.clear();
        Ok(EncodedColumn { bytes, close })
    }

    /// The data page's bytes: definition levels if the column is nullable, then indices.
    fn data(&self, optional: bool) -> Vec<u8> {
        let mut out = Vec::new();
        if optional {
            let mut levels = Vec::new();
            for same in self.runs.chunk_by(|a, b| a.0.is_some() == b.0.is_some()) {
                let rows = same.iter().map(|(_, rows)| rows).sum();
                let there = same.first().is_some_and(|(place, _)| place.is_some());
                put_run(&mut levels, rows, u32::from(there), 1);
            }
            let length = u32::try_from(levels.len()).unwrap_or(u32::MAX);
            out.extend_from_slice(&length.to_le_bytes());
            out.extend_from_slice(&levels);
        }
        if let Some(highest) = self.places.len().checked_sub(1) {
            let bits = (usize::BITS - highest.leading_zeros()).max(1);
            out.push(u8::try_from(bits).unwrap_or(u8::MAX));
            for (place, rows) in &self.runs {
                if let Some(place) = place {
                    put_run(&mut out, *rows, *place, bits.div_ceil(8));
                }
            }
        }
        out
    }
}

/// Bytes of the pages before compression, headers included.
#[derive(Debug, Default)]
struct Sizes {
    plain: usize,
}

impl Sizes {
    fn write(
        &mut self,
        out: &mut TrackedWrite<Vec<u8>>,
        bytes: &[u8],
        page: impl FnOnce(bytes::Bytes) -> Page,
    ) -> Result<usize> {
        let compressed = zstd::bulk::compress(bytes, ZSTD_LEVEL)?;
        let page = CompressedPage::new(page(compressed.into()), bytes.len());
        let spec = SerializedPageWriter::new(out).write_page(page)?;
        self.plain += spec.uncompressed_size;
        usize::try_from(spec.bytes_written).map_err(outside)
    }
}

/// A run: its length doubled (the lowest bit marks "bit-packed"), then its value.
fn put_run(out: &mut Vec<u8>, rows: usize, value: u32, value_bytes: u32) {
    crate::files::varint::put(out, (rows as u64) << 1);
    out.extend(value.to_le_bytes().iter().take(value_bytes as usize));
}

fn signed(number: usize) -> Result<i64> {
    i64::try_from(number).map_err(outside)
}

fn count(number: usize) -> Result<u32> {
    u32::try_from(number).map_err(outside)
}

fn outside(error: std::num::TryFromIntError) -> ParquetError {
    ParquetError::External(Box::new(error))
}
