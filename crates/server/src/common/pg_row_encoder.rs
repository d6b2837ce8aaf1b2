//! Converts SQL rows to messages of PostgreSQL's protocol.

use crate::common::instant_texts::InstantTexts;
use crate::common::sql_row_encoder::{Column, TEXT_TIMES, entries, micros};
use pg_wire::backend::{Column as Heading, Messages, value_of};
use pg_wire::oid;
use sql::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use sql::arrow::compute::cast;
use sql::arrow::datatypes::{
    DataType, Date32Type, Float32Type, Float64Type, Int64Type, Schema, Time64MicrosecondType,
    TimeUnit,
};
use sql::arrow::error::ArrowError;
use sql::arrow::util::display::FormatOptions;
use sql::{Encode, WireStatement, element_text, interval, interval_text, type_of};
use std::sync::Arc;

/// Microseconds and days from 1970 to 2000, where PostgreSQL's times begin.
const EPOCH_US: i64 = 946_684_800_000_000;
const EPOCH_DAYS: i32 = 10_957;
/// Expected size of a row in bytes.
const ROW_BYTES: usize = 128;

/// Writes the rows of a result.
#[derive(Debug)]
pub(crate) struct WireRows {
    columns: Vec<Heading>,
    /// The texts of each column's instants.
    instants: Vec<InstantTexts>,
}

impl WireRows {
    /// Creates a writer, and the message of the columns.
    pub(crate) fn new(statement: &WireStatement, schema: &Schema) -> (Self, Vec<u8>) {
        let heading = |(place, field): (usize, &Arc<sql::arrow::datatypes::Field>)| {
            let (name, oid) = (field.name().clone(), type_of(field));
            Heading { name, oid, binary: statement.is_binary(place) }
        };
        let columns: Vec<_> = schema.fields().iter().enumerate().map(heading).collect();
        let mut messages = Messages::default();
        messages.columns(&columns);
        let instants = vec![InstantTexts::new(TEXT_TIMES); columns.len()];
        (Self { columns, instants }, messages.0)
    }
}

impl Encode for WireRows {
    fn rows(&mut self, batch: &RecordBatch) -> Result<Vec<u8>, ArrowError> {
        let options = FormatOptions::default();
        // The binary form of a value is that of one type for all values of its kind.
        let prepared = |(array, heading): (&ArrayRef, &Heading)| match heading.binary {
            true => binary_array(array, heading.oid),
            false => Ok(Arc::clone(array)),
        };
        let arrays = batch.columns().iter().zip(&self.columns).map(prepared);
        let arrays = arrays.collect::<Result<Vec<_>, _>>()?;
        let columns = arrays.iter().map(|array| Column::of(array, &options));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let mut messages = Messages(Vec::with_capacity(batch.num_rows().saturating_mul(ROW_BYTES)));
        for row in 0..batch.num_rows() {
            let mut result = Ok(());
            messages.put(b'D', |to| {
                to.extend(u16::try_from(columns.len()).unwrap_or(u16::MAX).to_be_bytes());
                for (((column, array), heading), instants) in
                    columns.iter().zip(&arrays).zip(&self.columns).zip(&mut self.instants)
                {
                    if column.is_null(row) {
                        to.extend((-1_i32).to_be_bytes());
                        continue;
                    }
                    value_of(to, |to| {
                        let put = match heading.binary {
                            true => binary(column, array, row, heading.oid, to),
                            false => text(column, array, row, instants, to),
                        };
                        if let Err(error) = put {
                            result = Err(error);
                        }
                    });
                }
            });
            result?;
        }
        Ok(messages.0)
    }

    fn end(&self) -> &'static [u8] {
        b""
    }
}

/// Appends the text of a value, as PostgreSQL prints it.
fn text(
    column: &Column<'_>,
    array: &dyn Array,
    row: usize,
    instants: &mut InstantTexts,
    to: &mut Vec<u8>,
) -> Result<(), ArrowError> {
    match column {
        Column::Bool(array) => to.push(if array.as_boolean().value(row) { b't' } else { b'f' }),
        Column::Float(array) if *array.data_type() == DataType::Float64 => {
            query::double(array.as_primitive::<Float64Type>().value(row), to);
        }
        Column::Instant(array, unit, zone) => {
            instants.put(micros(*array, *unit, row), zone.as_ref(), to);
        }
        Column::Text(_, array) if *array.data_type() == DataType::Utf8View => {
            to.extend_from_slice(array.as_string_view().value(row).as_bytes());
        }
        Column::List(_, array) => to.extend(list_text(&entries(*array, row))?.into_bytes()),
        _ => match interval(array, row)? {
            Some(interval) => to.extend(interval_text(interval).into_bytes()),
            None => to.extend(column.text(row)?.into_bytes()),
        },
    }
    Ok(())
}

/// The text of an array: `{1,NULL}`.
fn list_text(entries: &dyn Array) -> Result<String, ArrowError> {
    let options = FormatOptions::default();
    let column = Column::of(entries, &options)?;
    let mut instants = InstantTexts::new(TEXT_TIMES);
    let mut parts = Vec::with_capacity(entries.len());
    for row in 0..entries.len() {
        parts.push(match column.is_null(row) {
            true => "NULL".to_owned(),
            false => {
                let mut bytes = Vec::new();
                text(&column, entries, row, &mut instants, &mut bytes)?;
                // Each text is UTF-8.
                let text = String::from_utf8(bytes).unwrap_or_default();
                match column {
                    Column::Number(_) | Column::Float(_) | Column::Bool(_) => text,
                    _ => element_text(&text),
                }
            }
        });
    }
    Ok(format!("{{{}}}", parts.join(",")))
}

/// The array whose values [`binary`] writes for this type.
fn binary_array(array: &ArrayRef, kind: u32) -> Result<ArrayRef, ArrowError> {
    let to = match kind {
        oid::INT2 | oid::INT4 | oid::INT8 => DataType::Int64,
        oid::FLOAT4 => DataType::Float32,
        oid::DATE => DataType::Date32,
        oid::TIME => DataType::Time64(TimeUnit::Microsecond),
        _ => return Ok(Arc::clone(array)),
    };
    if *array.data_type() == to { Ok(Arc::clone(array)) } else { cast(array, &to) }
}

/// Appends the binary form of a value of a [`binary_array`].
fn binary(
    column: &Column<'_>,
    array: &dyn Array,
    row: usize,
    kind: u32,
    to: &mut Vec<u8>,
) -> Result<(), ArrowError> {
    match kind {
        oid::BOOL => to.push(u8::from(array.as_boolean().value(row))),
        oid::INT2 | oid::INT4 | oid::INT8 => {
            // The type was chosen so that the value fits.
            let bytes = array.as_primitive::<Int64Type>().value(row).to_be_bytes();
            let size = usize::try_from(oid::size(kind)).unwrap_or(8);
            to.extend(bytes.iter().skip(bytes.len().saturating_sub(size)));
        }
        oid::FLOAT4 => to.extend(array.as_primitive::<Float32Type>().value(row).to_be_bytes()),
        oid::FLOAT8 => to.extend(array.as_primitive::<Float64Type>().value(row).to_be_bytes()),
        oid::TIMESTAMPTZ | oid::TIMESTAMP => {
            if let Column::Instant(array, unit, _) = column {
                let at = micros(*array, *unit, row).saturating_sub(EPOCH_US);
                to.extend(at.to_be_bytes());
            }
        }
        oid::DATE => {
            let days = array.as_primitive::<Date32Type>().value(row).saturating_sub(EPOCH_DAYS);
            to.extend(days.to_be_bytes());
        }
        oid::TIME => {
            to.extend(array.as_primitive::<Time64MicrosecondType>().value(row).to_be_bytes());
        }
        oid::INTERVAL => {
            let (months, days, us) = interval(array, row)?.unwrap_or_default();
            to.extend(us.to_be_bytes());
            to.extend(days.to_be_bytes());
            to.extend(months.to_be_bytes());
        }
        oid::NUMERIC => numeric(&column.text(row)?, to),
        oid::JSONB => {
            to.push(1);
            to.extend_from_slice(column.text(row)?.as_bytes());
        }
        kind => match oid::element(kind) {
            Some(element) => list(&binary_array(&entries(array, row), element)?, element, to)?,
            None => text(column, array, row, &mut InstantTexts::new(TEXT_TIMES), to)?,
        },
    }
    Ok(())
}

/// Appends an array of one dimension, or none.
fn list(entries: &dyn Array, element: u32, to: &mut Vec<u8>) -> Result<(), ArrowError> {
    let options = FormatOptions::default();
    let column = Column::of(entries, &options)?;
    to.extend(u32::from(!entries.is_empty()).to_be_bytes());
    to.extend(u32::from(entries.null_count() > 0).to_be_bytes());
    to.extend(element.to_be_bytes());
    if entries.is_empty() {
        return Ok(());
    }
    to.extend(u32::try_from(entries.len()).unwrap_or(u32::MAX).to_be_bytes());
    to.extend(1_u32.to_be_bytes());
    for row in 0..entries.len() {
        if column.is_null(row) {
            to.extend((-1_i32).to_be_bytes());
            continue;
        }
        let mut result = Ok(());
        value_of(to, |to| result = binary(&column, entries, row, element, to));
        result?;
    }
    Ok(())
}

/// Appends a decimal number in digits of the base 10 000.
fn numeric(text: &str, to: &mut Vec<u8>) {
    let (sign, text) = match text.strip_prefix('-') {
        Some(rest) => (0x4000_u16, rest),
        None => (0, text),
    };
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let whole = whole.trim_start_matches('0');
    let padded = format!("{whole:0>width$}", width = whole.len().div_ceil(4) * 4);
    let scale = u16::try_from(fraction.len()).unwrap_or(u16::MAX);
    let fraction = format!("{fraction:0<width$}", width = fraction.len().div_ceil(4) * 4);
    let groups = |text: &str| -> Vec<u16> {
        let bytes = text.as_bytes().chunks(4);
        bytes.map(|four| four.iter().fold(0, |n, d| n * 10 + u16::from(d - b'0'))).collect()
    };
    let digits = [groups(&padded), groups(&fraction)].concat();
    let weight = i16::try_from(padded.len() / 4).unwrap_or(i16::MAX) - 1;
    to.extend(u16::try_from(digits.len()).unwrap_or(u16::MAX).to_be_bytes());
    to.extend(weight.to_be_bytes());
    to.extend(sign.to_be_bytes());
    to.extend(scale.to_be_bytes());
    digits.iter().for_each(|digit| to.extend(digit.to_be_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use sql::arrow::array::{
        BooleanArray, Float64Array, Int64Array, ListArray, StringArray, TimestampMicrosecondArray,
        UInt64Array,
    };

    fn rows(binary: bool) -> Vec<Vec<u8>> {
        let time = TimestampMicrosecondArray::from(vec![EPOCH_US + 1]).with_timezone("+00:00");
        let list = ListArray::from_iter_primitive::<Int64Type, _, _>([Some(vec![Some(7), None])]);
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("time", Arc::new(time)),
            ("flag", Arc::new(BooleanArray::from(vec![true]))),
            ("number", Arc::new(Int64Array::from(vec![-7]))),
            ("value", Arc::new(Float64Array::from(vec![98.5]))),
            ("text", Arc::new(StringArray::from(vec!["é"]))),
            ("list", Arc::new(list)),
            ("large", Arc::new(UInt64Array::from(vec![u64::MAX]))),
            ("none", Arc::new(Int64Array::from(vec![None]))),
        ];
        let columns = columns.into_iter().map(|(name, column)| (name, column, true));
        let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
        let statement = WireStatement { binary: vec![binary], ..WireStatement::default() };
        let (mut writer, _) = WireRows::new(&statement, &batch.schema());
        let bytes = writer.rows(&batch).unwrap();
        let mut take = pg_wire::frontend::Reader(&bytes[7..]);
        (0..8).map(|_| take.value().unwrap().unwrap_or_default()).collect()
    }

    #[test]
    fn values_as_text() {
        let want = [
            "2000-01-01 00:00:00.000001+00",
            "t",
            "-7",
            "98.5",
            "é",
            "{7,NULL}",
            "18446744073709551615",
            "",
        ];
        assert_eq!(rows(false), want.map(|text| text.as_bytes().to_vec()));
    }

    #[test]
    fn binary_values() {
        let rows = rows(true);
        assert_eq!(rows[0], 1_i64.to_be_bytes());
        assert_eq!(
            rows[1..5],
            [vec![1], (-7_i64).to_be_bytes().to_vec(), 98.5_f64.to_be_bytes().to_vec(), "é".into()]
        );
        let text = pg_wire::parameters::text(oid::INT8_ARRAY, true, &rows[5]).unwrap();
        assert_eq!(text, "{\"7\",NULL}");
        let digits = [5_u16, 4, 0, 0, 1844, 6744, 737, 955, 1615].map(u16::to_be_bytes).concat();
        assert_eq!(rows[6], digits);
    }
}
