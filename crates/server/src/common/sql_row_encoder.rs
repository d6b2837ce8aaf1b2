//! Converts SQL rows to JSON or CSV, batch by batch.

use crate::common::csv;
use crate::common::pg_row_encoder::WireRows;
use jiff::tz::{Offset, TimeZone};
use query::Format;
use sql::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use sql::arrow::datatypes::{
    DataType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, Schema,
    TimeUnit, TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use sql::arrow::error::ArrowError;
use sql::arrow::util::display::{ArrayFormatter, FormatOptions};
use sql::{Encode, Encoding, Form, Zone, interval, interval_text};

/// Writes the rows of a response: its beginning, its batches and its end.
#[derive(Debug)]
pub(crate) struct Writer {
    encoding: Encoding,
    /// The columns with JSON that the response contains as it is.
    embedded: Vec<bool>,
    /// Column names as JSON strings, each followed by a colon; only for JSON.
    keys: Vec<String>,
    /// Text before each row of JSON but the first.
    separator: &'static str,
    first: bool,
}

/// Type-specific formatter of a column.
pub(crate) enum Column<'a> {
    Null,
    Bool(&'a dyn Array),
    Number(&'a dyn Array),
    Float(&'a dyn Array),
    Instant(&'a dyn Array, TimeUnit, Option<Zone>),
    /// A list: in JSON an array, in CSV a text.
    List(ArrayFormatter<'a>, &'a dyn Array),
    Text(ArrayFormatter<'a>, &'a dyn Array),
}

/// Creates an encoder for SQL responses, and the bytes before its first row.
pub(crate) fn encoder(form: Form<'_>, schema: &Schema) -> (Box<dyn Encode>, Vec<u8>) {
    match form {
        Form::Text(encoding) => {
            let (writer, begin) = Writer::new(encoding, schema);
            (Box::new(writer), begin)
        }
        Form::Wire(statement) => {
            let (writer, begin) = WireRows::new(statement, schema);
            (Box::new(writer), begin)
        }
    }
}

impl Encode for Writer {
    fn rows(&mut self, batch: &RecordBatch) -> Result<Vec<u8>, ArrowError> {
        self.text(batch)
    }

    fn end(&self) -> &'static [u8] {
        match self.encoding.format {
            Format::Json => b"]",
            Format::Csv => b"",
        }
    }
}

impl Writer {
    /// Creates a writer, and the bytes before its first row.
    pub(crate) fn new(encoding: Encoding, schema: &Schema) -> (Self, Vec<u8>) {
        let Encoding { format, like_postgrest } = encoding;
        let embedded = schema.fields().iter().map(|field| like_postgrest && sql::is_json(field));
        let names: Vec<&str> = schema.fields().iter().map(|field| &**field.name()).collect();
        let mut begin = String::new();
        let mut keys = Vec::new();
        match format {
            Format::Json => {
                begin.push('[');
                keys = names.iter().map(|name| format!("{}:", quoted(name))).collect();
            }
            Format::Csv => {
                for (i, name) in names.iter().enumerate() {
                    begin.push_str(if i == 0 { "" } else { "," });
                    csv::text_field(name, &mut begin);
                }
                begin.push('\n');
            }
        }
        // PostgreSQL's `json_agg` has a blank before the line break.
        let separator = if like_postgrest { ", \n " } else { ",\n " };
        let embedded = embedded.collect();
        (Self { encoding, embedded, keys, separator, first: true }, begin.into_bytes())
    }

    fn text(&mut self, batch: &RecordBatch) -> Result<Vec<u8>, ArrowError> {
        let options = FormatOptions::default();
        let columns = batch.columns().iter().map(|column| Column::of(column, &options));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let mut out = String::with_capacity(batch.num_rows().saturating_mul(64));
        for row in 0..batch.num_rows() {
            match self.encoding {
                Encoding { format: Format::Json, .. } => self.json(row, &columns, &mut out)?,
                Encoding { like_postgrest: true, .. } => record(row, &columns, &mut out)?,
                Encoding { .. } => csv_row(row, &columns, &mut out)?,
            }
        }
        Ok(out.into_bytes())
    }

    fn json(
        &mut self,
        row: usize,
        columns: &[Column<'_>],
        out: &mut String,
    ) -> Result<(), ArrowError> {
        out.push_str(if self.first { "" } else { self.separator });
        out.push('{');
        self.first = false;
        for (i, (key, column)) in self.keys.iter().zip(columns).enumerate() {
            out.push_str(if i == 0 { "" } else { "," });
            out.push_str(key);
            let is_embedded = self.embedded.get(i).copied().unwrap_or(false);
            if is_embedded && !column.is_null(row) {
                out.push_str(&column.text(row)?);
            } else {
                column.json(row, out)?;
            }
        }
        out.push('}');
        Ok(())
    }
}

fn csv_row(row: usize, columns: &[Column<'_>], out: &mut String) -> Result<(), ArrowError> {
    for (i, column) in columns.iter().enumerate() {
        out.push_str(if i == 0 { "" } else { "," });
        if column.is_null(row) {
            continue;
        }
        match column.is_text() {
            true => csv::text_field(&column.text(row)?, out),
            false => csv::field(&column.text(row)?, out),
        }
    }
    out.push('\n');
    Ok(())
}

/// Appends a row of CSV as PostgREST does: the text that PostgreSQL has for a record.
fn record(row: usize, columns: &[Column<'_>], out: &mut String) -> Result<(), ArrowError> {
    for (i, column) in columns.iter().enumerate() {
        out.push_str(if i == 0 { "" } else { "," });
        if column.is_null(row) {
            continue;
        }
        match column {
            Column::Instant(array, unit, zone) => {
                let time = instant(micros(*array, *unit, row), zone.as_ref(), TEXT_TIMES);
                out.extend(["\"", &*time, "\""]);
            }
            _ if column.is_text() => out.push_str(&query::record_field(&column.text(row)?)),
            _ => out.push_str(&column.text(row)?),
        }
    }
    out.push('\n');
    Ok(())
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

impl<'a> Column<'a> {
    pub(crate) fn of(
        array: &'a dyn Array,
        options: &FormatOptions<'a>,
    ) -> Result<Self, ArrowError> {
        Ok(match array.data_type() {
            DataType::Null => Self::Null,
            DataType::Boolean => Self::Bool(array),
            kind if kind.is_integer() => Self::Number(array),
            DataType::Float32 | DataType::Float64 => Self::Float(array),
            DataType::Timestamp(unit, zone) => {
                let zone = zone.as_ref().map(|zone| Zone::parse(zone)).transpose()?;
                Self::Instant(array, *unit, zone)
            }
            DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..) => {
                Self::List(ArrayFormatter::try_new(array, options)?, array)
            }
            _ => Self::Text(ArrayFormatter::try_new(array, options)?, array),
        })
    }

    /// Appends a value as JSON.
    fn json(&self, row: usize, out: &mut String) -> Result<(), ArrowError> {
        if self.is_null(row) {
            out.push_str("null");
            return Ok(());
        }
        if let Self::List(_, array) = self {
            return list_json(&entries(*array, row), out);
        }
        let text = self.text(row)?;
        // Infinity and NaN are strings, as in PostgreSQL's JSON.
        let bare = matches!(self, Self::Bool(_) | Self::Number(_))
            || (matches!(self, Self::Float(_)) && !text.ends_with(['N', 'y']));
        if bare {
            out.push_str(&text)
        } else {
            out.push_str(&quoted(&text))
        }
        Ok(())
    }

    /// Whether the column holds texts. Other types that the engine formats may begin with a sign.
    fn is_text(&self) -> bool {
        let other = |kind: &DataType| kind.is_numeric() || kind.is_temporal();
        matches!(self, Self::Text(_, array) | Self::List(_, array) if !other(array.data_type()))
    }

    pub(crate) fn is_null(&self, row: usize) -> bool {
        match self {
            Self::Null => true,
            Self::Bool(array)
            | Self::Number(array)
            | Self::Float(array)
            | Self::Instant(array, ..)
            | Self::List(_, array)
            | Self::Text(_, array) => array.is_null(row),
        }
    }

    pub(crate) fn text(&self, row: usize) -> Result<String, ArrowError> {
        Ok(match self {
            Self::Null => String::new(),
            Self::Bool(array) => array.as_boolean().value(row).to_string(),
            Self::Number(array) => integer(*array, row),
            Self::Float(array) => float(*array, row),
            Self::Instant(array, unit, zone) => {
                instant(micros(*array, *unit, row), zone.as_ref(), JSON_TIMES)
            }
            Self::Text(formatter, array) => match interval(*array, row)? {
                Some(interval) => interval_text(interval),
                None => formatter.value(row).try_to_string()?,
            },
            Self::List(formatter, _) => formatter.value(row).try_to_string()?,
        })
    }
}

/// The entries of a list in a row.
pub(crate) fn entries(array: &dyn Array, row: usize) -> ArrayRef {
    match array.data_type() {
        DataType::LargeList(_) => array.as_list::<i64>().value(row),
        DataType::FixedSizeList(..) => array.as_fixed_size_list().value(row),
        _ => array.as_list::<i32>().value(row),
    }
}

fn list_json(entries: &dyn Array, out: &mut String) -> Result<(), ArrowError> {
    let options = FormatOptions::default();
    let column = Column::of(entries, &options)?;
    out.push('[');
    for row in 0..entries.len() {
        out.push_str(if row == 0 { "" } else { "," });
        column.json(row, out)?;
    }
    out.push(']');
    Ok(())
}

fn integer(array: &dyn Array, row: usize) -> String {
    match array.data_type() {
        DataType::Int8 => array.as_primitive::<Int8Type>().value(row).to_string(),
        DataType::Int16 => array.as_primitive::<Int16Type>().value(row).to_string(),
        DataType::Int32 => array.as_primitive::<Int32Type>().value(row).to_string(),
        DataType::UInt8 => array.as_primitive::<UInt8Type>().value(row).to_string(),
        DataType::UInt16 => array.as_primitive::<UInt16Type>().value(row).to_string(),
        DataType::UInt32 => array.as_primitive::<UInt32Type>().value(row).to_string(),
        DataType::UInt64 => array.as_primitive::<UInt64Type>().value(row).to_string(),
        _ => array.as_primitive::<Int64Type>().value(row).to_string(),
    }
}

/// Returns a timestamp in microseconds since 1970, rounded down.
pub(crate) fn micros(array: &dyn Array, unit: TimeUnit, row: usize) -> i64 {
    match unit {
        TimeUnit::Second => {
            array.as_primitive::<TimestampSecondType>().value(row).saturating_mul(1_000_000)
        }
        TimeUnit::Millisecond => {
            array.as_primitive::<TimestampMillisecondType>().value(row).saturating_mul(1000)
        }
        TimeUnit::Microsecond => array.as_primitive::<TimestampMicrosecondType>().value(row),
        TimeUnit::Nanosecond => {
            array.as_primitive::<TimestampNanosecondType>().value(row).div_euclid(1000)
        }
    }
}

/// Formats of times with and without an offset.
pub(crate) type TimeFormats = (&'static str, &'static str);

/// As in PostgreSQL's JSON: `2026-01-06T13:35:00.25+01:00`.
const JSON_TIMES: TimeFormats = ("%Y-%m-%dT%H:%M:%S%.f%:z", "%Y-%m-%dT%H:%M:%S%.f");
/// As PostgreSQL prints them elsewhere: `2026-01-06 13:35:00.25+01`.
pub(crate) const TEXT_TIMES: TimeFormats = ("%Y-%m-%d %H:%M:%S%.f%:::z", "%Y-%m-%d %H:%M:%S%.f");

/// Formats a timestamp. Without a time zone it has no offset.
pub(crate) fn instant(
    micros: i64,
    zone: Option<&Zone>,
    (with_offset, plain): TimeFormats,
) -> String {
    let Ok(at) = jiff::Timestamp::from_microsecond(micros) else {
        // The time is outside the calendar's range of years.
        return model::Timestamp(micros).to_string();
    };
    match zone {
        Some(zone) => {
            // The offset comes from tables compiled into this program: a worker cannot open time zone
            // files.
            let offset = Offset::from_seconds(zone.offset_seconds(micros)).unwrap_or(Offset::UTC);
            at.to_zoned(TimeZone::fixed(offset)).strftime(with_offset).to_string()
        }
        None => at.to_zoned(TimeZone::UTC).strftime(plain).to_string(),
    }
}

/// Formats the shortest digits that read back as the same number, like PostgreSQL: `98`, `0.5`, `1e+16`.
fn float(array: &dyn Array, row: usize) -> String {
    let value = match array.data_type() {
        DataType::Float32 => {
            let value = array.as_primitive::<Float32Type>().value(row);
            return if value.is_finite() { value.to_string() } else { word(value.into()) };
        }
        _ => array.as_primitive::<Float64Type>().value(row),
    };
    let mut text = Vec::new();
    query::double(value, &mut text);
    // The digits are ASCII.
    String::from_utf8(text).unwrap_or_default()
}

fn word(value: f64) -> String {
    let text = if value.is_nan() {
        "NaN"
    } else if value > 0.0 {
        "Infinity"
    } else {
        "-Infinity"
    };
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sql::arrow::array::{
        ArrayRef, BooleanArray, Decimal128Array, Float64Array, Int64Array, StringArray,
        TimestampMicrosecondArray, TimestampNanosecondArray,
    };
    use std::sync::Arc;

    fn batch() -> RecordBatch {
        let time = TimestampMicrosecondArray::from(vec![1_767_706_500_250_000, 0]);
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("timestamp", Arc::new(time.with_timezone("+00:00"))),
            ("a \"name\"", Arc::new(StringArray::from(vec![Some("x,\"y\""), None]))),
            ("value", Arc::new(Float64Array::from(vec![98.0, f64::NAN]))),
            ("n", Arc::new(Int64Array::from(vec![Some(-7), None]))),
            ("ok", Arc::new(BooleanArray::from(vec![true, false]))),
        ];
        RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, c)| (n, c, true)))
            .unwrap()
    }

    fn written(format: Format, batches: &[RecordBatch]) -> String {
        let (mut writer, mut bytes) = Writer::new(format.into(), &batch().schema());
        for batch in batches {
            bytes.extend(writer.rows(batch).unwrap());
        }
        bytes.extend(writer.end());
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn json() {
        let text = written(Format::Json, &[batch(), batch()]);
        let rows: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
        assert_eq!(rows.len(), 4);
        let want = r#"{"timestamp":"2026-01-06T13:35:00.25+00:00","a \"name\"":"x,\"y\"","value":98,"n":-7,"ok":true}"#;
        assert!(text.starts_with(&format!("[{want},\n {{")), "{text}");
        assert_eq!(rows[1]["value"], "NaN");
        assert_eq!(rows[1]["n"], serde_json::Value::Null);
        assert_eq!(written(Format::Json, &[]), "[]");
    }

    #[test]
    fn lists_are_arrays_of_json() {
        let list = sql::arrow::array::ListArray::from_iter_primitive::<Int64Type, _, _>([
            Some(vec![Some(1), None]),
            None,
            Some(vec![]),
        ]);
        let rows = RecordBatch::try_from_iter([("list", Arc::new(list) as ArrayRef)]).unwrap();
        let text = |format: Format| {
            let (mut writer, _) = Writer::new(format.into(), &rows.schema());
            String::from_utf8(writer.rows(&rows).unwrap()).unwrap()
        };
        let want = "{\"list\":[1,null]},\n {\"list\":null},\n {\"list\":[]}";
        assert_eq!(text(Format::Json), want);
        assert_eq!(text(Format::Csv), "\"[1, ]\"\n\n[]\n");
    }

    #[test]
    fn comma_separated() {
        let text = written(Format::Csv, &[batch()]);
        let want = "timestamp,\"a \"\"name\"\"\",value,n,ok\n\
                    2026-01-06T13:35:00.25+00:00,\"x,\"\"y\"\"\",98,-7,true\n\
                    1970-01-01T00:00:00+00:00,,NaN,,false\n";
        assert_eq!(text, want);
    }

    #[test]
    fn no_text_begins_a_formula_and_numbers_remain() {
        let texts = StringArray::from(vec!["=1+1", "a\u{1b}[2J"]);
        let numbers = Int64Array::from(vec![-7, 7]);
        let parts = Decimal128Array::from(vec![-150, 1]).with_precision_and_scale(10, 2).unwrap();
        let columns: [(&str, ArrayRef); 3] =
            [("=t", Arc::new(texts)), ("n", Arc::new(numbers)), ("d", Arc::new(parts))];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let (mut writer, mut bytes) = Writer::new(Format::Csv.into(), &batch.schema());
        bytes.extend(writer.rows(&batch).unwrap());
        let want = "'=t,n,d\n'=1+1,-7,-1.50\na\u{fffd}[2J,7,0.01\n";
        assert_eq!(String::from_utf8(bytes).unwrap(), want);
    }

    #[test]
    fn instants_in_their_zone() {
        let zone = |name: &str| Zone::parse(name).unwrap();
        let at = 1_767_706_500_250_000;
        for (zone, want) in [
            (Some(zone("+00:00")), "2026-01-06T13:35:00.25+00:00"),
            (Some(zone("-02:30")), "2026-01-06T11:05:00.25-02:30"),
            (Some(zone("UTC")), "2026-01-06T13:35:00.25+00:00"),
            (Some(zone("Europe/Paris")), "2026-01-06T14:35:00.25+01:00"),
            (None, "2026-01-06T13:35:00.25"),
        ] {
            assert_eq!(instant(at, zone.as_ref(), JSON_TIMES), want);
        }
        for (name, want) in [
            ("Europe/Paris", "2026-01-06 14:35:00.25+01"),
            ("-02:30", "2026-01-06 11:05:00.25-02:30"),
        ] {
            assert_eq!(instant(at, Some(&zone(name)), TEXT_TIMES), want);
        }
        let nanos = TimestampNanosecondArray::from(vec![-1]);
        assert_eq!(micros(&nanos, TimeUnit::Nanosecond, 0), -1);
        assert_eq!(instant(-1, Some(&zone("UTC")), JSON_TIMES), "1969-12-31T23:59:59.999999+00:00");
        assert_eq!(instant(i64::MIN, None, JSON_TIMES), model::Timestamp(i64::MIN).to_string());
    }

    #[test]
    fn numbers_as_postgresql_prints_them() {
        for (value, want) in [
            (0.0, "0"),
            (-0.5, "-0.5"),
            (1e16, "1e+16"),
            (1.5e-7, "1.5e-07"),
            (123_456_789_012_345.0, "123456789012345"),
            (0.0001, "0.0001"),
            (f64::NEG_INFINITY, "-Infinity"),
            (1e300, "1e+300"),
        ] {
            assert_eq!(float(&Float64Array::from(vec![value]), 0), want);
        }
    }
}
