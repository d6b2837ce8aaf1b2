//! The settings that the server sends to agents: its agent file, and the settings of a node.
//!
//! ```toml
//! until = "2026-01-06T14:00:00Z"      # end of the changes in [sources]
//! [sources.perf]
//! enabled = true
//! period = "1s"
//! events = ["cache_ll"]
//! [burst.cpu]
//! period = "100ms"
//! keep = "1m"
//! flush_on = ["job_end"]
//! until = "2026-01-06T15:00:00Z"
//! [[promote]]
//! metric = "filesystem_.*"
//! until = "2026-01-06T14:30:00Z"
//! [[flush]]
//! source = "cpu"
//! number = 17
//! ```

use crate::rules::expression;
use config::{burst_setting, source_setting};
use model::Timestamp;
use model::setting::{
    BURSTS_MAX, FLUSHES_MAX, FlushRequest, Kind, NodeSettings, Override, PROMOTIONS_MAX,
    SETTINGS_BYTES_MAX, SettingValue,
};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Maximum length of the agent file, in bytes.
const BYTES_MAX: usize = 64 << 10;

/// The agent file is invalid.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub struct AgentConfigError {
    /// Path of the file.
    pub path: PathBuf,
    /// The problem.
    pub why: String,
}

/// Settings that the server sends to agents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentConfig {
    /// Identifies the settings; 0 if there are none.
    pub generation: u64,
    /// The settings, encoded once for all answers.
    pub encoded: Vec<u8>,
    /// The settings.
    pub settings: NodeSettings,
}

impl AgentConfig {
    /// Reads the agent file.
    ///
    /// # Errors
    /// The file cannot be read or is too long, or every invalid line of it.
    pub fn read(path: &Path) -> Result<Self, Vec<AgentConfigError>> {
        let wrong = |why| AgentConfigError { path: path.to_owned(), why };
        let text = config::read_small(path, config::FILE_BYTES_MAX).and_then(config::as_text);
        let text = text.map_err(|error| vec![wrong(error.to_string())])?;
        Self::parse(&text).map_err(|errors| errors.into_iter().map(wrong).collect())
    }

    fn parse(text: &str) -> Result<Self, Vec<String>> {
        if text.len() > BYTES_MAX {
            return Err(vec![format!("longer than {BYTES_MAX} bytes")]);
        }
        let config = Self::of(parse(text)?);
        let mut errors = Vec::new();
        let NodeSettings { bursts, promotions, flushes, .. } = &config.settings;
        for (what, count, max) in [
            ("bursts", bursts.len(), BURSTS_MAX),
            ("promotions", promotions.len(), PROMOTIONS_MAX),
            ("flushes", flushes.len(), FLUSHES_MAX),
            ("bytes as a message", config.encoded.len(), SETTINGS_BYTES_MAX),
        ] {
            if count > max {
                errors.push(format!("{count} {what}; a node accepts {max}"));
            }
        }
        if errors.is_empty() { Ok(config) } else { Err(errors) }
    }

    /// Encodes settings.
    pub(super) fn of(settings: NodeSettings) -> Self {
        let encoded = wire::encode_settings(&settings);
        Self { generation: generation(&encoded), encoded, settings }
    }
}

/// Hashes encoded settings to their generation: the first 63 bits of their SHA-256, and 0 only without settings. 63 bits
/// also fit into signed integers.
fn generation(encoded: &[u8]) -> u64 {
    if encoded.is_empty() {
        return 0;
    }
    let digest = ring::digest::digest(&ring::digest::SHA256, encoded);
    let first = digest.as_ref().first_chunk::<8>().copied().unwrap_or_default();
    (u64::from_be_bytes(first) >> 1).max(1)
}

/// An error, and its place in the text.
type Wrong = (Range<usize>, String);
type Key<'a> = Spanned<std::borrow::Cow<'a, str>>;
type Item<'a> = Spanned<DeValue<'a>>;

/// Parses the agent file. Returns every error with its line, in the order of the file.
fn parse(text: &str) -> Result<NodeSettings, Vec<String>> {
    let (table, syntax) = DeTable::parse_recoverable(text);
    let mut reader = Reader::default();
    let place = |error: &toml::de::Error| error.span().unwrap_or_default();
    let syntax: Vec<Wrong> =
        syntax.iter().map(|error| (place(error), error.message().replace('\n', ", "))).collect();
    let settings = reader.read(table.get_ref());
    let mut wrong = reader.wrong;
    // A value with a syntax error has this error alone.
    wrong.retain(|(at, _)| !syntax.iter().any(|(broken, _)| broken.start == at.start));
    wrong.extend(syntax);
    if wrong.is_empty() {
        return Ok(settings);
    }
    wrong.sort_by_key(|(at, _)| at.start);
    let line = |(at, what): Wrong| {
        let before = text.as_bytes().iter().take(at.start);
        format!("line {}: {what}", before.filter(|byte| **byte == b'\n').count() + 1)
    };
    Err(wrong.into_iter().map(line).collect())
}

/// Reads the file and collects its errors.
#[derive(Default)]
struct Reader {
    wrong: Vec<Wrong>,
}

impl Reader {
    /// Records an error.
    fn noted<T>(&mut self, read: Result<T, Wrong>) -> Option<T> {
        read.map_err(|wrong| self.wrong.push(wrong)).ok()
    }

    fn read(&mut self, table: &DeTable<'_>) -> NodeSettings {
        let (mut settings, mut until) = (NodeSettings::default(), None);
        for (key, value) in table {
            match &**key.get_ref() {
                "until" => until = self.noted(instant(value)),
                "sources" => settings.sources = self.sections(value, source_setting),
                "burst" => settings.bursts = self.sections(value, burst_setting),
                "promote" => {
                    for table in self.noted(tables(value)).unwrap_or_default() {
                        let promotion = self.noted(promotion(table, value));
                        settings.promotions.extend(promotion);
                    }
                }
                "flush" => {
                    for table in self.noted(tables(value)).unwrap_or_default() {
                        let flush = self.noted(flush(table, value));
                        settings.flushes.extend(flush.flatten());
                    }
                }
                _ => self.wrong.push(unknown(key)),
            }
        }
        for changed in settings.sources.values_mut() {
            if changed.until.is_some() {
                let what = "`until` belongs at the top of the file, for all sources".to_owned();
                self.wrong.push((0..0, what));
            }
            changed.until = until;
        }
        settings
    }

    /// Reads the sections of sources or of bursts.
    fn sections(
        &mut self,
        value: &Item<'_>,
        kind_of: impl Fn(&str) -> Option<Kind>,
    ) -> BTreeMap<Box<str>, Override> {
        let mut sections = BTreeMap::new();
        for (source, section) in self.noted(table_of(value)).into_iter().flatten() {
            if !model::is_word(source.get_ref()) {
                let what = format!("`{}` is not a source name", source.get_ref());
                self.wrong.push((source.span(), what));
                continue;
            }
            let mut changed = Override::default();
            for (key, value) in self.noted(table_of(section)).into_iter().flatten() {
                let name = &**key.get_ref();
                if name == "until" {
                    changed.until = self.noted(instant(value));
                    continue;
                }
                let kind = kind_of(name).ok_or_else(|| unknown(key));
                let typed = self.noted(kind.and_then(|kind| typed(name, value, kind)));
                changed.values.extend(typed.map(|value| (name.into(), value)));
            }
            sections.insert((&**source.get_ref()).into(), changed);
        }
        sections
    }
}

fn promotion(table: &DeTable<'_>, list: &Item<'_>) -> Result<(Box<str>, Timestamp), Wrong> {
    let metric = field(table, list, "metric")?;
    let name = text_of(metric)?;
    expression::check(name).map_err(|what| (metric.span(), what))?;
    Ok((name.into(), instant(field(table, list, "until")?)?))
}

fn flush(table: &DeTable<'_>, list: &Item<'_>) -> Result<Option<FlushRequest>, Wrong> {
    let source = text_of(field(table, list, "source")?)?.into();
    let number = field(table, list, "number")?;
    let kind = Kind::Number { min: 0, max: u64::MAX };
    Ok(match typed("number", number, kind)? {
        SettingValue::Number(number) => Some(FlushRequest { source, number }),
        _ => None,
    })
}

fn unknown(key: &Key<'_>) -> Wrong {
    (key.span(), format!("`{}` is not a setting for agents", key.get_ref()))
}

/// Parses a value by the type of its setting.
fn typed(name: &str, value: &Item<'_>, kind: Kind) -> Result<SettingValue, Wrong> {
    let wrong = |want: String| (value.span(), format!("`{name}` must be {want}"));
    let texts = |values: &[Item<'_>]| {
        let texts = values.iter().map(|value| value.get_ref().as_str());
        Some(texts.collect::<Option<Vec<&str>>>()?.join(","))
    };
    let text = match value.get_ref() {
        DeValue::Array(values) => texts(values),
        DeValue::Table(_) => None,
        value => Some(plain(value)),
    };
    kind.value(&text.ok_or_else(|| wrong(kind.wants()))?).map_err(wrong)
}

/// The text of a value that is neither a list nor a table.
fn plain(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(truth) => truth.to_string(),
        DeValue::Datetime(time) => time.to_string(),
        DeValue::Array(_) | DeValue::Table(_) => String::new(),
    }
}

fn instant(value: &Item<'_>) -> Result<Timestamp, Wrong> {
    let wrong = |_| (value.span(), "it must be a time such as 2026-01-06T14:00:00Z".to_owned());
    Timestamp::parse(&plain(value.get_ref())).map_err(wrong)
}

fn text_of<'a>(value: &'a Item<'_>) -> Result<&'a str, Wrong> {
    value.get_ref().as_str().ok_or_else(|| (value.span(), "it must be a text".to_owned()))
}

fn table_of<'a, 'b>(value: &'a Item<'b>) -> Result<&'a DeTable<'b>, Wrong> {
    value.get_ref().as_table().ok_or_else(|| (value.span(), "it must be a section".to_owned()))
}

fn tables<'a, 'b>(value: &'a Item<'b>) -> Result<Vec<&'a DeTable<'b>>, Wrong> {
    let wrong = || (value.span(), "it must be a list of tables".to_owned());
    value.get_ref().as_array().ok_or_else(wrong)?.iter().map(table_of).collect()
}

/// Returns a required field of a table in a list.
fn field<'a, 'b>(
    table: &'a DeTable<'b>,
    list: &Item<'_>,
    name: &str,
) -> Result<&'a Item<'b>, Wrong> {
    table.get(name).ok_or_else(|| (list.span(), format!("it has no `{name}`")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_file_is_typed_settings() {
        let text = "until = 2026-01-06T14:00:00Z\n[sources.perf]\nenabled = true\nperiod = \"1s\"\n\
                    events = [\"cache_ll\", \"faults\"]\n[burst.cpu]\nkeep = \"1m\"\nuntil = 60\n\
                    [[promote]]\nmetric = \"fs_.*\"\nuntil = \"1970-01-01T00:01:00Z\"\n\
                    [[flush]]\nsource = \"cpu\"\nnumber = 17\n";
        let config = AgentConfig::parse(text).unwrap();
        let NodeSettings { sources, bursts, promotions, flushes } = &config.settings;
        let perf = &sources["perf"];
        assert_eq!(perf.until, Some(Timestamp::from_seconds(1_767_708_000)));
        assert_eq!(perf.values["enabled"], SettingValue::Switch(true));
        assert_eq!(perf.values["period"], SettingValue::Duration(Duration::from_secs(1)));
        let events = ["cache_ll", "faults"].map(Into::into).to_vec();
        assert_eq!(perf.values["events"], SettingValue::List(events));
        let minute = Timestamp::from_seconds(60);
        assert_eq!(bursts["cpu"].until, Some(minute));
        assert_eq!(promotions["fs_.*"], minute);
        assert_eq!(flushes, &[FlushRequest { source: "cpu".into(), number: 17 }]);
        assert_eq!(wire::decode_settings(&config.encoded), Ok(config.settings));
        assert_eq!(AgentConfig::parse("# nothing\n"), Ok(AgentConfig::default()));
    }

    #[test]
    fn an_error_is_reported_with_its_line() {
        let many = (0..5).map(|n| format!("[burst.s{n}]\nuntil = 60\n")).collect::<String>();
        for (text, part) in [
            ("[[[", "line 1: "),
            ("x = 1\n", "line 1: `x` is not a setting for agents"),
            ("[sources.load]\nenabled = true\nperiodd = \"1s\"\n", "line 3: `periodd` is not"),
            ("[sources.load]\nperiod = \"2d\"\n", "line 2: `period` must be a time from"),
            ("[sources.load]\nenabled = [1]\n", "line 2: `enabled` must be true or false"),
            ("[sources.\"a b\"]\n", "line 1: `a b` is not a source name"),
            ("[sources.load]\nuntil = 60\n", "`until` belongs at the top"),
            ("[[promote]]\nmetric = \"(\"\nuntil = 60\n", "line 2: `metric` is not a regular"),
            ("[[promote]]\nmetric = \"x\"\n", "line 1: it has no `until`"),
            ("[[flush]]\nsource = \"cpu\"\nnumber = -1\n", "line 3: `number` must be"),
            (&many, "5 bursts; a node accepts 4"),
            (&"#".repeat(BYTES_MAX + 1), "longer than"),
        ] {
            let why = AgentConfig::parse(text).unwrap_err().join("\n");
            assert!(why.contains(part), "{part}: {why}");
        }
    }

    #[test]
    fn every_invalid_line_is_reported() {
        let text = "a = \nuntil = 7x\n[sources.load]\nperiod = \"2d\"\nnosuch = 1\n[burst.cpu]\nkeep = 3\n\
                    [[flush]]\nsource = \"cpu\"\n";
        let errors = AgentConfig::parse(text).unwrap_err();
        for line in [
            "line 1: ",
            "line 2: ",
            "line 4: `period`",
            "line 5: `nosuch`",
            "line 8: it has no `number`",
        ] {
            assert!(errors.iter().any(|error| error.starts_with(line)), "{line} {errors:#?}");
        }
        let lines: Vec<&str> = errors.iter().filter_map(|error| error.split(':').next()).collect();
        assert!(lines.is_sorted(), "{errors:#?}");
    }

    #[test]
    fn a_generation_names_its_settings() {
        assert_ne!(generation(b"a"), generation(b"b"));
        assert_eq!(generation(b"a"), generation(b"a"));
        assert_eq!(generation(b""), 0);
    }
}
