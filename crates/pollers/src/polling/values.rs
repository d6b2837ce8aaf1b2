//! Numbers and texts of devices (docs/decisions/0040-texts-as-values.md).

use super::reading::Failure;
use model::{Labels, Timestamp, printable};
use serde_json::Value;

/// The label with a text that is no number.
pub(crate) const TEXT_LABEL: &str = "value_str";
/// Characters of such a text.
const TEXT_MAX: usize = 256;

/// A number as Python's `float` parses it.
pub(crate) fn python_float(text: &str) -> Option<f64> {
    let text = text.trim();
    if !text.contains('_') {
        return text.parse().ok();
    }
    // An underscore stands between two digits.
    let letters: Vec<char> = text.chars().collect();
    let is_between = letters.windows(3).filter(|three| three.get(1) == Some(&'_')).all(|three| {
        three.first().is_some_and(char::is_ascii_digit)
            && three.last().is_some_and(char::is_ascii_digit)
    });
    let is_inside = !text.starts_with('_') && !text.ends_with('_');
    if is_between && is_inside { text.replace('_', "").parse().ok() } else { None }
}

/// A text as a value: a number, or NaN and the label with the text.
pub(super) fn of_text(text: &str, labels: &Labels) -> (f64, Labels) {
    if let Some(number) = python_float(text) {
        return (number, labels.clone());
    }
    let text: String = printable(text).chars().take(TEXT_MAX).collect();
    (f64::NAN, labels.with(TEXT_LABEL, &text).unwrap_or_else(|_| labels.clone()))
}

/// A JSON value as a value.
pub(super) fn of_json(value: &Value, labels: &Labels) -> Result<(f64, Labels), Failure> {
    match value {
        Value::Null => Err(Failure::broken("the device has no reading: the value is null")),
        Value::Bool(value) => Ok((f64::from(u8::from(*value)), labels.clone())),
        Value::Number(number) => match number.as_f64() {
            Some(number) => Ok((number, labels.clone())),
            None => Err(Failure::broken("the number has no double")),
        },
        Value::String(text) => Ok(of_text(text, labels)),
        Value::Array(_) | Value::Object(_) => {
            Err(Failure::broken("the JSONPath leads to a list or an object, not to a value"))
        }
    }
}

/// Seconds since 1970, to the microsecond.
#[expect(clippy::cast_possible_truncation, clippy::as_conversions, reason = "the range is checked")]
pub(crate) fn instant(seconds: f64) -> Option<Timestamp> {
    let micros = (seconds * 1e6).round();
    (0.0..9e18).contains(&micros).then_some(Timestamp(micros as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_python() {
        for (text, number) in [
            (" 42 ", Some(42.0)),
            ("1_000.5", Some(1000.5)),
            ("-Infinity", Some(f64::NEG_INFINITY)),
            ("1e3", Some(1000.0)),
            ("_1", None),
            ("1_", None),
            ("1__0", None),
            ("1_.5", None),
            ("42 W", None),
            ("", None),
            ("0x1", None),
        ] {
            assert_eq!(python_float(text), number, "{text}");
        }
        assert!(python_float("NaN").unwrap().is_nan());
    }

    #[test]
    fn other_texts_are_labels() {
        let labels = Labels::new([("fan", "1")]).unwrap();
        let (value, labels) = of_text("42\tW", &labels);
        assert!(value.is_nan());
        assert_eq!(labels.as_str(), r#"{"fan": "1", "value_str": "42 W"}"#);
        let (_, long) = of_text(&"x".repeat(5000), &labels);
        assert_eq!(long.get("value_str").unwrap().len(), TEXT_MAX);
    }
}
