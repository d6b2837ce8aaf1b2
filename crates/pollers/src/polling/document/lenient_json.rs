//! JSON documents as Python reads them, which writes many of them: `NaN`, `Infinity`, and numbers beyond a double. They become
//! texts, so that the rules of texts hold for them (docs/decisions/0040-texts-as-values.md), and no other value is lost.

use serde_json::Value;
use std::borrow::Cow;

/// Words that are numbers in Python.
const WORDS: [&str; 3] = ["NaN", "Infinity", "-Infinity"];

/// Reads a document. Of equal keys the last one counts, and lists and objects are nested at most 127 times.
///
/// # Errors
/// The bytes are no such document: where, and why.
pub(super) fn parse(bytes: &[u8]) -> Result<Value, String> {
    let error = match serde_json::from_slice(bytes) {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    let text = String::from_utf8_lossy(bytes);
    match quoted(&text) {
        Cow::Borrowed(_) if matches!(text, Cow::Borrowed(_)) => Err(error),
        text => serde_json::from_str(&text),
    }
    .map_err(|error| format!("the body is no JSON: {error}"))
}

/// The document with such numbers as texts.
fn quoted(text: &str) -> Cow<'_, str> {
    let mut quoted = String::new();
    let (mut copied, mut at) = (0, 0);
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let length = token(rest);
        let token = rest.get(..length).unwrap_or(rest);
        if is_beyond_json(token) {
            quoted.push_str(text.get(copied..at).unwrap_or_default());
            quoted.push('"');
            quoted.push_str(token);
            quoted.push('"');
            copied = at + length;
        }
        at += token.len();
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    quoted.push_str(text.get(copied..).unwrap_or_default());
    Cow::Owned(quoted)
}

/// Bytes of the token at the beginning of a text: a string, a word or number, or what separates them.
fn token(text: &str) -> usize {
    let is_of_word = |letter: char| letter.is_ascii_alphanumeric() || "+-.".contains(letter);
    let length = if let Some(string) = text.strip_prefix('"') {
        let mut is_escaped = false;
        let end = string.find(|letter: char| {
            let is_end = letter == '"' && !is_escaped;
            is_escaped = letter == '\\' && !is_escaped;
            is_end
        });
        end.map(|end| end + 2)
    } else if text.starts_with(is_of_word) {
        text.find(|letter: char| !is_of_word(letter))
    } else {
        text.find(|letter: char| letter == '"' || is_of_word(letter))
    };
    length.unwrap_or(text.len())
}

/// Whether a token is a number that JSON or a double does not have.
fn is_beyond_json(token: &str) -> bool {
    let is_number = token.starts_with(|letter: char| letter == '-' || letter.is_ascii_digit());
    WORDS.contains(&token)
        || (is_number && token.parse::<f64>().is_ok_and(|number| number.is_infinite()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_are_quoted_and_errors_remain() {
        assert_eq!(quoted(r#"[1e999,"\\",-1e999 ,NaN]"#), r#"["1e999","\\","-1e999" ,"NaN"]"#);
        for text in ["[1, \"NaN, 1e999\", 2.5e3, true]", "", "\"", "\"\\", "é"] {
            assert!(matches!(quoted(text), Cow::Borrowed(same) if same == text), "{text}");
        }
        for text in ["[1e999", "[1e999x]", "nan", "[inf]", "", "[01]"] {
            assert!(parse(text.as_bytes()).unwrap_err().contains("no JSON"), "{text}");
        }
        let nested = |depth: usize| "[".repeat(depth) + "1e999" + &"]".repeat(depth);
        assert!(parse(nested(127).as_bytes()).is_ok());
        assert!(parse(nested(5000).as_bytes()).unwrap_err().contains("recursion limit"));
        // A text of other bytes costs no other value.
        assert_eq!(parse(b"[\"\xff\", 7]").unwrap()[1], 7);
    }
}
