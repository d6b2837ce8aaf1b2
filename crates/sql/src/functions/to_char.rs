//! `to_char(time, format)` with PostgreSQL's patterns.

use chrono::{DateTime, Datelike, Offset, TimeZone, Timelike};
use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringViewBuilder};
use datafusion::arrow::datatypes::{DataType, TimeUnit, TimestampMicrosecondType};
use datafusion::common::{ScalarValue, exec_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::fmt::Write;
use std::sync::Arc;

/// Maximum size of a format in bytes. A longer one would produce much text per row.
const FORMAT_MAX: usize = 256;

/// The patterns. Each comes before its own prefixes.
const PATTERNS: [&str; 33] = [
    "YYYY", "IYYY", "YY", "MONTH", "Month", "month", "MON", "Mon", "mon", "MM", "MI", "MS", "DDD",
    "DD", "DAY", "Day", "day", "DY", "Dy", "dy", "D", "ID", "IW", "HH24", "HH12", "HH", "SS", "US",
    "Q", "AM", "PM", "OF", "TZ",
];

/// A part of a format.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    /// A pattern, and whether it is written without padding.
    Pattern(&'static str, bool),
}

fn parts(format: &str) -> Vec<Part> {
    let (mut parts, mut rest, mut text) = (Vec::new(), format, String::new());
    while let Some(c) = rest.chars().next() {
        let (fill, behind) = match rest.strip_prefix("FM") {
            Some(behind) => (true, behind),
            None => (false, rest),
        };
        let pattern = PATTERNS.into_iter().find(|pattern| behind.starts_with(pattern));
        if let Some(pattern) = pattern {
            if !text.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut text)));
            }
            parts.push(Part::Pattern(pattern, fill));
            rest = behind.get(pattern.len()..).unwrap_or_default();
            continue;
        }
        rest = rest.get(c.len_utf8()..).unwrap_or_default();
        if c == '"' {
            let (quoted, behind) = rest.split_once('"').unwrap_or((rest, ""));
            text.push_str(quoted);
            rest = behind;
        } else {
            text.push(c);
        }
    }
    if !text.is_empty() {
        parts.push(Part::Text(text));
    }
    parts
}

/// Writes a name in the case of its pattern: `MONTH`, `Month` or `month`. The long form is padded to 9 characters.
fn name(long: &str, pattern: &str, bare: bool) -> String {
    let short = !matches!(pattern.to_ascii_uppercase().as_str(), "MONTH" | "DAY");
    let word = if short { long.get(..3).unwrap_or(long) } else { long };
    let word = match pattern.chars().nth(1) {
        Some(c) if c.is_ascii_lowercase() && pattern.starts_with(|c: char| c.is_uppercase()) => {
            word.to_owned()
        }
        Some(c) if c.is_ascii_uppercase() => word.to_uppercase(),
        _ => word.to_lowercase(),
    };
    if short || bare { word } else { format!("{word:<9}") }
}

fn append(out: &mut String, pattern: &'static str, bare: bool, at: &DateTime<Tz>) {
    let mut number = |value: i64, width: usize| {
        let width = if bare { 0 } else { width };
        // Writing to a string cannot fail.
        write!(out, "{value:0width$}").ok();
    };
    let offset = at.offset().fix().local_minus_utc();
    match pattern {
        "YYYY" => number(i64::from(at.year()), 4),
        "IYYY" => number(i64::from(at.iso_week().year()), 4),
        "YY" => number(i64::from(at.year().rem_euclid(100)), 2),
        "MM" => number(at.month().into(), 2),
        "DDD" => number(at.ordinal().into(), 3),
        "DD" => number(at.day().into(), 2),
        "D" => number(at.weekday().number_from_sunday().into(), 0),
        "ID" => number(at.weekday().number_from_monday().into(), 0),
        "IW" => number(at.iso_week().week().into(), 2),
        "Q" => number(at.month0().div_euclid(3).saturating_add(1).into(), 0),
        "HH24" => number(at.hour().into(), 2),
        "HH12" | "HH" => number(at.hour12().1.into(), 2),
        "MI" => number(at.minute().into(), 2),
        "SS" => number(at.second().into(), 2),
        "MS" => number(at.timestamp_subsec_millis().into(), 3),
        "US" => number(at.timestamp_subsec_micros().into(), 6),
        "AM" | "PM" => out.push_str(if at.hour() < 12 { "AM" } else { "PM" }),
        "OF" => {
            let (sign, size) = (if offset < 0 { '-' } else { '+' }, offset.unsigned_abs());
            write!(out, "{sign}{:02}", size / 3600).ok();
            if !size.is_multiple_of(3600) {
                write!(out, ":{:02}", size % 3600 / 60).ok();
            }
        }
        "TZ" => {
            write!(out, "{}", at.format("%Z")).ok();
        }
        "MONTH" | "Month" | "month" | "MON" | "Mon" | "mon" => {
            out.push_str(&name(&at.format("%B").to_string(), pattern, bare));
        }
        _ => out.push_str(&name(&at.format("%A").to_string(), pattern, bare)),
    }
}

fn text(parts: &[Part], at: &DateTime<Tz>) -> String {
    let mut out = String::new();
    for part in parts {
        match part {
            Part::Text(text) => out.push_str(text),
            Part::Pattern(pattern, bare) => append(&mut out, pattern, *bare, at),
        }
    }
    out
}

/// `to_char(time, format)`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct ToChar {
    signature: Signature,
}

impl ToChar {
    pub(crate) fn function() -> ScalarUDF {
        ScalarUDF::from(Self { signature: Signature::user_defined(Volatility::Immutable) })
    }
}

impl ScalarUDFImpl for ToChar {
    fn name(&self) -> &'static str {
        "to_char"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let [time, _] = types else {
            return plan_err!(
                "the arguments of to_char are a time and a \
                                                       format"
            );
        };
        let zone = match time {
            DataType::Timestamp(_, zone) => zone.clone(),
            DataType::Date32 | DataType::Null => None,
            _ => return plan_err!("to_char formats a time, not a {time}; use CAST or round"),
        };
        Ok(vec![DataType::Timestamp(TimeUnit::Microsecond, zone), DataType::Utf8])
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [times, ColumnarValue::Scalar(format)] = args.args.as_slice() else {
            return exec_err!("the format of to_char must be one text, the same for every row");
        };
        let Some(format) = format.try_as_str().flatten() else {
            return Ok(ColumnarValue::Scalar(ScalarValue::Utf8View(None)));
        };
        if format.len() > FORMAT_MAX {
            return exec_err!("a format of to_char has at most {FORMAT_MAX} bytes");
        }
        let times = times.to_array(args.number_rows)?;
        Ok(ColumnarValue::Array(texts(&times, &parts(format))?))
    }
}

fn texts(times: &ArrayRef, parts: &[Part]) -> Result<ArrayRef> {
    let zone: Tz = match times.data_type() {
        DataType::Timestamp(_, Some(zone)) => zone.parse()?,
        _ => "+00:00".parse()?,
    };
    let times = times.as_primitive::<TimestampMicrosecondType>();
    let mut out = StringViewBuilder::with_capacity(times.len());
    for at in times {
        let at = at.and_then(DateTime::from_timestamp_micros);
        out.append_option(at.map(|at| text(parts, &zone.from_utc_datetime(&at.naive_utc()))));
    }
    Ok(Arc::new(out.finish()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected texts are PostgreSQL's.
    #[test]
    fn patterns() {
        let zone: Tz = "Europe/Paris".parse().unwrap();
        let at = DateTime::from_timestamp_micros(1_767_704_705_250_000).unwrap();
        let at = zone.from_utc_datetime(&at.naive_utc());
        for (format, want) in [
            ("YYYY-MM-DD HH24:MI:SS.MS", "2026-01-06 14:05:05.250"),
            ("FMMonth FMDD, YYYY \"at\" HH12:MI PM", "January 6, 2026 at 02:05 PM"),
            ("Dy DD Mon YY|DAY|month", "Tue 06 Jan 26|TUESDAY  |january  "),
            ("IYYY-IW-ID DDD Q D OF US", "2026-02-2 006 1 3 +01 250000"),
            ("é%", "é%"),
        ] {
            assert_eq!(text(&parts(format), &at), want, "{format}");
        }
    }
}
