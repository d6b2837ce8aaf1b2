//! PostgreSQL's codes for errors about values, by the texts of [`crate::common::error_texts`] and of the engine.

/// A part of a text, and the code; the first that occurs counts.
const CODES: [(&str, &str); 26] = [
    ("division by zero", "22012"),
    ("malformed array", "22P02"),
    ("invalid input syntax", "22P02"),
    ("' is no time", "22007"),
    ("' is no interval", "22007"),
    ("' is no whole number", "22P02"),
    ("' is no number", "22P02"),
    ("` is no integer", "22P02"),
    ("` is no number", "22P02"),
    ("` is no boolean", "22P02"),
    ("Cannot cast value", "22P02"),
    ("Cannot parse", "22P02"),
    ("Month value", "22008"),
    ("Day value", "22008"),
    ("Can't cast value", "22003"),
    ("too large to store in a Decimal", "22003"),
    ("verflow", "22003"),
    ("out of range", "22003"),
    ("square root of a negative", "2201F"),
    ("negative power", "2201F"),
    ("null character", "54000"),
    ("character too large", "54000"),
    ("character number", "22023"),
    ("Failed to decode", "22023"),
    ("Unsupported date", "22023"),
    ("not supported", "22023"),
];

/// The code of an error about a value.
pub(crate) fn value_code(text: &str) -> &'static str {
    let found = CODES.iter().find(|(part, _)| text.contains(part));
    found.map_or("22000", |(_, code)| code)
}
