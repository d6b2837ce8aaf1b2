//! Errors of JSON in a request or in a file, in words that name the key, the expected value and the given one.

use serde_json::error::Category;

/// Longest part of a message that repeats the text.
const SHOWN_MAX: usize = 200;

/// Describes why a text is not JSON, or not JSON of its type.
pub(crate) fn describe(text: &[u8], error: &serde_json::Error) -> String {
    let place = format!(" at line {} column {}", error.line(), error.column());
    let whole = error.to_string();
    let what = whole.strip_suffix(&*place).unwrap_or(&whole);
    match error.classify() {
        Category::Data => in_words(text, error, what),
        Category::Eof => format!("the JSON is incomplete: it ends{place}"),
        Category::Syntax | Category::Io => format!("not valid JSON{place}: {what}"),
    }
}

/// Rewrites serde's `invalid type: string "x", expected i64`.
fn in_words(text: &[u8], error: &serde_json::Error, what: &str) -> String {
    let kinds = ["invalid type: ", "invalid value: ", "invalid length "];
    let given = kinds.iter().find_map(|kind| what.strip_prefix(kind));
    let variant = what.strip_prefix("unknown variant ");
    let parts = given.or(variant).and_then(|given| given.rsplit_once(", expected "));
    let Some((given, expected)) = parts else { return what.to_owned() };
    let key = key_before(text, error).map_or_else(String::new, |key| format!("`{key}`: "));
    let given: String = given_words(given).chars().take(SHOWN_MAX).collect();
    format!("{key}expected {}, found {given}", expected_words(expected))
}

/// The last key before the place of an error.
fn key_before(text: &[u8], error: &serde_json::Error) -> Option<String> {
    let lines = text.split_inclusive(|byte| *byte == b'\n');
    let before: usize = lines.take(error.line().checked_sub(1)?).map(<[u8]>::len).sum();
    let text = text.get(..before + error.column().saturating_sub(1))?;
    let colon = text.windows(2).rposition(|pair| pair == b"\":")?;
    let name = text.get(..colon)?;
    let start = name.iter().rposition(|byte| *byte == b'"')? + 1;
    let name = std::str::from_utf8(name.get(start..)?).ok()?;
    Some(model::printable(name).chars().take(SHOWN_MAX).collect())
}

/// What a type of serde accepts, with an example.
fn expected_words(expected: &str) -> String {
    let words = match expected {
        "i8" | "i16" | "i32" | "i64" | "i128" | "isize" => "a whole number such as 7",
        "u8" | "u16" | "u32" | "u64" | "u128" | "usize" => "a whole number of 0 or more, such as 7",
        "f32" | "f64" => "a number such as 1.5",
        "a string" | "string" | "str" => "a text such as \"n1\"",
        "a boolean" => "true or false",
        "a sequence" => "a list such as [\"a\", \"b\"]",
        "a map" => "an object such as {\"key\": 1}",
        other if other.starts_with("struct ") => "an object such as {\"key\": 1}",
        other => other,
    };
    words.to_owned()
}

/// A given value without serde's name of its type.
fn given_words(given: &str) -> String {
    let number = ["integer ", "floating point ", "boolean ", "unit value "];
    if let Some(value) = number.iter().find_map(|kind| given.strip_prefix(kind)) {
        return value.trim_matches('`').to_owned();
    }
    if let Some(text) = given.strip_prefix("string ") {
        return format!("the text {text}");
    }
    match given {
        "map" => "an object".to_owned(),
        "sequence" => "a list".to_owned(),
        other => other.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> String {
        let error = serde_json::from_str::<api::Set>(text).unwrap_err();
        describe(text.as_bytes(), &error)
    }

    #[test]
    fn errors_name_the_key_the_expected_value_and_the_given_one() {
        assert_eq!(
            of(r#"{"nodes": "n1", "for_seconds": "1h"}"#),
            "`for_seconds`: expected a number such as 1.5, found the text \"1h\""
        );
        assert_eq!(of(r#"{"nodes": 7}"#), "`nodes`: expected a text such as \"n1\", found 7");
        assert_eq!(
            of(
                "{\"nodes\": \"n1\",\n \"for_seconds\": 1, \"sources\": {\"perf\": {\"events\": 3}}}"
            ),
            "`events`: expected a list such as [\"a\", \"b\"], found 3"
        );
        assert_eq!(of("7"), "expected an object such as {\"key\": 1}, found 7");
        assert_eq!(of("{\"nodes\": \"n1\""), "the JSON is incomplete: it ends at line 1 column 14");
        assert_eq!(of("x"), "not valid JSON at line 1 column 1: expected value");
        assert_eq!(of("{}"), "missing field `nodes`");
        let id = serde_json::from_str::<api::End>(r#"{"exit_code": 1.5}"#).unwrap_err();
        assert_eq!(
            describe(br#"{"exit_code": 1.5}"#, &id),
            "`exit_code`: expected a whole number such as 7, found 1.5"
        );
        let burst = r#"{"nodes": "n", "for_seconds": 1, "bursts": {"cpu": {"period_seconds": 1,
            "keep_seconds": 1, "flush_on": ["job"]}}}"#;
        assert_eq!(of(burst), "`flush_on`: expected `job_start` or `job_end`, found `job`");
    }
}
