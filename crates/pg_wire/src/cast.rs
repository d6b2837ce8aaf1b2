//! Types in a statement, and the values that casts make of literals.

use crate::oid;
use crate::parser::Parser;
use crate::scanner::{SyntaxError, Token};

/// Names of types in SQL beside those of the catalogue.
const ALIASES: &[(&str, u32)] = &[
    ("int", oid::INT4),
    ("float", oid::FLOAT8),
    ("decimal", oid::NUMERIC),
    ("dec", oid::NUMERIC),
    ("char", oid::BPCHAR),
    ("string", oid::TEXT),
];
/// Most digits of a number that is rounded. `1e400` has a few characters, and 401 digits.
const DIGITS_MAX: usize = 64;
/// Types of whole numbers, with their SQL names and ranges.
const INTEGERS: [(u32, &str, i64, i64); 3] = [
    (oid::INT2, "smallint", -0x8000, 0x7fff),
    (oid::INT4, "integer", -0x8000_0000, 0x7fff_ffff),
    (oid::INT8, "bigint", i64::MIN, i64::MAX),
];

/// A type, with the numbers in its brackets, as in `numeric(10, 2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Its ID.
    pub oid: u32,
    size: Option<u16>,
    scale: Option<u16>,
}

/// Takes the name of a type, up to another sign.
pub(crate) fn type_name(parser: &mut Parser<'_>) -> Result<Kind, SyntaxError> {
    let at = parser.at();
    let (mut words, mut is_array, mut sizes) = (Vec::new(), false, Vec::new());
    loop {
        match parser.peek().cloned() {
            Some(Token::Word(word) | Token::Quoted(word)) => {
                parser.take()?;
                words.push(word);
            }
            Some(Token::Sign('[')) => {
                parser.take()?;
                parser.expect_sign(']')?;
                is_array = true;
            }
            Some(Token::Sign('(')) => {
                parser.take()?;
                sizes = parser.items(size)?;
            }
            Some(Token::Sign('.')) => {
                parser.take()?;
                words.clear();
            }
            _ => break,
        }
    }
    let name = words.join(" ");
    let array = |element: u32| oid::TYPES.iter().find(|one| one.5 == element).map(|one| one.0);
    let found = known(&name);
    let found = if is_array { found.and_then(array) } else { found };
    let (size, scale) = (sizes.first().copied(), sizes.get(1).copied());
    match found {
        // `float(24)` has the bits of `real`.
        Some(oid::FLOAT8) if size.is_some_and(|bits| bits <= 24) => {
            Ok(Kind { oid: oid::FLOAT4, size: None, scale: None })
        }
        Some(oid) => Ok(Kind { oid, size, scale }),
        None => {
            let list = if is_array { "[]" } else { "" };
            let what = format!("type \"{name}{list}\" does not exist");
            Err(SyntaxError { code: "42704", ..SyntaxError::new(at, what) })
        }
    }
}

fn size(parser: &mut Parser<'_>) -> Result<u16, SyntaxError> {
    let wrong = parser.wrong("a number");
    match parser.take()? {
        Some(Token::Number(number)) => number.parse().map_err(|_| wrong),
        _ => Err(wrong),
    }
}

fn known(name: &str) -> Option<u32> {
    let known = oid::TYPES.iter().find(|one| one.1 == name || one.2 == name).map(|one| one.0);
    known.or_else(|| ALIASES.iter().find(|one| one.0 == name).map(|one| one.1))
}

/// Whether the name of a type begins with this word.
pub(crate) fn begins_type(word: &str) -> bool {
    known(word).is_some() || matches!(word, "double" | "character")
}

/// Whether these are numbers.
pub(crate) const fn is_number(oid: u32) -> bool {
    is_exact(oid) || is_float(oid)
}

const fn is_exact(oid: u32) -> bool {
    matches!(oid, oid::INT2 | oid::INT4 | oid::INT8 | oid::NUMERIC)
}

const fn is_float(oid: u32) -> bool {
    matches!(oid, oid::FLOAT4 | oid::FLOAT8)
}

const fn is_text(oid: u32) -> bool {
    matches!(oid, oid::TEXT | oid::VARCHAR | oid::BPCHAR | oid::UNKNOWN)
}

/// The SQL name of a type.
fn name(oid: u32) -> &'static str {
    oid::TYPES.iter().find(|one| one.0 == oid).map_or("unknown", |one| one.2)
}

/// An error of a value; the caller knows its place.
fn error<T>(code: &'static str, what: String) -> Result<T, SyntaxError> {
    Err(SyntaxError { code, ..SyntaxError::new(0, what) })
}

fn invalid<T>(text: &str, oid: u32) -> Result<T, SyntaxError> {
    let shown: String = text.chars().take(64).collect();
    error("22P02", format!("invalid input syntax for type {}: \"{shown}\"", name(oid)))
}

fn out_of_range<T>(oid: u32) -> Result<T, SyntaxError> {
    error("22003", format!("{} out of range", name(oid)))
}

fn unsupported<T>(from: u32, to: u32) -> Result<T, SyntaxError> {
    let what = format!("a cast of a value from {} to {} is not supported", name(from), name(to));
    error("0A000", what)
}

/// The text of a value of one type as one of another.
///
/// # Errors
/// The value is none of the other type, or this cast is not supported. The place of the error is 0.
pub(crate) fn cast(text: &str, from: u32, to: Kind) -> Result<String, SyntaxError> {
    match to.oid {
        oid::TEXT | oid::VARCHAR | oid::BPCHAR if is_text(from) || is_exact(from) => {
            let exact =
                if is_exact(from) { Exact::of(text).map(|exact| exact.text()) } else { None };
            Ok(shortened(exact.as_deref().unwrap_or(text), to))
        }
        oid::TEXT | oid::VARCHAR | oid::BPCHAR if from == oid::BOOL => {
            let is_true = text.trim().starts_with(['t', 'T', 'y', 'Y', '1'])
                || text.trim().eq_ignore_ascii_case("on");
            Ok(shortened(if is_true { "true" } else { "false" }, to))
        }
        oid::INT2 | oid::INT4 | oid::INT8 if is_text(from) || is_number(from) => {
            integer(text, from, to.oid)
        }
        oid::FLOAT4 | oid::FLOAT8 if is_text(from) || is_number(from) => float(text, to.oid),
        oid::NUMERIC if is_text(from) || is_exact(from) => numeric(text, to),
        oid::JSON | oid::JSONB if is_text(from) || matches!(from, oid::JSON | oid::JSONB) => {
            Ok(text.to_owned())
        }
        oid::TIMESTAMPTZ if to.size.is_none() && (is_text(from) || from == to.oid) => {
            Ok(text.to_owned())
        }
        // Without its zone or its time, a time is another one.
        oid::TIMESTAMP if to.size.is_none() && is_text(from) && !has_zone(text) => {
            Ok(text.to_owned())
        }
        oid::DATE if is_text(from) && is_date(text) => Ok(text.to_owned()),
        oid::TIMESTAMP | oid::TIMESTAMPTZ | oid::DATE => unsupported(from, to.oid),
        _ if from == to.oid || from == oid::UNKNOWN => Ok(text.to_owned()),
        _ => unsupported(from, to.oid),
    }
}

/// The text of a literal as that of a value of its column.
///
/// # Errors
/// It is out of the column's range, or of a type without a text. The place of the error is 0.
pub(crate) fn stored(text: String, from: u32, column: u32) -> Result<String, SyntaxError> {
    match column {
        oid::TEXT if from != oid::UNKNOWN => {
            cast(&text, from, Kind { oid: column, size: None, scale: None })
        }
        // Other errors are those of the row.
        oid::FLOAT8 => match float(&text, column) {
            Err(error) if error.code == "22003" => Err(error),
            _ => Ok(text),
        },
        _ => Ok(text),
    }
}

impl Kind {
    /// Whether it is `timestamptz` without further numbers.
    pub(crate) fn is_instant(self) -> bool {
        self == Self { oid: oid::TIMESTAMPTZ, size: None, scale: None }
    }
}

/// The first characters of a text, as many as its type has.
fn shortened(text: &str, to: Kind) -> String {
    let size = to.size.or((to.oid == oid::BPCHAR).then_some(1));
    let short: String = text.chars().take(size.map_or(usize::MAX, usize::from)).collect();
    if to.oid == oid::BPCHAR { short.trim_end_matches(' ').to_owned() } else { short }
}

fn integer(text: &str, from: u32, to: u32) -> Result<String, SyntaxError> {
    let trimmed = text.trim();
    let whole = if is_float(from) {
        let value: f64 = trimmed.parse().or_else(|_| invalid(text, from))?;
        Exact::of(&format!("{:e}", value.round_ties_even())).map(|exact| exact.text())
    } else if is_exact(from) {
        Exact::of(trimmed).and_then(|exact| exact.rounded(0)).map(|exact| exact.text())
    } else {
        let digits = trimmed.strip_prefix(['+', '-']).unwrap_or(trimmed);
        if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
            return invalid(text, to);
        }
        Some(trimmed.to_owned())
    };
    let range = INTEGERS.iter().find(|one| one.0 == to).map_or(0..=0, |one| one.2..=one.3);
    let value: Option<i64> = whole.and_then(|whole| whole.parse().ok());
    match value.filter(|value| range.contains(value)) {
        Some(value) => Ok(value.to_string()),
        None => out_of_range(to),
    }
}

fn float(text: &str, to: u32) -> Result<String, SyntaxError> {
    let trimmed = text.trim();
    let value: f64 = match to {
        oid::FLOAT4 => trimmed.parse::<f32>().map(f64::from),
        _ => trimmed.parse(),
    }
    .or_else(|_| invalid(text, to))?;
    let mantissa = trimmed.split(['e', 'E']).next().unwrap_or_default();
    let has_digits = mantissa.contains(|c: char| c.is_ascii_digit());
    let is_zero = !mantissa.contains(|c: char| matches!(c, '1'..='9'));
    if has_digits && (value.is_infinite() || (value == 0.0 && !is_zero)) {
        return out_of_range(to);
    }
    Ok(match value {
        value if value.is_nan() => "NaN".to_owned(),
        value if value.is_infinite() => {
            if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned()
        }
        value => format!("{value:e}"),
    })
}

fn numeric(text: &str, to: Kind) -> Result<String, SyntaxError> {
    let trimmed = text.trim();
    let Some(exact) = Exact::of(trimmed) else {
        let text = float(trimmed, oid::FLOAT8).or_else(|_| invalid(text, to.oid))?;
        let has_digits = trimmed.contains(|c: char| c.is_ascii_digit());
        return match to.size {
            Some(_) if has_digits => error("22003", "numeric field overflow".to_owned()),
            _ if has_digits => Ok(trimmed.to_owned()),
            _ => Ok(text),
        };
    };
    let Some(size) = to.size else { return Ok(exact.text()) };
    let scale = usize::from(to.scale.unwrap_or(0));
    let rounded = exact.rounded(scale).filter(|one| one.digits.len() <= usize::from(size));
    match rounded {
        Some(rounded) => Ok(rounded.text()),
        None => error("22003", "numeric field overflow".to_owned()),
    }
}

fn is_date(text: &str) -> bool {
    let shape = text.bytes().map(|b| if b.is_ascii_digit() { b'0' } else { b });
    shape.eq(*b"0000-00-00")
}

fn has_zone(text: &str) -> bool {
    let time = text.get(10..).unwrap_or_default();
    text.get(..10).is_none_or(|day| !is_date(day))
        || time.contains(|c: char| c != 'T' && (c.is_alphabetic() || matches!(c, '+' | '-' | '/')))
}

/// An exact decimal number.
#[derive(Debug)]
struct Exact {
    is_negative: bool,
    /// Its digits without leading zeros.
    digits: String,
    /// How many of them follow the point.
    scale: usize,
}

impl Exact {
    /// Reads a number such as `-1.5e3`; `None`: it is none, or has too many digits.
    fn of(text: &str) -> Option<Self> {
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
            None => (unsigned, 0),
        };
        let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let mut digits = format!("{whole}{part}");
        if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
            return None;
        }
        let scale = i32::try_from(part.len()).ok()?.checked_sub(exponent)?;
        if scale < 0 {
            let zeros = usize::try_from(scale.unsigned_abs()).ok()?;
            (zeros <= DIGITS_MAX).then(|| digits.push_str(&"0".repeat(zeros)))?;
        }
        let scale = usize::try_from(scale.max(0)).ok().filter(|scale| *scale <= DIGITS_MAX)?;
        let digits = digits.trim_start_matches('0').to_owned();
        let is_negative = text.starts_with('-') && !digits.is_empty();
        (digits.len() <= DIGITS_MAX).then_some(Self { is_negative, digits, scale })
    }

    /// The number with so many digits after its point, half away from zero; `None`: it has too many digits.
    fn rounded(mut self, scale: usize) -> Option<Self> {
        if scale >= self.scale {
            let zeros = if self.digits.is_empty() { 0 } else { scale - self.scale };
            self.digits.push_str(&"0".repeat(zeros));
        } else {
            let kept = self.digits.len().checked_sub(self.scale - scale);
            let rest = kept.map_or("", |kept| self.digits.get(kept..).unwrap_or_default());
            let is_up = rest.bytes().next().is_some_and(|digit| digit >= b'5');
            self.digits.truncate(kept.unwrap_or(0));
            if is_up {
                increase(&mut self.digits);
            }
        }
        self.scale = scale;
        self.is_negative &= !self.digits.is_empty();
        (self.digits.len() <= DIGITS_MAX).then_some(self)
    }

    fn text(&self) -> String {
        let sign = if self.is_negative { "-" } else { "" };
        let digits = format!("{:0>least$}", self.digits, least = self.scale + 1);
        let (whole, part) = digits.split_at(digits.len() - self.scale);
        if part.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{part}") }
    }
}

/// Adds one to a number of digits.
fn increase(digits: &mut String) {
    let nines = digits.bytes().rev().take_while(|digit| *digit == b'9').count();
    digits.truncate(digits.len() - nines);
    let next = digits.pop().and_then(|digit| digit.to_digit(10)).unwrap_or(0) + 1;
    digits.push_str(&format!("{next}{}", "0".repeat(nines)));
}

/// Whether a value of this type may be stored in a column.
///
/// # Errors
/// PostgreSQL stores it nowhere, or as a text that this server does not make. The place of the error is 0.
pub(crate) fn assign(from: u32, (column, to): (&str, u32)) -> Result<(), SyntaxError> {
    let fits = match to {
        _ if from == oid::UNKNOWN => true,
        oid::FLOAT8 => is_number(from),
        oid::TIMESTAMPTZ => matches!(from, oid::TIMESTAMPTZ | oid::TIMESTAMP | oid::DATE),
        oid::JSONB => matches!(from, oid::JSON | oid::JSONB),
        _ if is_text(from) || is_exact(from) || matches!(from, oid::BOOL | oid::DATE) => true,
        _ => return unsupported(from, to),
    };
    if fits {
        return Ok(());
    }
    let (to, from) = (name(to), name(from));
    error("42804", format!("column \"{column}\" is of type {to} but expression is of type {from}"))
}

/// The number with the other sign.
pub(crate) fn negated(text: &str, oid: u32) -> Result<String, SyntaxError> {
    let is_zero = !is_float(oid) && text.parse() == Ok(0.0_f64);
    let other = match text.strip_prefix('-') {
        Some(rest) => rest.to_owned(),
        None if is_zero || text == "NaN" => text.to_owned(),
        None => format!("-{text}"),
    };
    if INTEGERS.iter().any(|one| one.0 == oid) { integer(&other, oid, oid) } else { Ok(other) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(text: &str, from: u32, to: &str) -> Result<String, &'static str> {
        let kind = type_name(&mut Parser::new(to).unwrap()).unwrap();
        cast(text, from, kind).map_err(|error| error.code)
    }

    #[test]
    fn casts_are_those_of_postgresql() {
        let (number, unknown) = (oid::NUMERIC, oid::UNKNOWN);
        for (text, from, to, want) in [
            ("2.7", number, "integer", Ok("3")),
            ("2.5", number, "int", Ok("3")),
            ("-2.5", number, "int4", Ok("-3")),
            ("2.5", oid::FLOAT8, "int", Ok("2")),
            ("9.5", number, "int", Ok("10")),
            ("0.4", number, "int", Ok("0")),
            ("0.5", number, "int", Ok("1")),
            ("0.05", number, "int", Ok("0")),
            ("3e9", number, "bigint", Ok("3000000000")),
            ("3e9", number, "int", Err("22003")),
            ("40000", number, "smallint", Err("22003")),
            (" 7 ", unknown, "int", Ok("7")),
            ("2.5", unknown, "int", Err("22P02")),
            ("1e3", unknown, "int", Err("22P02")),
            ("NaN", unknown, "int", Err("22P02")),
            ("16777217", number, "real", Ok("1.6777216e7")),
            ("16777217", number, "float(24)", Ok("1.6777216e7")),
            ("16777217", number, "float(25)", Ok("1.6777217e7")),
            ("1e39", number, "real", Err("22003")),
            ("1e-50", number, "real", Err("22003")),
            ("1e400", number, "float8", Err("22003")),
            ("0e5", number, "double precision", Ok("0e0")),
            ("-inf", unknown, "float8", Ok("-Infinity")),
            ("1.55", number, "numeric(3,1)", Ok("1.6")),
            ("-1.25", number, "numeric(3,1)", Ok("-1.3")),
            ("99.95", number, "numeric(3,1)", Err("22003")),
            ("0.04", number, "decimal(1,1)", Ok("0.0")),
            ("123", number, "numeric(2,0)", Err("22003")),
            ("0", number, "numeric(1,1)", Ok("0.0")),
            ("much", unknown, "numeric", Err("22P02")),
            ("NaN", unknown, "numeric", Ok("NaN")),
            ("1e99", number, "numeric", Ok("1e99")),
            ("1e99", number, "numeric(5)", Err("22003")),
            ("1e99", number, "bigint", Err("22003")),
            ("1e3", number, "text", Ok("1000")),
            ("007", number, "text", Ok("7")),
            ("ab", unknown, "varchar(1)", Ok("a")),
            ("ab", unknown, "char", Ok("a")),
            ("a ", unknown, "char(3)", Ok("a")),
            ("1", oid::FLOAT8, "text", Err("0A000")),
            ("1", number, "bool", Err("0A000")),
            ("2026-01-06", unknown, "date", Ok("2026-01-06")),
            ("2026-01-06 10:00+02", unknown, "date", Err("0A000")),
            ("2026-01-06 10:00:00.5", unknown, "timestamp", Ok("2026-01-06 10:00:00.5")),
            ("2026-01-06 10:00+02", unknown, "timestamp", Err("0A000")),
            ("2026-01-06 10:00+02", unknown, "timestamptz", Ok("2026-01-06 10:00+02")),
            ("2026-01-06", unknown, "timestamp(3) with time zone", Err("0A000")),
        ] {
            assert_eq!(of(text, from, to), want.map(str::to_owned), "{text}::{to}");
        }
        assert_eq!(negated("-32768", oid::INT2).unwrap_err().code, "22003");
        assert_eq!(negated("0", oid::INT4).as_deref(), Ok("0"));
        assert_eq!(negated("1e300", number).as_deref(), Ok("-1e300"));
    }

    proptest! {
        #[test]
        fn any_text_has_a_result(text: String, number in "[-+]?[0-9]{0,4}[.]?[0-9]{0,4}(e[-+]?[0-9]{1,3})?", scale in 0_u16..9) {
            for (oid, ..) in oid::TYPES {
                for text in [&text, &number] {
                    for from in [oid::UNKNOWN, oid::NUMERIC, oid::FLOAT8] {
                        let kind = Kind { oid: *oid, size: Some(scale + 1), scale: Some(scale) };
                        cast(text, from, kind).ok();
                        negated(text, *oid).ok();
                    }
                }
            }
        }
    }
}
