//! Labels of a series, in one canonical form.

use crate::is_unprintable;
use std::{fmt, sync::Arc};

/// Maximum length of the canonical text of a label set, in bytes.
pub const LABELS_BYTES_MAX: usize = 4096;

/// The labels of a series: the parts of a device (`{"cpu": "3"}`), or what a user adds.
///
/// Stored as the text that PostgreSQL prints for `jsonb`: keys ordered by length, then by bytes, one blank
/// after `:` and `,`. Identity, sorting and golden answers depend on this text. Values are strings.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Labels(Arc<str>);

/// Why a text or a set of pairs is not a label set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelsError {
    /// More than [`LABELS_BYTES_MAX`].
    #[error("labels of {0} bytes are too long: {LABELS_BYTES_MAX} at most")]
    TooLong(usize),
    /// A key without a name.
    #[error("a label has an empty key")]
    EmptyKey,
    /// A key or value contains an unprintable character.
    #[error("the labels `{0}` have control characters, or marks of direction or of no width")]
    Unprintable(String),
    /// Not the canonical text of an object of strings.
    #[error("`{0}` is not a canonical label set such as {{\"cpu\": \"0\"}}")]
    Text(String),
}

impl Default for Labels {
    fn default() -> Self {
        Self(Arc::from("{}"))
    }
}

impl Labels {
    /// Canonical labels of pairs in any order; of duplicate keys the last counts.
    ///
    /// # Errors
    /// A key is empty, or the text exceeds [`LABELS_BYTES_MAX`].
    pub fn new<'a>(
        pairs: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, LabelsError> {
        let mut sorted: Vec<(&str, &str)> = Vec::new();
        for (key, value) in pairs {
            if key.is_empty() {
                return Err(LabelsError::EmptyKey);
            }
            match sorted.iter_mut().find(|(k, _)| *k == key) {
                Some(slot) => slot.1 = value,
                None => sorted.push((key, value)),
            }
        }
        sorted.sort_unstable_by(|a, b| (a.0.len(), a.0).cmp(&(b.0.len(), b.0)));
        let mut text = String::from("{");
        for (i, (key, value)) in sorted.iter().enumerate() {
            text.push_str(if i == 0 { "" } else { ", " });
            quote(key, &mut text);
            text.push_str(": ");
            quote(value, &mut text);
        }
        text.push('}');
        if text.len() > LABELS_BYTES_MAX {
            return Err(LabelsError::TooLong(text.len()));
        }
        Ok(Self(Arc::from(text)))
    }

    /// Parses a canonical text.
    ///
    /// # Errors
    /// The text is not canonical, or exceeds [`LABELS_BYTES_MAX`].
    pub fn from_canonical(text: &str) -> Result<Self, LabelsError> {
        if text.len() > LABELS_BYTES_MAX {
            return Err(LabelsError::TooLong(text.len()));
        }
        if is_plain(text) {
            return Ok(Self(Arc::from(text)));
        }
        let wrong = || LabelsError::Text(text.chars().take(200).collect());
        let pairs = parse(text).ok_or_else(wrong)?;
        let labels = Self::new(pairs.iter().map(|(k, v)| (k.as_str(), v.as_str())))?;
        if labels.as_str() == text { Ok(labels) } else { Err(wrong()) }
    }

    /// The canonical text, `{}` without labels.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether there are no labels.
    pub fn is_empty(&self) -> bool {
        &*self.0 == "{}"
    }

    /// Keys and values in canonical order.
    pub fn pairs(&self) -> Vec<(String, String)> {
        parse(&self.0).unwrap_or_default()
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<String> {
        self.pairs().into_iter().find(|(k, _)| k == key).map(|(_, v)| v)
    }

    /// These labels, if all characters of keys and values are printable.
    ///
    /// # Errors
    /// A character is not printable.
    pub fn must_be_printable(self) -> Result<Self, LabelsError> {
        // In the canonical text, a control character below U+0020 is escaped.
        let is_escaped = self.as_str().contains('\\')
            && self
                .pairs()
                .iter()
                .any(|(k, v)| k.contains(is_unprintable) || v.contains(is_unprintable));
        if is_escaped || self.as_str().contains(is_unprintable) {
            return Err(LabelsError::Unprintable(self.as_str().escape_debug().to_string()));
        }
        Ok(self)
    }

    /// These labels with a space instead of each unprintable character.
    #[must_use]
    pub fn printable(self) -> Self {
        if self.clone().must_be_printable().is_ok() {
            return self;
        }
        let pairs = self.pairs();
        let clean = |text: &str| crate::printable(text).into_owned();
        let pairs: Vec<_> = pairs.iter().map(|(key, value)| (clean(key), clean(value))).collect();
        Self::new(pairs.iter().map(|(key, value)| (&**key, &**value))).unwrap_or_default()
    }

    /// These labels with one more key, or with a new value for it.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with(&self, key: &str, value: &str) -> Result<Self, LabelsError> {
        let pairs = self.pairs();
        let old = pairs.iter().map(|(k, v)| (k.as_str(), v.as_str()));
        Self::new(old.chain([(key, value)]))
    }

    /// These labels without a key.
    #[must_use]
    pub fn without(&self, key: &str) -> Self {
        let pairs = self.pairs();
        let kept = pairs.iter().filter(|(k, _)| k != key);
        Self::new(kept.map(|(k, v)| (k.as_str(), v.as_str()))).unwrap_or_default()
    }
}

impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Writes a JSON string like PostgreSQL: short escapes where JSON has them, `\u00xx` for other control
/// characters, everything else unchanged.
fn quote(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if u32::from(c) < 0x20 => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Whether a text is canonical and has no escapes. Nearly all labels are such, and a store reads millions of them.
fn is_plain(text: &str) -> bool {
    if text.bytes().any(|byte| byte == b'\\' || byte < 0x20) {
        return false;
    }
    let pairs = text.strip_prefix("{\"").and_then(|text| text.strip_suffix("\"}"));
    let Some(pairs) = pairs else { return text == "{}" };
    // Without escapes, a quote begins or ends a key or a value.
    let (mut parts, mut before) = (pairs.split('"'), "");
    loop {
        let (Some(key), Some(": "), Some(_)) = (parts.next(), parts.next(), parts.next()) else {
            return false;
        };
        if (key.len(), key) <= (before.len(), before) {
            return false;
        }
        before = key;
        match parts.next() {
            Some(", ") => {}
            other => return other.is_none(),
        }
    }
}

/// Parses the canonical text; `None` if it is not canonical. Accepts only the output of [`quote`].
fn parse(text: &str) -> Option<Vec<(String, String)>> {
    let mut rest = text.strip_prefix('{')?;
    let mut pairs = Vec::new();
    if let Some(tail) = rest.strip_prefix('}') {
        return tail.is_empty().then_some(pairs);
    }
    loop {
        let key = unquote(&mut rest)?;
        rest = rest.strip_prefix(": ")?;
        let value = unquote(&mut rest)?;
        pairs.push((key, value));
        match rest.strip_prefix(", ") {
            Some(tail) => rest = tail,
            None => return (rest == "}").then_some(pairs),
        }
    }
}

fn unquote(rest: &mut &str) -> Option<String> {
    let mut chars = rest.strip_prefix('"')?.chars();
    let mut out = String::new();
    loop {
        match chars.next()? {
            '"' => break,
            '\\' => out.push(match chars.next()? {
                '"' => '"',
                '\\' => '\\',
                'b' => '\u{8}',
                'f' => '\u{c}',
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'u' => {
                    let (hex, tail) = chars.as_str().split_at_checked(4)?;
                    chars = tail.chars();
                    char::from_u32(u32::from_str_radix(hex, 16).ok()?)?
                }
                _ => return None,
            }),
            c => out.push(c),
        }
    }
    *rest = chars.as_str();
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn keys_are_ordered_by_length_then_bytes() {
        let labels = Labels::new([("mount", "/"), ("cpu", "0"), ("dev", "sda")]).unwrap();
        assert_eq!(labels.as_str(), r#"{"cpu": "0", "dev": "sda", "mount": "/"}"#);
        assert_eq!(labels.get("dev").as_deref(), Some("sda"));
        assert_eq!(labels.without("cpu").as_str(), r#"{"dev": "sda", "mount": "/"}"#);
        assert_eq!(labels.with("a", "1").unwrap().pairs()[0].0, "a");
        assert_eq!(Labels::default().as_str(), "{}");
    }

    #[test]
    fn only_canonical_texts_are_accepted() {
        for text in [
            "",
            "{",
            "{}x",
            r#"{"a":"b"}"#,
            r#"{"bb": "1", "a": "2"}"#,
            r#"{"a": "1", "a": "2"}"#,
            r#"{"": "1"}"#,
            r#"{"a": 1}"#,
            r#"{"a": "\x"}"#,
            r#"{"a": "\u0041"}"#,
            "[]",
        ] {
            assert!(Labels::from_canonical(text).is_err(), "{text}");
        }
        assert!(Labels::new([("a", &*"x".repeat(5000))]).is_err());
    }

    proptest! {
        #[test]
        fn round_trip(pairs in proptest::collection::vec((".{1,9}", ".{0,9}"), 0..6)) {
            let labels = Labels::new(pairs.iter().map(|(k, v)| (k.as_str(), v.as_str()))).unwrap();
            prop_assert_eq!(Labels::from_canonical(labels.as_str()), Ok(labels.clone()));
            let again = labels.pairs();
            let again = Labels::new(again.iter().rev().map(|(k, v)| (k.as_str(), v.as_str())));
            prop_assert_eq!(again, Ok(labels));
        }

        /// A text that is accepted unparsed is the one that its pairs make.
        #[test]
        fn plain_texts_are_canonical(
            words in proptest::collection::vec(
                prop_oneof![
                    5 => "\"[ab]{1,2}\": \"[ab]?\"",
                    3 => Just(", ".to_owned()),
                    1 => "[\\\\\"{}:, a\n]",
                ],
                0..9,
            ),
        ) {
            let text = format!("{{{}}}", words.concat());
            let made = parse(&text).map(|pairs| {
                Labels::new(pairs.iter().map(|(k, v)| (k.as_str(), v.as_str())))
            });
            let is_canonical = matches!(made, Some(Ok(labels)) if labels.as_str() == text);
            prop_assert!(is_canonical || !is_plain(&text), "{text}");
            prop_assert!(!is_canonical || is_plain(&text) || text.contains('\\'), "{text}");
        }

        #[test]
        fn no_text_panics(text in ".{0,40}") {
            Labels::from_canonical(&text).ok();
        }
    }
}
