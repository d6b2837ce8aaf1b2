//! `min` and `max` as in PostgreSQL: NaN equals NaN, and is greater than any number.
//!
//! In the engine's own functions the result of a group with a NaN depends on the order of its rows, and the largest of
//! `-Infinity` alone is a finite number.

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Float64Array};
use datafusion::arrow::datatypes::{DataType, Float64Type};
use datafusion::error::{DataFusionError, Result};
use datafusion::functions_aggregate::min_max::{max_udaf, min_udaf};
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, ReversedUDAF, Signature,
};
use datafusion::scalar::ScalarValue;
use std::cmp::Ordering;
use std::sync::Arc;

/// The engine's aggregate functions, with ours in place of `min` and `max`.
pub(crate) fn with_extremes(mut functions: Vec<Arc<AggregateUDF>>) -> Vec<Arc<AggregateUDF>> {
    functions.retain(|function| !["min", "max"].contains(&function.name()));
    for (of_engine, wanted) in [(min_udaf(), Ordering::Less), (max_udaf(), Ordering::Greater)] {
        functions.push(Arc::new(AggregateUDF::from(Extreme { of_engine, wanted })));
    }
    functions
}

/// `min` or `max`. The engine's function does the rest: names and other types.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Extreme {
    of_engine: Arc<AggregateUDF>,
    /// How the result compares to other values.
    wanted: Ordering,
}

/// Whether a value replaces the result so far.
fn replaces(wanted: Ordering, new: f64, result: f64) -> bool {
    let by_value = || new.partial_cmp(&result).unwrap_or(Ordering::Equal);
    new.is_nan().cmp(&result.is_nan()).then_with(by_value) == wanted
}

fn is_value(args: &AccumulatorArgs<'_>) -> bool {
    *args.return_field.data_type() == DataType::Float64
}

impl AggregateUDFImpl for Extreme {
    fn name(&self) -> &str {
        self.of_engine.name()
    }

    fn signature(&self) -> &Signature {
        self.of_engine.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.of_engine.return_type(arguments)
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        self.of_engine.inner().coerce_types(arguments)
    }

    fn is_descending(&self) -> Option<bool> {
        self.of_engine.inner().is_descending()
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        if is_value(&args) {
            return Ok(Box::new(OfAll { wanted: self.wanted, result: None }));
        }
        self.of_engine.inner().accumulator(args)
    }

    fn create_sliding_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn Accumulator>> {
        self.of_engine.inner().create_sliding_accumulator(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        self.of_engine.inner().groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        if is_value(&args) {
            return Ok(Box::new(OfGroups { wanted: self.wanted, results: Vec::new() }));
        }
        self.of_engine.inner().create_groups_accumulator(args)
    }
}

/// The column of values of a batch.
fn column(arrays: &[ArrayRef]) -> Result<&Float64Array> {
    let column = arrays.first().and_then(|array| array.as_primitive_opt::<Float64Type>());
    column.ok_or_else(|| DataFusionError::Internal("min or max of no values".to_owned()))
}

/// The values of a batch, without those that a filter leaves out.
fn counted<'a>(
    arrays: &'a [ArrayRef],
    filter: Option<&'a BooleanArray>,
) -> Result<impl Iterator<Item = Option<f64>> + 'a> {
    let is_counted =
        move |row: usize| filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row));
    let values = column(arrays)?.iter().enumerate();
    Ok(values.map(move |(row, value)| value.filter(|_| is_counted(row))))
}

/// The result over all rows.
#[derive(Debug)]
struct OfAll {
    wanted: Ordering,
    result: Option<f64>,
}

impl Accumulator for OfAll {
    fn update_batch(&mut self, arrays: &[ArrayRef]) -> Result<()> {
        for value in column(arrays)?.iter().flatten() {
            if self.result.is_none_or(|result| replaces(self.wanted, value, result)) {
                self.result = Some(value);
            }
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Float64(self.result))
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}

/// The result of each group.
#[derive(Debug)]
struct OfGroups {
    wanted: Ordering,
    results: Vec<Option<f64>>,
}

impl GroupsAccumulator for OfGroups {
    fn update_batch(
        &mut self,
        arrays: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        all: usize,
    ) -> Result<()> {
        self.results.resize(all.max(self.results.len()), None);
        for (value, group) in counted(arrays, filter)?.zip(groups) {
            let (Some(value), Some(result)) = (value, self.results.get_mut(*group)) else {
                continue;
            };
            if result.is_none_or(|result| replaces(self.wanted, value, result)) {
                *result = Some(value);
            }
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], all: usize) -> Result<()> {
        self.update_batch(states, groups, None, all)
    }

    fn convert_to_state(
        &self,
        arrays: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        Ok(vec![Arc::new(counted(arrays, filter)?.collect::<Float64Array>())])
    }

    fn evaluate(&mut self, emitted: EmitTo) -> Result<ArrayRef> {
        Ok(Arc::new(Float64Array::from(emitted.take_needed(&mut self.results))))
    }

    fn state(&mut self, emitted: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(vec![self.evaluate(emitted)?])
    }

    fn size(&self) -> usize {
        self.results.capacity() * size_of::<Option<f64>>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: [Option<f64>; 6] =
        [Some(1.5), Some(f64::NAN), None, Some(f64::NEG_INFINITY), Some(-2.0), Some(f64::INFINITY)];

    fn extremes(wanted: Ordering, rows: &[Option<f64>]) -> [Option<f64>; 2] {
        let array: ArrayRef = Arc::new(Float64Array::from(rows.to_vec()));
        let mut of_all = OfAll { wanted, result: None };
        let mut of_groups = OfGroups { wanted, results: Vec::new() };
        // One row at a time, as batches arrive, and merged from two.
        for row in 0..rows.len() {
            let one = [array.slice(row, 1)];
            of_all.update_batch(&one).unwrap();
            of_groups.update_batch(&one, &[1], None, 2).unwrap();
        }
        let state = of_groups.state(EmitTo::All).unwrap();
        let mut merged = OfGroups { wanted, results: Vec::new() };
        merged.merge_batch(&state, &[0, 1], 2).unwrap();
        let groups = merged.evaluate(EmitTo::All).unwrap();
        let groups = groups.as_primitive::<Float64Type>();
        assert!(groups.is_null(0), "a group without rows");
        [of_all.result, groups.is_valid(1).then(|| groups.value(1))]
    }

    #[test]
    fn the_result_does_not_depend_on_the_order_of_rows() {
        for first in 0..ROWS.len() {
            let mut rows = ROWS;
            rows.rotate_left(first);
            assert_eq!(extremes(Ordering::Less, &rows), [Some(f64::NEG_INFINITY); 2]);
            let largest = extremes(Ordering::Greater, &rows);
            assert!(largest.iter().all(|value| value.is_some_and(f64::is_nan)), "{largest:?}");
        }
        assert_eq!(
            extremes(Ordering::Greater, &[Some(f64::NEG_INFINITY)]),
            [Some(f64::NEG_INFINITY); 2]
        );
        assert!(
            extremes(Ordering::Less, &[Some(f64::NAN)]).iter().all(|one| one.unwrap().is_nan())
        );
        assert_eq!(extremes(Ordering::Less, &[None]), [None; 2]);
    }
}
