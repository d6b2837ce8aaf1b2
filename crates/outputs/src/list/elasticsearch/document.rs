//! A document: its ID, its text, and what of it the index has already.

use crate::row::{text, write_value};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use model::Timestamp;
use ring::digest::{Context, SHA256};
use rustc_hash::FxHashMap;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::sync::Arc;
use storage::TimeSlice;

/// Bytes of an ID before it is a text.
const ID_BYTES: usize = 16;
/// Most documents of the same identity and instant.
pub(super) const PARTS_MAX: u32 = 100;

/// A document.
#[derive(Clone, Debug)]
pub(super) struct Document {
    pub(super) index: Arc<str>,
    /// Its ID without the number of its part.
    pub(super) key: String,
    pub(super) content: Content,
}

/// What a document has.
#[derive(Clone, Debug)]
pub(super) enum Content {
    /// A text of which the ID is made: if the index has the ID, it has the text.
    Whole(String),
    /// Samples of one instant. The index may have others, or some of these, under IDs with the same key.
    Samples {
        /// The text before the samples: an object without its end.
        head: String,
        /// Which of the documents with this key it is.
        part: u32,
        samples: Vec<Sample>,
    },
}

#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) metric: Arc<str>,
    pub(super) value: f64,
    /// [`TimeSlice::NO_START`] if it has none.
    pub(super) start: i64,
}

/// The samples of a document in the index.
#[derive(Debug, Default, Deserialize)]
pub(super) struct FoundSamples<'a> {
    /// Texts, because numbers are then read exactly.
    #[serde(borrow, default)]
    metrics: FxHashMap<String, &'a RawValue>,
    #[serde(default)]
    not_finite: FxHashMap<String, String>,
}

impl FoundSamples<'_> {
    fn has(&self, sample: &Sample) -> bool {
        if sample.value.is_finite() {
            let found = self.metrics.get(&*sample.metric);
            return found.and_then(|text| text.get().parse::<f64>().ok()) == Some(sample.value);
        }
        let found = self.not_finite.get(&*sample.metric);
        found.is_some_and(|word| *word == value_text(sample.value).trim_matches('"'))
    }
}

/// The ID of these parts: they cannot be confused, because each is hashed with its length.
pub(super) fn key(parts: &[&[u8]]) -> String {
    let mut hash = Context::new(&SHA256);
    for part in parts {
        hash.update(&(part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    URL_SAFE_NO_PAD.encode(hash.finish().as_ref().get(..ID_BYTES).unwrap_or_default())
}

/// The ID of a part.
pub(super) fn id_of(key: &str, part: u32) -> String {
    if part == 0 { key.to_owned() } else { format!("{key}.{part}") }
}

impl Document {
    pub(super) fn id(&self) -> String {
        id_of(&self.key, self.part())
    }

    /// Which of the documents with its key it is.
    pub(super) fn part(&self) -> u32 {
        match &self.content {
            Content::Whole(_) => 0,
            Content::Samples { part, .. } => *part,
        }
    }

    /// The document as JSON.
    pub(super) fn text(&self) -> String {
        match &self.content {
            Content::Whole(text) => text.clone(),
            Content::Samples { head, samples, .. } => text_of(head, samples),
        }
    }

    /// About how many bytes [`Self::text`] has.
    pub(super) fn size(&self) -> usize {
        match &self.content {
            Content::Whole(text) => text.len(),
            Content::Samples { head, samples, .. } => head.len() + 64 * samples.len(),
        }
    }

    /// The IDs under which the index may have it, or parts of it.
    pub(super) fn ids(&self) -> impl Iterator<Item = String> {
        (0..=self.part()).map(|part| id_of(&self.key, part))
    }

    /// Whether the index may have parts of it.
    pub(super) fn is_part(&self) -> bool {
        matches!(self.content, Content::Samples { .. })
    }

    /// Removes the samples that the index has. `None`: it has all. The rest gets the part `free`, after
    /// those that the index has, unless its own is a later one.
    pub(super) fn without(mut self, found: &[&FoundSamples<'_>], free: u32) -> Option<Self> {
        if let Content::Samples { part, samples, .. } = &mut self.content {
            samples.retain(|sample| !found.iter().any(|one| one.has(sample)));
            *part = free.max(*part);
            if !samples.is_empty() {
                return Some(self);
            }
        } else if found.is_empty() {
            return Some(self);
        }
        None
    }
}

fn text_of(head: &str, samples: &[Sample]) -> String {
    let mut out = String::with_capacity(head.len() + 64 * samples.len());
    out.push_str(head);
    let start = samples.iter().map(|sample| sample.start).filter(|at| *at != TimeSlice::NO_START);
    if let Some(start) = start.max() {
        out += &format!(",\"start\":\"{}\"", time(start));
    }
    let (finite, others): (Vec<_>, Vec<_>) =
        samples.iter().partition(|sample| sample.value.is_finite());
    for (name, samples) in [("metrics", finite), ("not_finite", others)] {
        if !samples.is_empty() {
            let each = samples
                .iter()
                .map(|sample| format!("{}:{}", text(&sample.metric), value_text(sample.value)));
            out += &format!(",\"{name}\":{{{}}}", each.collect::<Vec<_>>().join(","));
        }
    }
    out.push('}');
    out
}

fn value_text(value: f64) -> String {
    let mut out = Vec::new();
    write_value(value, &mut out);
    String::from_utf8(out).unwrap_or_default()
}

/// An instant in RFC 3339, with as many decimals as it needs. Beyond its years, a text that is no date: the server rejects it.
pub(super) fn time(micros: i64) -> String {
    match jiff::Timestamp::from_microsecond(Timestamp(micros).0) {
        Ok(at) => at.to_string(),
        Err(_) => format!("{micros} us"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(part: u32, samples: &[(&str, f64)]) -> Document {
        let sample = |(metric, value): &(&str, f64)| Sample {
            metric: (*metric).into(),
            value: *value,
            start: TimeSlice::NO_START,
        };
        let samples = samples.iter().map(sample).collect();
        let content = Content::Samples { head: "{\"a\":1".into(), part, samples };
        Document { index: "i".into(), key: "k".into(), content }
    }

    #[test]
    fn what_the_index_has_is_left_out() {
        let found: FoundSamples<'_> = serde_json::from_str(
            r#"{"metrics":{"a":1.0E-1,"b":3,"big":18446744073709551616},"not_finite":{"n":"NaN"}}"#,
        )
        .unwrap();
        let ours = [("a", 0.1), ("b", 4.0), ("big", 2f64.powi(64)), ("n", f64::NAN), ("c", 1.0)];
        let rest = document(0, &ours).without(&[&found], 1).unwrap();
        assert_eq!(rest.text(), r#"{"a":1,"metrics":{"b":4,"c":1}}"#);
        assert_eq!(rest.id(), "k.1");
        assert_eq!(rest.ids().collect::<Vec<_>>(), ["k", "k.1"]);
        assert!(document(0, &[("b", 3.0)]).without(&[&found], 1).is_none());
        let other = document(3, &[("i", f64::INFINITY)]).without(&[], 3).unwrap();
        assert_eq!(other.text(), r#"{"a":1,"not_finite":{"i":"Infinity"}}"#);
        let whole = Document { content: Content::Whole("{}".into()), ..other };
        assert!(whole.clone().without(&[&found], 1).is_none() && whole.without(&[], 0).is_some());
    }

    #[test]
    fn keys_differ_where_parts_do() {
        let keys = [key(&[b"ab", b"c"]), key(&[b"a", b"bc"]), key(&[b"abc"]), key(&[b"abc", b""])];
        let all: std::collections::BTreeSet<_> = keys.iter().collect();
        assert_eq!((all.len(), keys[0].len()), (4, 22));
    }

    #[test]
    fn times_have_microseconds() {
        assert_eq!(time(1_764_369_000_500_001), "2025-11-28T22:30:00.500001Z");
        assert_eq!(time(0), "1970-01-01T00:00:00Z");
        assert_eq!(time(i64::MIN), "-9223372036854775808 us");
    }
}
