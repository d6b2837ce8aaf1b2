//! Validates the regular expressions of promotions with the engine that agents use, so that agents accept
//! them too. Matching takes time linear in the metric's name, for any expression.

use config::bounded_regex;
use model::REJECTED_REQUEST;

/// Maximum length of an expression, in bytes.
const BYTES_MAX: usize = 200;

/// Checks that agents can match metric names against an expression; otherwise returns the reason and the
/// place.
pub fn check(text: &str) -> Result<(), String> {
    if let Some(why) = text.strip_prefix(REJECTED_REQUEST) {
        return Err(why.to_owned());
    }
    if text.is_empty() || text.len() > BYTES_MAX {
        return Err(format!("`metric` is a regular expression of 1 to {BYTES_MAX} bytes"));
    }
    // Quoting expands such a character to 6 bytes of the node's text, and no metric name contains one.
    if text.contains(model::is_unprintable) {
        return Err("`metric` is a regular expression of printable characters".to_owned());
    }
    let rejected = |why: &str, at: usize| {
        Err(format!("`metric` is not a regular expression: in `{text}` at byte {at}, {why}"))
    };
    if let Err(error) = bounded_regex(text) {
        let why = error.to_string();
        return rejected(&why, place(text, &why));
    }
    // A comment at the end of the expression would swallow the anchor.
    match bounded_regex(&format!("^(?:{text})$")) {
        Ok(_) => Ok(()),
        Err(error) => rejected(&error.to_string(), text.len()),
    }
}

/// Returns the byte, from 1, at which the expression becomes invalid. The next shorter prefix is valid, or
/// has another error. The engine itself does not report the position.
fn place(text: &str, why: &str) -> usize {
    let beginnings = text.char_indices().map(|(at, c)| at + c.len_utf8()).collect::<Vec<_>>();
    let mut place = text.len();
    for end in beginnings.into_iter().rev() {
        let wrong = text.get(..end).map(bounded_regex);
        match wrong {
            Some(Err(error)) if error.to_string() == why => place = end,
            _ => break,
        }
    }
    place
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_invalid_expression_is_reported_with_its_position() {
        for good in ["perf_.*", ".*temp.*", "cpu_(user|system)_seconds_total", "a{2,3}", "(?i)X"] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for (bad, at) in [
            ("(", 1),
            ("(a)(b", 4),
            ("a)b", 2),
            ("x[a", 3),
            ("x[a-", 4),
            ("*a", 1),
            ("ab{3,2}c", 7),
            ("perf_\\p{L}", 7),
            ("a\\", 2),
            ("(?x) a # all", 12),
        ] {
            let error = check(bad).unwrap_err();
            assert!(error.contains(&format!("at byte {at},")), "{error}");
        }
        for control in ["a\u{1}", "(?x)a\nb", "\u{7f}", "\u{85}"] {
            assert!(check(control).unwrap_err().contains("printable characters"), "{control:?}");
        }
        assert!(check("").is_err() && check(&"a".repeat(BYTES_MAX + 1)).is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,60}") {
            check(&text).ok();
        }

        #[test]
        fn no_text_of_signs_panics(text in "[\\[\\](){}*+?|.^$\\\\a-c0-2,x:-]{0,40}") {
            check(&text).ok();
        }
    }
}
