//! The text that Colmet's collector prints of a record, for people: values are rounded.

use crate::backends::Shown;
use crate::record::{Record, Value};
use model::Timestamp;
use std::fmt::Write as _;

/// Appends the text of a record, with a line feed at its end. `offset` returns the seconds that local time is ahead of UTC
/// at an instant.
pub fn write(record: &Record, offset: &dyn Fn(Timestamp) -> i32, text: &mut String) {
    let columns = record.backend.columns;
    let width = columns.iter().map(|column| column.row.theirs.len()).max().unwrap_or_default();
    let mut lines: Vec<_> = record.columns().collect();
    // Stable, as Colmet's: columns with the same key remain in the order of the wire.
    lines.sort_by_key(|(column, _)| column.line);
    let seconds = record.at.0.div_euclid(Timestamp::SECOND);
    let Record { backend, host, job, .. } = record;
    // Writing into a `String` cannot fail.
    write!(text, "{seconds}  Job({job})/ {} -> Host({host}) -> {{", backend.id).ok();
    for (column, value) in lines {
        let missing = Value::missing(column.kind);
        let value = value.unwrap_or(&missing);
        write!(text, "\n\t{:>width$} : ", column.row.theirs).ok();
        shown(column.shown, value, offset, text);
    }
    text.push_str("\n}\n");
}

fn shown(shown: Shown, value: &Value, offset: &dyn Fn(Timestamp) -> i32, text: &mut String) {
    let number = value.number().unwrap_or_default();
    match shown {
        Shown::Count => steps(number, 1000.0, 10_000.0, &["", "K", "M", "G", "T"], "count", text),
        Shown::Bytes => steps(number, 1024.0, 10_000.0, &["", "K", "M", "G", "T"], "bytes", text),
        Shown::Kibibytes => steps(number, 1024.0, 10_000.0, &["K", "M", "G", "T"], "bytes", text),
        Shown::Microseconds => steps(number, 1000.0, 1000.0, &["u", "m", ""], "seconds", text),
        Shown::Nanoseconds => steps(number, 1000.0, 1000.0, &["n", "u", "m", ""], "seconds", text),
        Shown::MebibyteMicroseconds => {
            // Colmet's order of operations, which decides about the last digit.
            let byte_seconds = number * 1024.0 * 1024.0 / 1000.0 / 1000.0;
            steps(
                byte_seconds,
                1024.0,
                10_000.0,
                &[" ", "K", "M", "G", "T"],
                "bytes*seconds",
                text,
            );
        }
        Shown::Seconds => plain(value, " (seconds)", text),
        Shown::Celsius => plain(value, " (celsius)", text),
        Shown::Date => date(value, offset, text),
        Shown::Plain => plain(value, "", text),
    }
}

/// Divides by `factor` while the value exceeds `limit` and there is a next prefix.
fn steps(
    mut number: f64,
    factor: f64,
    limit: f64,
    prefixes: &[&str],
    unit: &str,
    text: &mut String,
) {
    let mut prefix = prefixes.first().unwrap_or(&"");
    for next in prefixes.iter().skip(1) {
        if number <= limit {
            break;
        }
        (number, prefix) = (number / factor, next);
    }
    write!(text, "{number:.0}{prefix} ({unit})").ok();
}

/// As Python's `str` does.
fn plain(value: &Value, unit: &str, text: &mut String) {
    match value {
        Value::Unsigned(number) => write!(text, "{number}{unit}").ok(),
        Value::Signed(number) => write!(text, "{number}{unit}").ok(),
        Value::Float(number) => write!(text, "{}{unit}", python_float(f64::from(*number))).ok(),
        Value::Text(value) => write!(text, "{value}{unit}").ok(),
    };
}

/// Python's `repr` of a float: as Rust's, but for infinities, NaN, and exponents, which have a sign and two digits.
pub fn python_float(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    let text = format!("{number:?}");
    match text.split_once('e') {
        Some((digits, exponent)) => {
            let (sign, exponent) =
                exponent.strip_prefix('-').map_or(('+', exponent), |it| ('-', it));
            format!("{}e{sign}{exponent:0>2}", digits.strip_suffix(".0").unwrap_or(digits))
        }
        None => text,
    }
}

/// `20/11/2026 - 21:50:03`.
fn date(value: &Value, offset: &dyn Fn(Timestamp) -> i32, text: &mut String) {
    let seconds = match value {
        Value::Unsigned(seconds) => i64::try_from(*seconds).unwrap_or_default(),
        Value::Signed(_) | Value::Float(_) | Value::Text(_) => 0,
    };
    let at = Timestamp::from_seconds(seconds);
    let local = at.plus(i64::from(offset(at)) * Timestamp::SECOND).to_string();
    let (day, time) = local.split_once('T').unwrap_or_default();
    let time = time.split('+').next().unwrap_or_default();
    let mut parts: Vec<&str> = day.split('-').collect();
    parts.reverse();
    write!(text, "{} - {time}", parts.join("/")).ok();
}
