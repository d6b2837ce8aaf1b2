//! Regular expressions for names of metrics: `perf_.*`.

use regex_lite::{Regex, RegexBuilder};

/// Longest expression.
const BYTES_MAX: usize = 200;
/// Most memory of a compiled expression, which also bounds the time of a match.
const SIZE_MAX: usize = 16 * 1024;

/// Compiles an expression that others may have written, with bounded memory and time.
///
/// # Errors
/// It is no expression, or too large.
pub fn bounded_regex(text: &str) -> Result<Regex, regex_lite::Error> {
    RegexBuilder::new(text).size_limit(SIZE_MAX).build()
}

/// A regular expression for names of metrics, anchored at both ends.
#[derive(Clone, Debug)]
pub struct MetricPattern {
    text: String,
    regex: Regex,
}

impl MetricPattern {
    /// Compiles an expression.
    ///
    /// # Errors
    /// The expression is invalid.
    pub fn new(text: &str) -> Result<Self, String> {
        if text.is_empty() || text.len() > BYTES_MAX {
            let bytes = text.len();
            return Err(format!(
                "an expression for names of metrics has 1 to {BYTES_MAX} bytes, not {bytes}"
            ));
        }
        let understood = |text: &str| {
            bounded_regex(text).map_err(|e| format!("`{text}` is not a regular expression: {e}"))
        };
        // Compiled alone first: `a)|(b` must not end the group around it.
        understood(text)?;
        Ok(Self { text: text.to_owned(), regex: understood(&format!("^(?:{text})$"))? })
    }

    /// Whether it matches a metric.
    pub fn matches(&self, metric: &str) -> bool {
        self.regex.is_match(metric)
    }

    /// The expression as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl PartialEq for MetricPattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for MetricPattern {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn anchored_at_both_ends() {
        let pattern = MetricPattern::new("perf_.*|load_1m").unwrap();
        for (name, is) in [("perf_cycles_total", true), ("load_1m", true), ("load_1m_x", false)] {
            assert_eq!(pattern.matches(name), is, "{name}");
        }
        assert!(!pattern.matches("my_perf_cycles"));
    }

    #[test]
    fn invalid_or_large_expressions_are_rejected() {
        for text in ["", "(", "a)|(b", "(?x)a#", "((a{1000}){1000})", &"a".repeat(201)] {
            assert!(MetricPattern::new(text).is_err(), "{text}");
        }
        let error = MetricPattern::new("perf_[").unwrap_err();
        assert!(error.starts_with("`perf_[` is not a regular expression: "), "{error}");
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,40}", name in "[a-z_]{0,20}") {
            if let Ok(pattern) = MetricPattern::new(&text) {
                pattern.matches(&name);
            }
        }
    }
}
