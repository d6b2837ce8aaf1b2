//! A column chunk while it is written: its pages, their places, and what the footer says of them.

use crate::blocks::schema::ZSTD_LEVEL;
use parquet::basic::{Compression, Encoding, PageType, ZstdLevel};
use parquet::column::page::{CompressedPage, Page, PageWriter};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{
    ColumnChunkMetaData, ColumnIndexBuilder, OffsetIndexBuilder, PageEncodingStats,
};
use parquet::file::statistics::Statistics;
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;
use std::sync::Arc;

/// An encoded column chunk.
#[derive(Debug)]
pub(crate) struct EncodedColumn {
    pub(crate) bytes: Vec<u8>,
    pub(crate) close: ColumnCloseResult,
}

/// A page: its bytes before compression, and after.
#[derive(Debug)]
pub(super) struct PageBytes {
    pub(super) plain: usize,
    pub(super) compressed: Vec<u8>,
}

/// Collects the pages of a column chunk.
pub(super) struct ColumnChunk {
    out: TrackedWrite<Vec<u8>>,
    /// Bytes of the pages before compression, headers included.
    plain: usize,
    rows: usize,
    dictionary: Option<i64>,
    first_page: Option<i64>,
    offsets: OffsetIndexBuilder,
    /// Number of pages of each type and encoding.
    pages: Vec<(PageType, Encoding, i32)>,
}

impl ColumnChunk {
    pub(super) fn new() -> Self {
        Self {
            out: TrackedWrite::new(Vec::new()),
            plain: 0,
            rows: 0,
            dictionary: None,
            first_page: None,
            offsets: OffsetIndexBuilder::new(),
            pages: Vec::new(),
        }
    }

    /// Adds the dictionary, before all other pages.
    pub(super) fn dictionary(&mut self, page: PageBytes, values: usize) -> Result<()> {
        self.dictionary = Some(signed(self.out.bytes_written())?);
        let (encoding, num_values) = (Encoding::PLAIN, count(values)?);
        self.count(PageType::DICTIONARY_PAGE, encoding);
        let with = |buf| Page::DictionaryPage { buf, num_values, encoding, is_sorted: false };
        self.write(page, with).map(|_| ())
    }

    /// Adds a page of rows: definition levels if the column is optional, then values.
    pub(super) fn data(&mut self, page: PageBytes, rows: usize, encoding: Encoding) -> Result<()> {
        let offset = signed(self.out.bytes_written())?;
        self.first_page.get_or_insert(offset);
        self.count(PageType::DATA_PAGE, encoding);
        let (levels, num_values) = (Encoding::RLE, count(rows)?);
        let bytes = self.write(page, |buf| Page::DataPage {
            buf,
            num_values,
            encoding,
            def_level_encoding: levels,
            rep_level_encoding: levels,
            statistics: None,
        })?;
        self.rows += rows;
        self.offsets.append_row_count(signed(rows)?);
        self.offsets.append_offset_and_size(offset, i32::try_from(bytes).map_err(outside)?);
        Ok(())
    }

    fn count(&mut self, page_type: PageType, encoding: Encoding) {
        match self.pages.iter_mut().find(|(t, e, _)| (*t, *e) == (page_type, encoding)) {
            Some((_, _, pages)) => *pages += 1,
            None => self.pages.push((page_type, encoding, 1)),
        }
    }

    fn write(&mut self, page: PageBytes, with: impl FnOnce(bytes::Bytes) -> Page) -> Result<usize> {
        let page = CompressedPage::new(with(page.compressed.into()), page.plain);
        let spec = SerializedPageWriter::new(&mut self.out).write_page(page)?;
        self.plain += spec.uncompressed_size;
        usize::try_from(spec.bytes_written).map_err(outside)
    }

    /// Ends the chunk.
    pub(super) fn finish(
        self,
        column: &ColumnDescPtr,
        statistics: Option<Statistics>,
        index: Option<ColumnIndexBuilder>,
    ) -> Result<EncodedColumn> {
        let bytes = self.out.into_inner()?;
        let mut encodings = vec![Encoding::RLE];
        encodings.extend(self.pages.iter().map(|(_, encoding, _)| *encoding));
        let stats =
            |&(page_type, encoding, count)| PageEncodingStats { page_type, encoding, count };
        let mut metadata = ColumnChunkMetaData::builder(Arc::clone(column))
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?))
            .set_encodings(encodings)
            .set_page_encoding_stats(self.pages.iter().map(stats).collect())
            .set_num_values(signed(self.rows)?)
            .set_total_compressed_size(signed(bytes.len())?)
            .set_total_uncompressed_size(signed(self.plain)?)
            .set_data_page_offset(self.first_page.unwrap_or(0))
            .set_dictionary_page_offset(self.dictionary);
        if let Some(statistics) = statistics {
            metadata = metadata.set_statistics(statistics);
        }
        let close = ColumnCloseResult {
            bytes_written: bytes.len() as u64,
            rows_written: self.rows as u64,
            metadata: metadata.build()?,
            bloom_filter: None,
            column_index: index.map(ColumnIndexBuilder::build).transpose()?,
            offset_index: Some(self.offsets.build()),
        };
        Ok(EncodedColumn { bytes, close })
    }
}

/// A run of Parquet's RLE: its length doubled (the lowest bit marks "bit-packed"), then its value.
pub(super) fn put_run(out: &mut Vec<u8>, rows: usize, value: u32, value_bytes: u32) {
    crate::files::varint::put(out, (rows as u64) << 1);
    out.extend(value.to_le_bytes().iter().take(value_bytes as usize));
}

/// Appends definition levels after their length in bytes.
pub(super) fn put_levels(out: &mut Vec<u8>, levels: &[u8]) {
    let length = u32::try_from(levels.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(levels);
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
