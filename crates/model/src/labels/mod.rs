//! Labels of a series, in one canonical form ([`jsonb`]).

mod json_objects;
mod jsonb;

pub use json_objects::{JsonObjects, json_text};

use crate::{FOREIGN_BYTES_MAX, is_unprintable};
use jsonb::{canonical, members, object, quote, text_of};
use std::fmt;
use std::sync::{Arc, LazyLock};

/// Maximum length of the canonical text of a label set, in bytes.
pub const LABELS_BYTES_MAX: usize = 4096;
/// The label of rows that a user inserts, with the user. No other sender may set it.
pub const USER_LABEL: &str = "_user";

/// The labels of a series: the parts of a device (`{"cpu": "3"}`), or what a user adds.
///
/// Stored as the text that PostgreSQL prints for `jsonb`: keys ordered by length, then by bytes, one blank
/// after `:` and `,`. Identity, sorting and golden answers depend on this text. Values are any JSON values; those of
/// agents are texts (decision 0037).
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
    /// Not a JSON object.
    #[error("labels are a JSON object: {0}")]
    Json(&'static str),
    /// Not the canonical text of an object.
    #[error("`{0}` is not a canonical label set such as {{\"cpu\": \"0\"}}")]
    Text(String),
}

impl Default for Labels {
    fn default() -> Self {
        // Most series have none, so they share the text.
        static NONE: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from("{}"));
        Self(Arc::clone(&NONE))
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
        match Self::from_json(text) {
            Ok(labels) if labels.as_str() == text => Ok(labels),
            Err(error @ LabelsError::EmptyKey) => Err(error),
            _ => Err(wrong()),
        }
    }

    /// Labels of rows that another program wrote into a database, as PostgreSQL prints them: any JSON value, and `null` for
    /// absent labels. `None` if the text is longer than [`FOREIGN_BYTES_MAX`], or no JSON.
    pub fn foreign(text: &str) -> Option<Self> {
        let is_shown = text.len() <= FOREIGN_BYTES_MAX && canonical(text).is_ok();
        is_shown.then(|| Self(Arc::from(text)))
    }

    /// Whether they are pairs of keys and values; those of other programs may be any JSON value.
    pub fn is_object(&self) -> bool {
        self.0.starts_with('{')
    }

    /// Canonical labels of a JSON object; of duplicate keys the last counts.
    ///
    /// # Errors
    /// It is not an object that PostgreSQL accepts, a key is empty, or the text exceeds [`LABELS_BYTES_MAX`].
    pub fn from_json(text: &str) -> Result<Self, LabelsError> {
        // Blanks and escapes may make it longer than its canonical text.
        if text.len() > 8 * LABELS_BYTES_MAX {
            return Err(LabelsError::TooLong(text.len()));
        }
        let text = canonical(text).map_err(LabelsError::Json)?;
        if !text.starts_with('{') {
            return Err(LabelsError::Json("it is another JSON value"));
        }
        if text.starts_with("{\"\": ") {
            return Err(LabelsError::EmptyKey);
        }
        if text.len() > LABELS_BYTES_MAX {
            return Err(LabelsError::TooLong(text.len()));
        }
        Ok(Self(Arc::from(text)))
    }

    /// The canonical text, `{}` without labels.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether there are no labels.
    pub fn is_empty(&self) -> bool {
        &*self.0 == "{}"
    }

    /// Keys in canonical order, each with the JSON text of its value.
    pub fn members(&self) -> Vec<(String, &str)> {
        members(&self.0).unwrap_or_default()
    }

    /// Keys in canonical order, each with the text of its value; that of null is `null`.
    pub fn pairs(&self) -> Vec<(String, String)> {
        let text = |value: &str| text_of(value).unwrap_or_else(|| value.to_owned());
        self.members().into_iter().map(|(key, value)| (key, text(value))).collect()
    }

    /// The text of a key's value, as PostgreSQL's `->>` gives it: none if the key is absent, or the value null.
    pub fn get(&self, key: &str) -> Option<String> {
        text_of(self.members().into_iter().find(|(known, _)| known == key)?.1)
    }

    /// Whether there is such a key.
    pub fn has(&self, key: &str) -> bool {
        // The text of a plain key is in that of the labels. To search is faster than to parse.
        let is_plain = !key.contains(|c: char| matches!(c, '"' | '\\') || c.is_control());
        if is_plain && !self.0.contains(key) {
            return false;
        }
        self.members().iter().any(|(known, _)| known == key)
    }

    /// These labels, if all characters of keys and texts are printable.
    ///
    /// # Errors
    /// A character is not printable.
    pub fn must_be_printable(self) -> Result<Self, LabelsError> {
        if self.as_str().contains(is_unprintable) || has_escaped_control(self.as_str()) {
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
        Self::from_json(&with_spaces(self.as_str())).unwrap_or_default()
    }

    /// These labels with one more key, or with a new value for it.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with(&self, key: &str, value: &str) -> Result<Self, LabelsError> {
        if key.is_empty() {
            return Err(LabelsError::EmptyKey);
        }
        let mut json = String::new();
        quote(value, &mut json);
        let mut members = self.members();
        members.push((key.to_owned(), &json));
        Self::of_members(members)
    }

    /// These labels without a key.
    #[must_use]
    pub fn without(&self, key: &str) -> Self {
        if !self.is_object() {
            return self.clone();
        }
        let mut members = self.members();
        members.retain(|(known, _)| known != key);
        Self::of_members(members).unwrap_or_default()
    }

    fn of_members(members: Vec<(String, &str)>) -> Result<Self, LabelsError> {
        let mut text = String::new();
        object(members, &mut text);
        if text.len() > LABELS_BYTES_MAX {
            return Err(LabelsError::TooLong(text.len()));
        }
        Ok(Self(Arc::from(text)))
    }
}

impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether a canonical text has an escaped control character; only those below U+0020 are escaped.
fn has_escaped_control(text: &str) -> bool {
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        if letter == '\\' && !matches!(letters.next(), Some('"' | '\\')) {
            return true;
        }
    }
    false
}

/// A canonical text with a space instead of each unprintable character.
fn with_spaces(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match (letter, letter == '\\') {
            (_, true) => match letters.next() {
                Some(escaped @ ('"' | '\\')) => out.extend(['\\', escaped]),
                escape => {
                    out.push(' ');
                    if escape == Some('u') {
                        letters.by_ref().take(4).for_each(drop);
                    }
                }
            },
            (letter, false) => out.push(if is_unprintable(letter) { ' ' } else { letter }),
        }
    }
    out
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
            r#"{"a": 1e0}"#,
            r#"{"a":1}"#,
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
            let is_canonical = canonical(&text).is_ok_and(|made| made == text)
                && Labels::from_canonical(&text).is_ok();
            prop_assert!(is_canonical || !is_plain(&text), "{text}");
            prop_assert!(!is_canonical || is_plain(&text) || text.contains('\\'), "{text}");
        }

        #[test]
        fn no_text_panics(text in ".{0,40}") {
            Labels::from_canonical(&text).ok();
        }
    }
}
