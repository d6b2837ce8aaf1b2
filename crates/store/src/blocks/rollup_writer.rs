//! Rollup files: a row for each window and series, in Parquet, with the same index as a block.
//!
//! Columns that follow from others are null, so that they need no space: see [`pack`] and [`unpack`].

use super::columns::{
    Effort, EncodedColumn, Pages, Presence, RunColumn, RunValue, Value, ValueEncoder,
};
use super::container::{Columns, Container, RowRange, Written, odd};
use super::schema::{TIMESTAMP, common_properties};
use crate::files::disk::WriteFile;
use crate::settings::Settings;
use model::{Point, Rollup, Series, Timestamp};
use parquet::errors::Result;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnDescPtr;
use senders::NO_START;
use std::sync::Arc;
use storage::{is_total, without_sums_of_totals};

/// A window of a series: its start, and the rollup of its samples.
pub(crate) type Window = (Timestamp, Rollup);

const SCHEMA: &str = "
message jobmeter_rollup {
  REQUIRED BYTE_ARRAY device (STRING);
  REQUIRED BYTE_ARRAY metric (STRING);
  OPTIONAL BYTE_ARRAY cluster (STRING);
  OPTIONAL INT64 job_id;
  REQUIRED BYTE_ARRAY labels (STRING);
  REQUIRED INT64 timestamp (TIMESTAMP(MICROS,true));
  REQUIRED INT64 count;
  REQUIRED INT64 first_at (TIMESTAMP(MICROS,true));
  REQUIRED INT64 last_at (TIMESTAMP(MICROS,true));
  REQUIRED DOUBLE first;
  REQUIRED DOUBLE last;
  OPTIONAL DOUBLE min;
  OPTIONAL DOUBLE max;
  OPTIONAL DOUBLE sum;
  OPTIONAL DOUBLE seconds;
  OPTIONAL DOUBLE integral;
  OPTIONAL DOUBLE before_resets;
  OPTIONAL INT64 resets;
  OPTIONAL INT64 first_start (TIMESTAMP(MICROS,true));
  OPTIONAL INT64 last_start (TIMESTAMP(MICROS,true));
}";

/// Most rows of a page: fewer than a day of one series in the windows of 5 min has in a file of a week, so that a query
/// of one day does not decode the week.
const PAGE_ROWS_MAX: usize = 512;
/// Mandatory integer columns, from [`TIMESTAMP`] on.
pub(super) const INTS: usize = 4;
/// Mandatory double columns after them.
pub(super) const REALS: usize = 2;
/// Optional double columns after them; resets follow.
pub(super) const SPARSE: usize = 6;
/// Number of columns.
pub(crate) const COLUMNS: usize = TIMESTAMP + INTS + REALS + SPARSE + 1 + 2;

/// A window as stored in its row.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Row {
    /// Beginning, count, first and last instant.
    pub(super) ints: [i64; INTS],
    /// First and last value.
    pub(super) reals: [f64; REALS],
    /// Smallest and largest value, sum, seconds, integral, and the amount counted before resets.
    pub(super) sparse: [Option<f64>; SPARSE],
    pub(super) resets: Option<i64>,
}

/// The row of a window, without what follows from other columns.
pub(super) fn pack(metric: &str, (start, rollup): &Window) -> Row {
    let Rollup { count, sum, min, max, first, last, seconds, integral, resets, before_resets } =
        *rollup;
    let ends = EndPoints::of(first, last);
    let unless = |value: f64, known: f64| (value.to_bits() != known.to_bits()).then_some(value);
    let flat = min.to_bits() == max.to_bits() && min.is_finite();
    let kept = |value: f64| (!flat && !is_total(metric)).then_some(value);
    Row {
        ints: [start.0, count.cast_signed(), first.at.0, last.at.0],
        reals: [first.value, last.value],
        sparse: [
            unless(min, ends.min),
            unless(max, ends.max),
            // A NaN also spoils the sum of a constant window.
            kept(sum).or(if sum.is_finite() || is_total(metric) { None } else { Some(sum) }),
            unless(seconds, ends.seconds),
            kept(integral),
            (resets > 0).then_some(before_resets),
        ],
        resets: (resets > 0).then_some(resets.cast_signed()),
    }
}

/// The window of a row; `starts` are those of its first and last sample.
pub(super) fn unpack(metric: &str, row: &Row, starts: [i64; 2]) -> Window {
    let ([start, count, first_at, last_at], [first, last]) = (row.ints, row.reals);
    let point = |at: i64, value: f64, start: i64| Point {
        at: Timestamp(at),
        value,
        start: (start != NO_START).then_some(Timestamp(start)),
    };
    let [first_start, last_start] = starts;
    let (first, last) = (point(first_at, first, first_start), point(last_at, last, last_start));
    let ends = EndPoints::of(first, last);
    let [min, max, sum, seconds, integral, before_resets] = row.sparse;
    let count = count.cast_unsigned();
    let seconds = seconds.unwrap_or(ends.seconds);
    let rollup = Rollup {
        count,
        sum: sum.unwrap_or(first.value * count as f64),
        min: min.unwrap_or(ends.min),
        max: max.unwrap_or(ends.max),
        first,
        last,
        seconds,
        integral: integral.unwrap_or(first.value * seconds),
        resets: row.resets.map_or(0, i64::cast_unsigned),
        before_resets: before_resets.unwrap_or(0.0),
    };
    (Timestamp(start), without_sums_of_totals(metric, rollup))
}

/// Values that usually follow from the first and the last sample.
struct EndPoints {
    min: f64,
    max: f64,
    seconds: f64,
}

impl EndPoints {
    fn of(first: Point, last: Point) -> Self {
        Self {
            min: first.value.min(last.value),
            max: first.value.max(last.value),
            seconds: last.at.since(first.at) as f64 / 1e6,
        }
    }
}

/// Writes a file of rollups.
#[derive(Debug)]
pub(super) struct RolledWriter {
    container: Container<Windows>,
}

/// The rows of the current row group.
#[derive(Debug)]
struct Windows {
    ints: [Vec<i64>; INTS],
    reals: [Vec<f64>; REALS],
    sparse: [Sparse<f64>; SPARSE],
    resets: Sparse<i64>,
    identity: [RunColumn; TIMESTAMP],
    starts: [RunColumn; 2],
    pages: Pages,
    encoder: ValueEncoder,
    /// The current series.
    series: Option<Series>,
}

/// An optional column.
#[derive(Debug, Default)]
struct Sparse<T> {
    values: Vec<T>,
    present: Vec<bool>,
}

impl RolledWriter {
    /// Begins an empty file.
    pub(super) fn new(file: Box<dyn WriteFile>, settings: &Settings) -> Result<Self> {
        let schema = Arc::new(parse_message_type(SCHEMA)?);
        let columns = Windows::new(settings.page_rows.clamp(1, PAGE_ROWS_MAX))?;
        let shape = (schema, Arc::new(common_properties().build()));
        Ok(Self { container: Container::new(file, columns, shape, settings.row_group_rows)? })
    }

    /// Adds windows of a series: the next series, or more of the current one.
    pub(super) fn series(&mut self, series: &Series, windows: &[Window]) -> Result<()> {
        let (Some((_, first)), Some((_, last))) = (windows.first(), windows.last()) else {
            return Ok(());
        };
        let of = |point: Point| point.start.map_or(NO_START, |start| start.0);
        let mut starts: Vec<(usize, i64)> = Vec::new();
        for (row, (_, rollup)) in windows.iter().enumerate() {
            for (place, start) in [(2 * row, of(rollup.first)), (2 * row + 1, of(rollup.last))] {
                if starts.last().is_none_or(|(_, before)| *before != start) {
                    starts.push((place, start));
                }
            }
        }
        self.container.note(&RowRange {
            series,
            divisor: 1,
            rows: windows.len(),
            span: (first.first.at.0, last.last.at.0),
            last: last.last.value,
            starts: &starts,
            places: 2,
        })?;
        self.container.columns.begin(series);
        for window in windows {
            self.container.columns.push(series, window);
            self.container.end_full()?;
        }
        Ok(())
    }

    /// Writes the rest, and syncs the file.
    pub(super) fn finish(self) -> Result<Written> {
        self.container.finish()
    }
}

impl Windows {
    fn new(page_rows: usize) -> Result<Self> {
        Ok(Self {
            ints: Default::default(),
            reals: Default::default(),
            sparse: Default::default(),
            resets: Sparse::default(),
            identity: Default::default(),
            starts: Default::default(),
            pages: Pages::new(page_rows),
            encoder: ValueEncoder::new(Effort::High)?,
            series: None,
        })
    }

    /// The next windows are of this series.
    fn begin(&mut self, series: &Series) {
        if self.series.as_ref() != Some(series) {
            self.series = Some(series.clone());
            self.pages.rows(self.rows());
            self.pages.series(self.rows());
        }
    }

    fn push(&mut self, series: &Series, window: &Window) {
        let row = pack(&series.metric, window);
        self.ints.iter_mut().zip(row.ints).for_each(|(column, value)| column.push(value));
        self.reals.iter_mut().zip(row.reals).for_each(|(column, value)| column.push(value));
        self.sparse.iter_mut().zip(row.sparse).for_each(|(column, value)| column.push(value));
        self.resets.push(row.resets);
        for (column, value) in self.identity.iter_mut().zip(RunValue::identity(series)) {
            column.push(value, 1);
        }
        for (column, point) in self.starts.iter_mut().zip([window.1.first, window.1.last]) {
            column.push(point.start.map_or(RunValue::Null, |start| RunValue::Int64(start.0)), 1);
        }
    }
}

impl Columns for Windows {
    fn rows(&self) -> usize {
        self.ints.first().map_or(0, Vec::len)
    }

    fn encode(&mut self, described: &[ColumnDescPtr]) -> Result<Vec<(EncodedColumn, bool)>> {
        self.pages.rows(self.rows());
        self.pages.finish(self.rows());
        let mut described = described.iter();
        let mut next = || described.next().ok_or_else(odd);
        let mut encoded = Vec::with_capacity(COLUMNS);
        for runs in &mut self.identity {
            encoded.push((runs.finish(next()?)?, true));
        }
        let Self { pages, encoder, .. } = self;
        for (place, column) in self.ints.iter_mut().enumerate() {
            let (all, is_time) = (Presence::All, place == 0);
            encoded.push((encoder.column(next()?, pages, all, column, is_time)?, false));
            column.clear();
        }
        for column in &mut self.reals {
            encoded.push((encoder.column(next()?, pages, Presence::All, column, false)?, false));
            column.clear();
        }
        for column in &mut self.sparse {
            encoded.push((column.encode(next()?, pages, encoder)?, false));
        }
        encoded.push((self.resets.encode(next()?, pages, encoder)?, false));
        for runs in &mut self.starts {
            encoded.push((runs.finish(next()?)?, true));
        }
        self.pages.clear();
        Ok(encoded)
    }
}

impl<T: Value> Sparse<T> {
    fn push(&mut self, value: Option<T>) {
        self.present.push(value.is_some());
        self.values.extend(value);
    }

    fn encode(
        &mut self,
        column: &ColumnDescPtr,
        pages: &Pages,
        encoder: &mut ValueEncoder,
    ) -> Result<EncodedColumn> {
        let presence = Presence::Where(&self.present, true);
        let encoded = encoder.column(column, pages, presence, &self.values, false)?;
        self.values.clear();
        self.present.clear();
        Ok(encoded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::RollupWindows;
    use proptest::prelude::*;

    fn rolled(values: &[(i64, f64, Option<i64>)]) -> Window {
        let mut windows = RollupWindows::new(1_000_000_000);
        for (at, value, start) in values {
            let (at, start) = (Timestamp(*at), start.map(Timestamp));
            assert_eq!(windows.push(Point { at, value: *value, start }), None);
        }
        windows.finish().unwrap()
    }

    /// The window after a round trip through a row.
    fn round_trip(metric: &str, window: &Window) -> Window {
        let of = |point: Point| point.start.map_or(NO_START, |start| start.0);
        let starts = [of(window.1.first), of(window.1.last)];
        unpack(metric, &pack(metric, window), starts)
    }

    #[test]
    fn a_steady_counter_and_a_plateau_take_no_columns() {
        let counter = rolled(&[(5, 1.0, Some(1)), (10, 2.5, Some(1)), (15, 4.0, Some(1))]);
        let row = pack("cpu_seconds_total", &counter);
        assert_eq!((row.sparse, row.resets), ([None; SPARSE], None));
        assert_eq!(round_trip("cpu_seconds_total", &counter).1.increase(), 3.0);
        let plateau = rolled(&[(5, 0.1, None), (10, 0.1, None), (15, 0.1, None)]);
        assert_eq!(pack("memory_bytes", &plateau).sparse, [None; SPARSE]);
        assert_eq!(round_trip("memory_bytes", &plateau).1.mean(), 0.1 * 3.0 / 3.0);
    }

    fn near(a: f64, b: f64) -> bool {
        a.is_nan() && b.is_nan() || (a - b).abs() <= 1e-12 * a.abs().max(b.abs())
    }

    proptest! {
        #[test]
        fn a_row_restores_the_window(
            steps in prop::collection::vec((1_i64..1000, prop_oneof![
                4 => -5.0..5.0_f64,
                2 => Just(1.5),
                1 => Just(f64::NAN),
            ], 0_i64..3), 1..20),
            total in any::<bool>(),
        ) {
            let mut at = 0;
            let values: Vec<(i64, f64, Option<i64>)> = steps.into_iter().map(|(dt, value, start)| {
                at += dt;
                (at, value, (start > 0).then_some(start))
            }).collect();
            let metric = if total { "x_total" } else { "x" };
            let (start, want) = rolled(&values);
            let (again, have) = round_trip(metric, &(start, want));
            prop_assert_eq!(again, start);
            prop_assert_eq!((have.count, have.first.at, have.last.at), (want.count, want.first.at, want.last.at));
            prop_assert_eq!((have.first.start, have.last.start), (want.first.start, want.last.start));
            let bits = |one: &Rollup| {
                [one.min, one.max, one.first.value, one.last.value, one.seconds].map(f64::to_bits)
            };
            prop_assert_eq!(bits(&have), bits(&want));
            prop_assert_eq!((have.resets, have.before_resets.to_bits()), (want.resets, want.before_resets.to_bits()));
            let want = without_sums_of_totals(metric, want);
            prop_assert!(near(have.sum, want.sum), "{} {}", have.sum, want.sum);
            let numbers = want.first.value.is_finite();
            prop_assert!(!numbers || near(have.integral, want.integral), "{have:?} {want:?}");
        }
    }
}
