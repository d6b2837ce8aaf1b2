//! A block while it is written: series after series, row group after row group.

use super::container::{Columns, Container, RowRange, Written, odd, values};
use super::rle_columns::{EncodedColumn, RunColumn, RunValue};
use super::schema;
use crate::files::disk::WriteFile;
use crate::head::samples::RawValue;
use crate::head::series_builder::SeriesRows;
use crate::senders::series_table::NO_START;
use crate::settings::Settings;
use parquet::data_type::{DoubleType, Int64Type};
use parquet::errors::Result;
use parquet::file::properties::WriterPropertiesPtr;
use parquet::schema::types::ColumnDescPtr;
use std::ops::Range;

/// Writes one block.
#[derive(Debug)]
pub(crate) struct BlockWriter {
    container: Container<Samples>,
}

/// The rows of the current row group.
#[derive(Debug, Default)]
struct Samples {
    times: Vec<i64>,
    steps: Vec<i64>,
    step_levels: Vec<i16>,
    reals: Vec<f64>,
    real_levels: Vec<i16>,
    runs: [RunColumn; 7],
}

impl BlockWriter {
    /// Begins a block in an empty file.
    pub(crate) fn new(file: Box<dyn WriteFile>, settings: &Settings) -> Result<Self> {
        let properties = schema::properties(settings.page_rows.max(1))?;
        let rows = settings.row_group_rows;
        Ok(Self { container: Container::new(file, schema::schema()?, properties, rows)? })
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
