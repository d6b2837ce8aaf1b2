//! Encodes columns that are constant for thousands of rows (identity, start, divisor), run by run, as a
//! dictionary and RLE indices.
//! See Parquet format 2.10, "Dictionary Encoding" and "Run Length Encoding".
//! The library's writer looks up every row's value: ten such columns would cost more than the samples.

use super::column_chunk::{ColumnChunk, EncodedColumn, PageBytes, put_levels, put_run};
use crate::blocks::schema::ZSTD_LEVEL;
use model::Series;
use parquet::basic::Encoding;
use parquet::data_type::ByteArray;
use parquet::errors::Result;
use parquet::file::statistics::Statistics;
use parquet::schema::types::ColumnDescPtr;
use rustc_hash::FxHashMap;

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
        let mut chunk = ColumnChunk::new();
        let encoding = if self.places.is_empty() {
            Encoding::PLAIN
        } else {
            let dictionary = std::mem::take(&mut self.dictionary);
            chunk.dictionary(compress(&dictionary)?, self.places.len())?;
            Encoding::RLE_DICTIONARY
        };
        chunk.data(compress(&self.data(column.max_def_level() > 0))?, rows, encoding)?;
        let statistics = self.least.take().zip(self.greatest.take()).map(|(least, greatest)| {
            let value = |bytes: Box<[u8]>| Some(ByteArray::from(bytes.into_vec()));
            let nulls = Some(nulls as u64);
            Statistics::byte_array(value(least), value(greatest), None, nulls, false)
        });
        self.places.clear();
        self.runs.clear();
        chunk.finish(column, statistics, None)
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
            put_levels(&mut out, &levels);
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

fn compress(bytes: &[u8]) -> Result<PageBytes> {
    let compressed = zstd::bulk::compress(bytes, ZSTD_LEVEL)?;
    Ok(PageBytes { plain: bytes.len(), compressed })
}
