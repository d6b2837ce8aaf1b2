//! Builders for the columns of a table.

use crate::common::schema::Column;
use datafusion::arrow::array::{
    ArrayRef, Float64Array, Int64Array, StringViewBuilder, TimestampMicrosecondArray,
};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use std::sync::Arc;

/// A value in a row.
#[derive(Clone, Debug)]
pub(crate) enum Cell {
    Time(i64),
    Text(Arc<str>),
    Number(i64),
    Value(f64),
    Missing,
}

impl Cell {
    pub(crate) fn text(text: &str) -> Self {
        Self::Text(Arc::from(text))
    }

    pub(crate) fn maybe<T>(value: Option<T>, cell: impl FnOnce(T) -> Self) -> Self {
        value.map_or(Self::Missing, cell)
    }
}

/// Builds a batch from the rows of a small table. Each row has all columns; `kept` selects some.
pub(crate) fn batch_of_rows(
    rows: &[Vec<Cell>],
    kept: &[(usize, Column)],
    schema: &SchemaRef,
) -> Result<RecordBatch, ArrowError> {
    let cells = |place: usize| rows.iter().map(move |row| row.get(place));
    let array = |(nth, (place, column)): (usize, &(usize, Column))| -> ArrayRef {
        match column {
            Column::Time => {
                let times = cells(*place).map(|cell| match cell {
                    Some(Cell::Time(at)) => Some(*at),
                    _ => None,
                });
                time_array(times.collect(), schema, nth)
            }
            Column::Text => {
                let mut texts = StringViewBuilder::new();
                for cell in cells(*place) {
                    match cell {
                        Some(Cell::Text(text)) => texts.append_value(text),
                        _ => texts.append_null(),
                    }
                }
                Arc::new(texts.finish())
            }
            Column::Number => {
                let numbers = cells(*place).map(|cell| match cell {
                    Some(Cell::Number(number)) => Some(*number),
                    _ => None,
                });
                Arc::new(numbers.collect::<Int64Array>())
            }
            Column::Value => {
                let values = cells(*place).map(|cell| match cell {
                    Some(Cell::Value(value)) => Some(*value),
                    _ => None,
                });
                Arc::new(values.collect::<Float64Array>())
            }
        }
    };
    finish(kept.iter().enumerate().map(array).collect(), rows.len(), schema)
}

/// Sets the time zone of a time column.
pub(crate) fn time_array(
    times: TimestampMicrosecondArray,
    schema: &SchemaRef,
    nth: usize,
) -> ArrayRef {
    let zone = match schema.fields().get(nth).map(|field| field.data_type()) {
        Some(DataType::Timestamp(_, zone)) => zone.clone(),
        _ => None,
    };
    Arc::new(times.with_timezone_opt(zone))
}

/// Builds a text column. `places` gives the position of each row's text.
pub(crate) fn text_array<'a>(
    texts: impl Iterator<Item = Option<&'a str>>,
    places: &[u32],
) -> Result<ArrayRef, ArrowError> {
    let mut builder = StringViewBuilder::with_capacity(places.len());
    let mut blocks = Vec::new();
    for text in texts {
        let Some(text) = text else {
            blocks.push(None);
            continue;
        };
        let length = u32::try_from(text.len())
            .map_err(|_| ArrowError::ComputeError("a string is longer than 4 GiB".to_owned()))?;
        blocks.push(Some((builder.append_block(text.as_bytes().to_vec().into()), length)));
    }
    for place in places {
        let block = usize::try_from(*place).ok().and_then(|place| blocks.get(place));
        match block.copied().flatten() {
            Some((block, length)) => builder.try_append_view(block, 0, length)?,
            None => builder.append_null(),
        }
    }
    Ok(Arc::new(builder.finish()))
}

/// Builds a number column. `places` gives the position of each row's number.
pub(crate) fn number_array(numbers: &[Option<i64>], places: &[u32]) -> Int64Array {
    let number = |place: &u32| {
        let place = usize::try_from(*place).ok()?;
        numbers.get(place).copied().flatten()
    };
    places.iter().map(number).collect()
}

/// Builds a value column.
pub(crate) fn value_array<T>(values: Vec<T>) -> ArrayRef
where
    Float64Array: From<Vec<T>>,
{
    Arc::new(Float64Array::from(values))
}

/// Builds a batch from columns. For `count(*)` it may have none.
pub(crate) fn finish(
    columns: Vec<ArrayRef>,
    rows: usize,
    schema: &SchemaRef,
) -> Result<RecordBatch, ArrowError> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
}
