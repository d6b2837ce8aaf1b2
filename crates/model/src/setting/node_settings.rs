//! Settings that a server requests from a node for a time: typed values, from the request to the agent.

use super::kind::{Kind, WORD_END, show_duration, words};
use crate::{Timestamp, is_unprintable};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Maximum length of encoded settings, in bytes. A node rejects longer ones as a whole.
pub const SETTINGS_BYTES_MAX: usize = 64 << 10;
/// Most promotions of a node.
pub const PROMOTIONS_MAX: usize = 64;
/// Most sources of a node with a burst.
pub const BURSTS_MAX: usize = 4;
/// Most flushes of a node.
pub const FLUSHES_MAX: usize = 16;

/// The value of a setting or of an option of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingValue {
    /// On or off.
    Switch(bool),
    /// A whole number; of a size, bytes.
    Number(u64),
    /// A time, of whole microseconds.
    Duration(Duration),
    /// A text.
    Text(Box<str>),
    /// Texts.
    List(Vec<Box<str>>),
}

impl SettingValue {
    /// The text form that [`Kind::value`] parses.
    pub fn plain(&self) -> String {
        match self {
            Self::Switch(is_on) => is_on.to_string(),
            Self::Number(number) => number.to_string(),
            Self::Duration(duration) => show_duration(*duration),
            Self::Text(text) => text.to_string(),
            Self::List(texts) => texts.join(","),
        }
    }
}

/// Formats the value as in a configuration file: `true`, `7`, `"1s"`, `["a", "b"]`.
impl fmt::Display for SettingValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Switch(_) | Self::Number(_) => f.write_str(&self.plain()),
            Self::Duration(_) | Self::Text(_) => f.write_str(&quoted(&self.plain())),
            Self::List(texts) => {
                let texts: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
                write!(f, "[{}]", texts.join(", "))
            }
        }
    }
}

/// Formats a text as a basic string of TOML.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            letter if is_unprintable(letter) => {
                out.push_str(&format!("\\u{:04x}", u32::from(letter)));
            }
            letter => out.push(letter),
        }
    }
    out.push('"');
    out
}

impl Kind {
    /// Parses a value.
    ///
    /// # Errors
    /// A description of valid values.
    pub fn value(self, text: &str) -> Result<SettingValue, String> {
        self.check(text)?;
        let list = |texts: &mut dyn Iterator<Item = &str>| {
            SettingValue::List(texts.map(Into::into).collect())
        };
        let value = match self {
            Self::Switch => text.parse().ok().map(SettingValue::Switch),
            Self::Number { .. } => text.parse().ok().map(SettingValue::Number),
            Self::Bytes { .. } => super::kind::parse_bytes(text).map(SettingValue::Number),
            Self::Duration { .. } => super::kind::parse_duration(text).map(SettingValue::Duration),
            Self::Choice(_) | Self::Text(_) | Self::TextOf(..) => {
                Some(SettingValue::Text(text.into()))
            }
            Self::List(_) | Self::ListOf(..) => Some(list(&mut words(text))),
            Self::Command(_) => Some(list(&mut text.split_terminator(WORD_END))),
        };
        value.ok_or_else(|| self.wants())
    }

    /// Checks a value, its type included.
    ///
    /// # Errors
    /// A description of valid values.
    pub fn accepts(self, value: &SettingValue) -> Result<(), String> {
        let text = match (self, value) {
            (Self::Command(_), SettingValue::List(words)) => {
                words.iter().flat_map(|word| [word, "\0"]).collect()
            }
            _ => value.plain(),
        };
        if self.value(&text)? == *value { Ok(()) } else { Err(self.wants()) }
    }
}

/// Changed settings of one source, or of its burst, by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Override {
    /// The values.
    pub values: BTreeMap<Box<str>, SettingValue>,
    /// When they end; `None`: when the node ends them.
    pub until: Option<Timestamp>,
}

/// A request to send the samples of a burst now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlushRequest {
    /// The source.
    pub source: Box<str>,
    /// The number of the request. A node obeys each number once.
    pub number: u64,
}

/// The settings that a server requests from a node, beside the node's own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeSettings {
    /// Changed settings by source: `enabled`, `period`, `events`.
    pub sources: BTreeMap<Box<str>, Override>,
    /// Bursts by source: `period`, `keep`, `flush_on`. Missing values are the node's own.
    pub bursts: BTreeMap<Box<str>, Override>,
    /// Promoted metrics: regular expressions of whole names, each with its end.
    pub promotions: BTreeMap<Box<str>, Timestamp>,
    /// Flushes, oldest first.
    pub flushes: Vec<FlushRequest>,
}

impl NodeSettings {
    /// Whether nothing is requested.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The changed settings, each as `sources.load.period = "1s"`, sorted.
    pub fn lines(&self) -> Vec<String> {
        let parts = [("burst", &self.bursts), ("sources", &self.sources)];
        let lines = parts.into_iter().flat_map(|(part, overrides)| {
            overrides.iter().flat_map(move |(source, changed)| {
                let line = move |(key, value)| format!("{part}.{source}.{key} = {value}");
                changed.values.iter().map(line)
            })
        });
        lines.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_the_types_of_their_settings() {
        let (min, max) = (Duration::from_millis(1), Duration::from_secs(60));
        let period = Kind::Duration { min, max };
        let list = |texts: &[&str]| SettingValue::List(texts.iter().map(|&it| it.into()).collect());
        for (kind, text, value, shown) in [
            (Kind::Switch, "true", SettingValue::Switch(true), "true"),
            (Kind::Bytes { min: 0, max: 9999 }, "2KiB", SettingValue::Number(2048), "2048"),
            (period, "1500ms", SettingValue::Duration(Duration::from_millis(1500)), "\"1500ms\""),
            (Kind::Text("NAME"), "a\"\n", SettingValue::Text("a\"\n".into()), "\"a\\\"\\u000a\""),
            (Kind::List("WORD"), "a, b", list(&["a", "b"]), "[\"a\", \"b\"]"),
            (
                Kind::Command("WORD"),
                "/bin/a\0b,c\0",
                list(&["/bin/a", "b,c"]),
                "[\"/bin/a\", \"b,c\"]",
            ),
        ] {
            assert_eq!(kind.value(text), Ok(value.clone()));
            assert_eq!(kind.accepts(&value), Ok(()));
            assert_eq!(value.to_string(), shown);
        }
        assert!(period.value("2m").is_err() && period.value("x").is_err());
        for other in [SettingValue::Number(5), SettingValue::Text("5s".into()), list(&["5s"])] {
            assert!(period.accepts(&other).is_err(), "{other:?}");
        }
        assert!(Kind::List("WORD").accepts(&list(&["a,b"])).is_err());
    }

    #[test]
    fn changed_settings_are_listed() {
        let of = |key: &str, value| Override { values: [(key.into(), value)].into(), until: None };
        let period = SettingValue::Duration(Duration::from_secs(1));
        let settings = NodeSettings {
            sources: [("load".into(), of("period", period.clone()))].into(),
            bursts: [("cpu".into(), of("keep", period))].into(),
            ..NodeSettings::default()
        };
        assert_eq!(settings.lines(), ["burst.cpu.keep = \"1s\"", "sources.load.period = \"1s\""]);
        assert!(!settings.is_empty() && NodeSettings::default().is_empty());
    }
}
