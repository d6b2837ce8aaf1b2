//! A block while it is written: series after series, row group after row group.

use super::columns::{Effort, EncodedColumn, Pages, Presence, RunColumn, RunValue, ValueEncoder};
use super::container::{Columns, Container, RowRange, Written, odd};
use super::schema;
use crate::files::disk::WriteFile;
use crate::head::samples::RawValue;
use crate::head::series_builder::SeriesRows;
use crate::settings::Settings;
use parquet::errors::Result;
use parquet::schema::types::ColumnDescPtr;
use senders::NO_START;
use std::ops::Range;
use std::sync::Arc;
use storage::SeriesInfo;

/// Writes one block.
#[derive(Debug)]
pub(crate) struct BlockWriter {
    container: Container<Samples>,
}

/// The rows of the current row group.
#[derive(Debug)]
struct Samples {
    times: Vec<i64>,
    steps: Vec<i64>,
    reals: Vec<f64>,
    /// Whether a row is a double.
    is_real: Vec<bool>,
    runs: [RunColumn; 7],
    pages: Pages,
    encoder: ValueEncoder,
    /// The current series.
    series: Option<Arc<SeriesInfo>>,
}

impl BlockWriter {
    /// Begins a block in an empty file.
    pub(crate) fn new(
        file: Box<dyn WriteFile>,
        settings: &Settings,
        effort: Effort,
    ) -> Result<Self> {
        let columns = Samples::new(settings.page_rows, effort)?;
        let shape = (schema::schema()?, schema::properties());
        Ok(Self { container: Container::new(file, columns, shape, settings.row_group_rows)? })
    }

    /// Adds rows of a series: the next series, or more of the current one with the same divisor.
    pub(crate) fn series(&mut self, rows: SeriesRows<'_>) -> Result<()> {
        let (Some(from), Some(to)) = (rows.times.first(), rows.times.last()) else { return Ok(()) };
        let (Some(bits), Some(real)) = (rows.bits.last(), rows.reals.last()) else { return Ok(()) };
        self.container.note(&RowRange {
            series: &rows.series.series,
            divisor: rows.divisor,
            rows: rows.times.len(),
            span: (*from, *to),
            last: RawValue { bits: *bits, real: *real }.value(rows.divisor),
            starts: rows.starts,
            places: 1,
        })?;
        let mut at = 0;
        while at < rows.times.len() {
            let end = rows.times.len().min(at + self.container.free_rows());
            self.container.columns.push(&rows, at..end);
            at = end;
            self.container.end_full()?;
        }
        Ok(())
    }

    /// Writes the rest, the index and the footer, and syncs the file.
    pub(crate) fn finish(self) -> Result<Written> {
        self.container.finish()
    }
}

impl Samples {
    fn new(page_rows: usize, effort: Effort) -> Result<Self> {
        Ok(Self {
            times: Vec::new(),
            steps: Vec::new(),
            reals: Vec::new(),
            is_real: Vec::new(),
            runs: std::array::from_fn(|_| RunColumn::default()),
            pages: Pages::new(page_rows),
            encoder: ValueEncoder::new(effort)?,
            series: None,
        })
    }

    fn push(&mut self, rows: &SeriesRows<'_>, range: Range<usize>) {
        if !self.series.as_ref().is_some_and(|series| SeriesInfo::same(series, rows.series)) {
            self.series = Some(Arc::clone(rows.series));
            self.pages.series(self.times.len());
        }
        self.times.extend_from_slice(rows.times.get(range.clone()).unwrap_or_default());
        self.pages.rows(self.times.len());
        let bits = rows.bits.get(range.clone()).unwrap_or_default();
        let reals = rows.reals.get(range.clone()).unwrap_or_default();
        self.is_real.extend_from_slice(reals);
        if reals.contains(&true) {
            for (bits, real) in bits.iter().zip(reals) {
                if *real {
                    self.reals.push(f64::from_bits(bits.cast_unsigned()));
                } else {
                    self.steps.push(*bits);
                }
            }
        } else {
            self.steps.extend_from_slice(bits);
        }
        let same = RunValue::identity(&rows.series.series);
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
}

impl Columns for Samples {
    fn rows(&self) -> usize {
        self.times.len()
    }

    fn encode(&mut self, described: &[ColumnDescPtr]) -> Result<Vec<(EncodedColumn, bool)>> {
        self.pages.finish(self.times.len());
        let mut described = described.iter();
        let mut next = || described.next().ok_or_else(odd);
        let mut encoded = Vec::with_capacity(schema::COLUMNS);
        let (identity, rest) = self.runs.split_at_mut(schema::TIMESTAMP);
        for runs in identity {
            encoded.push((runs.finish(next()?)?, true));
        }
        let Self { times, steps, reals, is_real, pages, encoder, .. } = self;
        let mandatory = Presence::All;
        encoded.push((encoder.column(next()?, pages, mandatory, times, true)?, false));
        let with = |real: bool| Presence::Where(is_real, real);
        encoded.push((encoder.column(next()?, pages, with(false), steps, false)?, false));
        encoded.push((encoder.column(next()?, pages, with(true), reals, false)?, false));
        for runs in rest {
            encoded.push((runs.finish(next()?)?, true));
        }
        self.times.clear();
        self.steps.clear();
        self.reals.clear();
        self.is_real.clear();
        self.pages.clear();
        Ok(encoded)
    }
}
