//! The type of an unquoted scalar, by the rules of YAML 1.1 as PyYAML 6 applies them.
//!
//! Source: yaml.org/type (2005-01-18); PyYAML 6.0.2, `resolver.py`. PyYAML differs from the specification: a
//! float needs a point, its exponent needs a sign, and `y` and `n` are texts.

use super::value::Value;
use regex_lite::Regex;
use std::sync::LazyLock;

/// What an unquoted scalar means.
#[derive(Debug, PartialEq)]
pub(super) enum Plain {
    /// A value.
    Value(Value),
    /// `<<`, the merge key.
    Merge,
    /// `=`, a text as a key and an error elsewhere.
    Default,
}

/// Digits with a radix that cannot be converted.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BadNumber;

static FLOAT: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"^(?:[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$",
    )
    .ok()
});

static INT: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"^(?:[-+]?0b[01_]+|[-+]?0[0-7_]+|[-+]?(?:0|[1-9][0-9_]*)|[-+]?0x[0-9a-fA-F_]+|[-+]?[1-9][0-9_]*(?::[0-5]?[0-9])+)$",
    )
    .ok()
});

static TIME: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"^(?:[0-9]{4}-[0-9]{2}-[0-9]{2}|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt]|[ \t]+)[0-9]{1,2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]*)?(?:[ \t]*(?:Z|[-+][0-9]{1,2}(?::[0-9]{2})?))?)$",
    )
    .ok()
});

/// Resolves an unquoted scalar.
///
/// # Errors
///
/// [`BadNumber`] for digits that Python cannot convert (`0b_`), or an integer beyond 127 bits.
pub(super) fn resolve(text: &str) -> Result<Plain, BadNumber> {
    let value = match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "<<" => return Ok(Plain::Merge),
        "=" => return Ok(Plain::Default),
        _ => match boolean(text) {
            Some(value) => Value::Bool(value),
            // Most numbers need no pattern.
            None if is_decimal(text) => Value::Int(int(text).ok_or(BadNumber)?),
            None if is_match(&FLOAT, text) => Value::Float(float(text).ok_or(BadNumber)?),
            None if is_match(&INT, text) => Value::Int(int(text).ok_or(BadNumber)?),
            None if is_match(&TIME, text) => Value::Time(text.to_owned()),
            None => Value::Text(text.to_owned()),
        },
    };
    Ok(Plain::Value(value))
}

fn is_decimal(text: &str) -> bool {
    !text.starts_with('0') && text.bytes().all(|letter| letter.is_ascii_digit())
}

fn is_match(pattern: &Option<Regex>, text: &str) -> bool {
    // Digits, a sign or a point begin every number and date; most scalars are names.
    text.starts_with(|first: char| first.is_ascii_digit() || "+-.".contains(first))
        && pattern.as_ref().is_some_and(|pattern| pattern.is_match(text))
}

/// A boolean in one of its three spellings: `yes`, `Yes`, `YES`.
pub(super) fn boolean(text: &str) -> Option<bool> {
    let lower = text.to_ascii_lowercase();
    let value = match &*lower {
        "yes" | "true" | "on" => true,
        "no" | "false" | "off" => false,
        _ => return None,
    };
    let mut rest = text.chars().skip(1);
    let is_lower = text == lower;
    let is_capital = text.starts_with(|first: char| first.is_ascii_uppercase())
        && (rest.clone().all(|letter| letter.is_ascii_lowercase())
            || rest.all(|letter| letter.is_ascii_uppercase()));
    (is_lower || is_capital).then_some(value)
}

/// An integer in decimal, octal (`017`), binary, hexadecimal or base 60 (`1:30`).
pub(super) fn int(text: &str) -> Option<i128> {
    let digits = text.replace('_', "");
    let (is_negative, digits) = match digits.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, digits.strip_prefix('+').unwrap_or(&digits)),
    };
    let value = if digits == "0" {
        0
    } else if let Some(binary) = digits.strip_prefix("0b") {
        i128::from_str_radix(binary, 2).ok()?
    } else if let Some(hexadecimal) = digits.strip_prefix("0x") {
        i128::from_str_radix(hexadecimal, 16).ok()?
    } else if digits.starts_with('0') {
        i128::from_str_radix(digits, 8).ok()?
    } else {
        let mut parts = digits.split(':').map(|part| part.parse::<i128>().ok());
        parts.try_fold(0i128, |sum, part| sum.checked_mul(60)?.checked_add(part?))?
    };
    Some(if is_negative { -value } else { value })
}

/// A float, also in base 60 (`1:30.5`).
pub(super) fn float(text: &str) -> Option<f64> {
    let digits = text.replace('_', "").to_ascii_lowercase();
    let (sign, digits) = match digits.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, digits.strip_prefix('+').unwrap_or(&digits)),
    };
    let value = match digits {
        ".inf" => f64::INFINITY,
        ".nan" => f64::NAN,
        _ if digits.contains(':') => {
            let mut parts = digits.split(':').map(|part| part.parse::<f64>().ok());
            parts.try_fold(0.0, |sum: f64, part| Some(sum * 60.0 + part?))?
        }
        _ => digits.parse().ok()?,
    };
    Some(sign * value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Value {
        match resolve(text) {
            Ok(Plain::Value(value)) => value,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn scalars_have_the_types_of_yaml_1_1() {
        for (text, expected) in [
            ("yes", Value::Bool(true)),
            ("Off", Value::Bool(false)),
            ("NO", Value::Bool(false)),
            ("yEs", Value::Text("yEs".into())),
            ("y", Value::Text("y".into())),
            ("017", Value::Int(15)),
            ("0o17", Value::Text("0o17".into())),
            ("089", Value::Text("089".into())),
            ("0x_1F", Value::Int(31)),
            ("-0b11", Value::Int(-3)),
            ("1_000", Value::Int(1000)),
            ("1:30", Value::Int(90)),
            ("1:30.5", Value::Float(90.5)),
            ("1e3", Value::Text("1e3".into())),
            ("1.5e3", Value::Text("1.5e3".into())),
            ("1.5e+3", Value::Float(1500.0)),
            ("1.", Value::Float(1.0)),
            (".5", Value::Float(0.5)),
            ("-.5", Value::Text("-.5".into())),
            ("-.inf", Value::Float(f64::NEG_INFINITY)),
            ("2026-11-26", Value::Time("2026-11-26".into())),
            ("192.168.0.1", Value::Text("192.168.0.1".into())),
            ("1.3.6.1.2", Value::Text("1.3.6.1.2".into())),
            ("~", Value::Null),
        ] {
            assert_eq!(value(text), expected, "{text}");
        }
        assert_eq!(resolve("0b_"), Err(BadNumber));
        assert_eq!(resolve("<<"), Ok(Plain::Merge));
    }
}
