//! Regular expressions of promotions, as agents read them: the same engine, so that what is taken here is taken
//! there. Its time is linear in the name, whatever the expression.

use model::REJECTED_REQUEST;
use regex_lite::Regex;

/// Longest expression, in bytes.
const BYTES_MAX: usize = 200;

/// Whether agents can match names of metrics against an expression; else why not, and where.
pub(crate) fn check(text: &str) -> Result<(), String> {
    if let Some(why) = text.strip_prefix(REJECTED_REQUEST) {
        return Err(why.to_owned());
    }
    if text.is_empty() || text.len() > BYTES_MAX {
        return Err(format!("`metric` is a regular expression of 1 to {BYTES_MAX} bytes"));
    }
    // Quoted each takes six times its room in what a node is told, and no name of a metric has one.
    if text.contains(model::is_unprintable) {
        return Err("`metric` is a regular expression of printable characters".to_owned());
    }
    let refused = |why: &str, at: usize| {
        Err(format!("`metric` is no regular expression: in `{text}` at byte {at}, {why}"))
    };
    if let Err(error) = Regex::new(text) {
        let why = error.to_string();
        return refused(&why, place(text, &why));
    }
    // A comment at its end would swallow the anchor.
    match Regex::new(&format!("^(?:{text})$")) {
        Ok(_) => Ok(()),
        Err(error) => refused(&error.to_string(), text.len()),
    }
}

/// The byte, from 1 on, at which it goes wrong: what stands before it could still be made good, or is wrong in
/// another way. The engine itself does not tell.
fn place(text: &str, why: &str) -> usize {
    let beginnings = text.char_indices().map(|(at, c)| at + c.len_utf8()).collect::<Vec<_>>();
    let mut place = text.len();
    for end in beginnings.into_iter().rev() {
        let wrong = text.get(..end).map(Regex::new);
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
    fn what_is_no_expression_is_told_with_its_place() {
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
