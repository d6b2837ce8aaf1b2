//! Casts to text give PostgreSQL's text: those of times, intervals, lists, labels and doubles.

use crate::common::schema::is_json;
use crate::functions::instants::Zone;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringViewArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, DurationMicrosecondType, Float64Type, IntervalMonthDayNanoType, IntervalUnit,
    TimeUnit, TimestampMicrosecondType,
};
use datafusion::arrow::error::ArrowError;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{DFSchema, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Cast, ScalarFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};
use datafusion::optimizer::AnalyzerRule;
use std::sync::Arc;

/// An interval: months, days and microseconds.
pub type Interval = (i32, i32, i64);

/// The interval in a row of a column; `None` if the column has another type.
///
/// # Errors
/// The engine cannot convert it.
pub fn interval(array: &dyn Array, row: usize) -> Result<Option<Interval>, ArrowError> {
    Ok(match array.data_type() {
        DataType::Interval(_) => {
            let array = cast(array, &DataType::Interval(IntervalUnit::MonthDayNano))?;
            let value = array.as_primitive::<IntervalMonthDayNanoType>().value(row);
            Some((value.months, value.days, value.nanoseconds / 1000))
        }
        DataType::Duration(_) => {
            let array = cast(array, &DataType::Duration(TimeUnit::Microsecond))?;
            Some((0, 0, array.as_primitive::<DurationMicrosecondType>().value(row)))
        }
        _ => None,
    })
}

/// `1 year 2 mons 3 days 04:05:06.5`.
pub fn interval_text((months, days, us): Interval) -> String {
    let mut parts = Vec::new();
    for (count, one, many) in
        [(months / 12, "year", "years"), (months % 12, "mon", "mons"), (days, "day", "days")]
    {
        if count != 0 {
            parts.push(format!("{count} {}", if count == 1 { one } else { many }));
        }
    }
    if us != 0 || parts.is_empty() {
        let (sign, us) = (if us < 0 { "-" } else { "" }, us.unsigned_abs());
        let (seconds, us) = (us / 1_000_000, us % 1_000_000);
        let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
        let fraction = if us == 0 { String::new() } else { format!(".{us:06}") };
        let fraction = fraction.trim_end_matches('0');
        parts.push(format!("{sign}{hours:02}:{minutes:02}:{:02}{fraction}", seconds % 60));
    }
    parts.join(" ")
}

/// `2026-01-06 13:35:00.25+01`; without a time zone it has no offset.
fn time_text(micros: i64, zone: Option<&Zone>) -> String {
    let seconds = zone.map(|zone| zone.offset_seconds(micros));
    let local = micros.saturating_add(i64::from(seconds.unwrap_or(0)).saturating_mul(1_000_000));
    let Some(at) = chrono::DateTime::from_timestamp_micros(local) else {
        return model::Timestamp(micros).to_string();
    };
    let time = at.format("%Y-%m-%d %H:%M:%S%.6f").to_string();
    let time = time.trim_end_matches('0');
    let time = time.strip_suffix('.').unwrap_or(time);
    let Some(seconds) = seconds else { return time.to_owned() };
    let (sign, left) = (if seconds < 0 { '-' } else { '+' }, seconds.unsigned_abs());
    let minutes = left / 60 % 60;
    let minutes = if minutes == 0 { String::new() } else { format!(":{minutes:02}") };
    format!("{time}{sign}{:02}{minutes}", left / 3600)
}

/// Replaces casts to text. Runs after the engine's rule that determines the types.
#[derive(Debug)]
pub(crate) struct TextCasts(Arc<ScalarUDF>);

impl TextCasts {
    pub(crate) fn new() -> Self {
        let signature = Signature::any(1, Volatility::Immutable);
        Self(Arc::new(ScalarUDF::from(TextOf { signature })))
    }

    fn replaced(&self, expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
        let Expr::Cast(Cast { expr: inner, field }) = &expr else { return Transformed::no(expr) };
        let is_literal = matches!(**inner, Expr::Literal(..));
        let is_ours = field.data_type().is_string()
            && inner.to_field(schema).is_ok_and(|(_, from)| {
                let is_list = matches!(from.data_type(), DataType::List(_)) && !is_literal;
                let kind = from.data_type();
                is_list
                    || is_json(&from)
                    || matches!(
                        kind,
                        DataType::Interval(_)
                            | DataType::Duration(_)
                            | DataType::Timestamp(..)
                            | DataType::Float64
                    )
            });
        if !is_ours {
            return Transformed::no(expr);
        }
        let args = vec![(**inner).clone()];
        let text = Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(&self.0), args));
        let (expr, field) = (Box::new(text), Arc::clone(field));
        // The cast remains, so that the column has the same type. It is not replaced again: its inner type is text.
        Transformed::yes(Expr::Cast(Cast { expr, field }))
    }
}

impl AnalyzerRule for TextCasts {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|node| {
            let names = NamePreserver::new(&node);
            let schema = match node.inputs().as_slice() {
                [] => node.schema().as_ref().clone(),
                inputs => merge_schema(inputs),
            };
            node.map_expressions(|expr| {
                let name = names.save(&expr);
                let cast = expr.transform_up(|part| Ok(self.replaced(part, &schema)))?;
                Ok(cast.update_data(|expr| name.restore(expr)))
            })
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "text_casts"
    }
}

/// PostgreSQL's text of a value.
#[derive(Debug, PartialEq, Eq, Hash)]
struct TextOf {
    signature: Signature,
}

impl ScalarUDFImpl for TextOf {
    fn name(&self) -> &'static str {
        "text"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [value] = args.args.as_slice() else {
            return exec_err!("text has one argument");
        };
        let array = value.to_array(args.number_rows)?;
        if array.data_type().is_string() {
            return Ok(ColumnarValue::Array(cast(&array, &DataType::Utf8View)?));
        }
        let text = |row: usize| {
            let text = (!array.is_null(row)).then(|| text_of(&array, row));
            text.transpose()
        };
        let texts = (0..array.len()).map(text).collect::<Result<StringViewArray, ArrowError>>()?;
        Ok(ColumnarValue::Array(Arc::new(texts)))
    }
}

fn text_of(array: &ArrayRef, row: usize) -> Result<String, ArrowError> {
    if let Some(interval) = interval(array, row)? {
        return Ok(interval_text(interval));
    }
    match array.data_type() {
        DataType::Timestamp(_, zone) => {
            let kind = DataType::Timestamp(TimeUnit::Microsecond, zone.clone());
            let zone = zone.as_ref().map(|zone| Zone::parse(zone)).transpose()?;
            let array = cast(array, &kind)?;
            let micros = array.as_primitive::<TimestampMicrosecondType>().value(row);
            Ok(time_text(micros, zone.as_ref()))
        }
        DataType::Float64 => {
            let mut text = Vec::new();
            query::double(array.as_primitive::<Float64Type>().value(row), &mut text);
            // The digits are ASCII.
            Ok(String::from_utf8(text).unwrap_or_default())
        }
        DataType::Boolean => Ok(if array.as_boolean().value(row) { "t" } else { "f" }.to_owned()),
        DataType::List(_) => {
            let entries = array.as_list::<i32>().value(row);
            let is_bare =
                entries.data_type().is_numeric() || *entries.data_type() == DataType::Boolean;
            let mut parts = Vec::with_capacity(entries.len());
            for at in 0..entries.len() {
                parts.push(match (entries.is_null(at), is_bare) {
                    (true, _) => "NULL".to_owned(),
                    (false, true) => text_of(&entries, at)?,
                    (false, false) => element_text(&text_of(&entries, at)?),
                });
            }
            Ok(format!("{{{}}}", parts.join(",")))
        }
        _ => {
            let one = cast(&array.slice(row, 1), &DataType::Utf8View)?;
            Ok(one.as_string_view().value(0).to_owned())
        }
    }
}

/// An element of an array, in quotes where PostgreSQL writes some.
pub fn element_text(text: &str) -> String {
    let is_plain = !text.is_empty()
        && !text.eq_ignore_ascii_case("null")
        && !text.contains(|c: char| matches!(c, '{' | '}' | ',' | '"' | '\\') || c.is_whitespace());
    if is_plain {
        return text.to_owned();
    }
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_US: i64 = 1_000_000;

    #[test]
    fn intervals_as_postgresql_prints_them() {
        for (interval, want) in [
            ((14, 1, 3_723 * SECOND_US + 500_000), "1 year 2 mons 1 day 01:02:03.5"),
            ((0, 0, 0), "00:00:00"),
            ((0, -2, -SECOND_US), "-2 days -00:00:01"),
        ] {
            assert_eq!(interval_text(interval), want);
        }
    }

    #[test]
    fn times_as_postgresql_prints_them() {
        let zone = |name| Zone::parse(name).unwrap();
        let at = 1_767_706_500 * SECOND_US;
        assert_eq!(
            time_text(at + 250_000, Some(&zone("Europe/Paris"))),
            "2026-01-06 14:35:00.25+01"
        );
        assert_eq!(time_text(at, Some(&zone("-02:30"))), "2026-01-06 11:05:00-02:30");
        assert_eq!(time_text(at, None), "2026-01-06 13:35:00");
    }
}
