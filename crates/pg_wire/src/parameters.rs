//! Values of a statement's parameters and of binary COPY, as texts.

use crate::frontend::Reader;
use crate::oid;
use std::fmt::Write;

/// Microseconds from 1970 to 2000, where PostgreSQL's times begin.
const EPOCH_US: i64 = 946_684_800_000_000;
const DAY_US: i64 = 86_400_000_000;

/// A value that is none of its type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadValue(pub String);

fn bad<T>(what: impl Into<String>) -> Result<T, BadValue> {
    Err(BadValue(what.into()))
}

/// The text of a value.
///
/// # Errors
/// The bytes are no value of this type, or its binary form is not supported.
pub fn text(oid: u32, binary: bool, bytes: &[u8]) -> Result<String, BadValue> {
    if !binary {
        return utf8(bytes);
    }
    match oid {
        oid::BOOL => Ok(if array::<1>(bytes)? == [0] { "false" } else { "true" }.to_owned()),
        oid::INT2 => Ok(i16::from_be_bytes(array(bytes)?).to_string()),
        oid::INT4 => Ok(i32::from_be_bytes(array(bytes)?).to_string()),
        oid::INT8 => Ok(i64::from_be_bytes(array(bytes)?).to_string()),
        oid::OID => Ok(u32::from_be_bytes(array(bytes)?).to_string()),
        oid::FLOAT4 => Ok(float(f32::from_be_bytes(array(bytes)?).into())),
        oid::FLOAT8 => Ok(float(f64::from_be_bytes(array(bytes)?))),
        oid::TIMESTAMPTZ => instant(i64::from_be_bytes(array(bytes)?)).map(|text| text + "+00:00"),
        oid::TIMESTAMP => instant(i64::from_be_bytes(array(bytes)?)),
        oid::DATE => {
            let days = i64::from(i32::from_be_bytes(array(bytes)?));
            let text = instant(days.saturating_mul(DAY_US))?;
            Ok(text.split(' ').next().unwrap_or_default().to_owned())
        }
        oid::JSONB => match bytes.split_first() {
            Some((1, text)) => utf8(text),
            _ => bad("a binary jsonb has the version 1"),
        },
        0 | oid::TEXT | oid::VARCHAR | oid::BPCHAR | oid::NAME | oid::UNKNOWN | oid::JSON => {
            utf8(bytes)
        }
        _ if oid::element(oid).is_some() => array_text(bytes),
        _ => bad(format!("the binary form of the type {oid} is not supported; send text")),
    }
}

fn utf8(bytes: &[u8]) -> Result<String, BadValue> {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => Ok(text.to_owned()),
        _ => bad("a text is not UTF-8, or contains a NUL"),
    }
}

fn array<const N: usize>(bytes: &[u8]) -> Result<[u8; N], BadValue> {
    bytes.try_into().map_err(|_| BadValue(format!("a value of {N} bytes has {}", bytes.len())))
}

fn float(value: f64) -> String {
    match value {
        value if value.is_nan() => "NaN".to_owned(),
        f64::INFINITY => "Infinity".to_owned(),
        f64::NEG_INFINITY => "-Infinity".to_owned(),
        value => format!("{value:e}"),
    }
}

/// The text of a time in microseconds since 2000.
fn instant(micros: i64) -> Result<String, BadValue> {
    let at = micros.checked_add(EPOCH_US).and_then(|at| jiff::Timestamp::from_microsecond(at).ok());
    let Some(at) = at else { return bad("the time is out of range") };
    Ok(at.to_zoned(jiff::tz::TimeZone::UTC).strftime("%Y-%m-%d %H:%M:%S%.f").to_string())
}

/// The text of a binary array of one dimension: `{"a","b",NULL}`.
fn array_text(bytes: &[u8]) -> Result<String, BadValue> {
    let short = |error: crate::frontend::Malformed| BadValue(error.0);
    let mut take = Reader(bytes);
    let (dimensions, _, element) =
        (take.u32().map_err(short)?, take.u32().map_err(short)?, take.u32().map_err(short)?);
    let mut text = "{".to_owned();
    if dimensions > 1 || oid::element(element).is_some() {
        return bad("only arrays of one dimension are supported");
    }
    let count = if dimensions == 0 { 0 } else { take.u32().map_err(short)? };
    if dimensions == 1 {
        take.u32().map_err(short)?;
    }
    for place in 0..count {
        text.push_str(if place == 0 { "" } else { "," });
        match take.value().map_err(short)? {
            None => text.push_str("NULL"),
            Some(value) => {
                let value = self::text(element, true, &value)?;
                // Writing to a string cannot fail.
                write!(text, "\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"")).ok();
            }
        }
    }
    text.push('}');
    Ok(text)
}

/// The elements of the text of an array of one dimension.
///
/// # Errors
/// The text is no such array.
pub fn elements(text: &str) -> Result<Vec<Option<String>>, BadValue> {
    let inner = text.trim().strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    let Some(inner) = inner else { return bad("an array is written {a,b}") };
    let mut elements = Vec::new();
    let mut characters = inner.chars().peekable();
    while characters.peek().is_some() {
        let (mut element, mut quoted, mut inside) = (String::new(), false, false);
        loop {
            match characters.next() {
                Some('\\') => element.extend(characters.next()),
                Some('"') => (quoted, inside) = (true, !inside),
                Some('{' | '}') if !inside => {
                    return bad("only arrays of one dimension are supported");
                }
                Some(',') if !inside => break,
                Some(c) if !inside && !quoted && element.is_empty() && c.is_whitespace() => {}
                Some(c) => element.push(c),
                None if inside => return bad("a quote of the array has no end"),
                None => break,
            }
        }
        let is_null = !quoted && element.trim().eq_ignore_ascii_case("null");
        let element = if quoted { element } else { element.trim().to_owned() };
        elements.push((!is_null).then_some(element));
    }
    Ok(elements)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn binary_values() {
        let time = 757_382_400_000_000_i64.to_be_bytes();
        for (oid, bytes, want) in [
            (oid::INT4, &7_i32.to_be_bytes()[..], "7"),
            (oid::BOOL, &[1], "true"),
            (oid::FLOAT8, &98.5_f64.to_be_bytes(), "9.85e1"),
            (oid::FLOAT8, &f64::NAN.to_be_bytes(), "NaN"),
            (oid::TIMESTAMPTZ, &time, "2024-01-01 00:00:00+00:00"),
            (oid::TIMESTAMP, &time, "2024-01-01 00:00:00"),
            (oid::DATE, &8766_i32.to_be_bytes(), "2024-01-01"),
            (oid::JSONB, b"\x01{}", "{}"),
        ] {
            assert_eq!(text(oid, true, bytes).as_deref(), Ok(want), "{oid}");
        }
        let array = [
            &1_u32.to_be_bytes()[..],
            &[0; 4],
            &oid::TEXT.to_be_bytes(),
            &2_u32.to_be_bytes(),
            &1_u32.to_be_bytes(),
            b"\0\0\0\x03a\"b\xff\xff\xff\xff",
        ]
        .concat();
        let shown = text(oid::TEXT_ARRAY, true, &array).unwrap();
        assert_eq!(shown, r#"{"a\"b",NULL}"#);
        assert_eq!(elements(&shown).unwrap(), [Some("a\"b".to_owned()), None]);
        assert_eq!(elements("{n1, \"n 2\"}").unwrap(), ["n1", "n 2"].map(|t| Some(t.to_owned())));
        assert!(elements("{{1}}").is_err() && elements("1").is_err() && elements("{\"a}").is_err());
        assert!(text(oid::INT4, true, b"x").is_err() && text(oid::TEXT, false, b"\0").is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_result(oid in proptest::sample::select(oid::TYPES), bytes: Vec<u8>, value: String) {
            text(oid.0, true, &bytes).ok();
            elements(&value).ok();
        }
    }
}
