//! Destinations of rows from a block: values for queries, raw steps for the writer of another block.

use crate::head::samples::RawValue;
use std::fmt::Debug;
use std::ops::Range;

/// A column that is filled from rows of a block.
pub(crate) trait Lane: Clone + Debug {
    /// Appends rows that are steps of `1 / divisor` unit, all of them.
    fn steps(&mut self, steps: &[i64], divisor: u32);

    /// Appends a row.
    fn row(&mut self, raw: RawValue, divisor: u32);

    /// Appends rows of another lane.
    fn take(&mut self, other: &Self, rows: Range<usize>);

    /// Keeps the first rows.
    fn truncate(&mut self, rows: usize);
}

/// Appends mixed rows: level 0 takes the next double, any other level the next step.
pub(crate) fn mixed(
    lane: &mut impl Lane,
    levels: &[i16],
    steps: &[i64],
    reals: &[f64],
    divisor: u32,
) {
    let (mut steps, mut reals) = (steps.iter(), reals.iter());
    for level in levels {
        let raw = match level {
            0 => {
                reals.next().map(|real| RawValue { bits: real.to_bits().cast_signed(), real: true })
            }
            _ => steps.next().map(|steps| RawValue { bits: *steps, real: false }),
        };
        raw.into_iter().for_each(|raw| lane.row(raw, divisor));
    }
}

/// Values, in the metric's unit.
impl Lane for Vec<f64> {
    fn steps(&mut self, steps: &[i64], divisor: u32) {
        let divisor = f64::from(divisor);
        self.extend(steps.iter().map(|steps| *steps as f64 / divisor));
    }

    fn row(&mut self, raw: RawValue, divisor: u32) {
        self.push(raw.value(divisor));
    }

    fn take(&mut self, other: &Self, rows: Range<usize>) {
        self.extend_from_slice(other.get(rows).unwrap_or_default());
    }

    fn truncate(&mut self, rows: usize) {
        Self::truncate(self, rows);
    }
}

/// Steps of one divisor and doubles, as a block stores them.
#[derive(Clone, Debug)]
pub(crate) struct RawValues {
    /// Steps, or the bits of a double.
    pub(crate) bits: Vec<i64>,
    /// Whether the row is a double.
    pub(crate) reals: Vec<bool>,
    /// Steps in one unit.
    divisor: u32,
}

impl RawValues {
    /// An empty column. Steps of another divisor become doubles.
    pub(crate) const fn new(divisor: u32) -> Self {
        Self { bits: Vec::new(), reals: Vec::new(), divisor }
    }
}

impl Lane for RawValues {
    fn steps(&mut self, steps: &[i64], divisor: u32) {
        if divisor == self.divisor {
            self.bits.extend_from_slice(steps);
            self.reals.resize(self.bits.len(), false);
        } else {
            steps.iter().for_each(|bits| self.row(RawValue { bits: *bits, real: false }, divisor));
        }
    }

    fn row(&mut self, raw: RawValue, divisor: u32) {
        let RawValue { bits, real } = raw.of_divisor(divisor, self.divisor);
        self.bits.push(bits);
        self.reals.push(real);
    }

    fn take(&mut self, other: &Self, rows: Range<usize>) {
        self.bits.extend_from_slice(other.bits.get(rows.clone()).unwrap_or_default());
        self.reals.extend_from_slice(other.reals.get(rows).unwrap_or_default());
    }

    fn truncate(&mut self, rows: usize) {
        self.bits.truncate(rows);
        self.reals.truncate(rows);
    }
}
