//! The configuration of kwollector and kwollector-wattmetre: a YAML file, and an option for each of its keys.

use crate::wattmeter::{FeedOptions, LineVersion};
use crate::yaml::{Node, Value, load};
use clap::builder::NonEmptyStringValueParser;
use clap::{Arg, ArgMatches};
use model::nearest;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Bytes of a file.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// The argument with the file.
const FILE: &str = "conf_file";

/// A key of the configuration.
#[derive(Debug)]
pub(crate) struct Key {
    name: &'static str,
    short: Option<char>,
    is_number: bool,
    is_used: bool,
    help: &'static str,
}

const fn used(name: &'static str, short: Option<char>, help: &'static str) -> Key {
    Key { name, short, is_number: false, is_used: true, help }
}

const fn unused(name: &'static str, short: Option<char>) -> Key {
    Key { name, short, is_number: false, is_used: false, help: "Checked, and not used" }
}

const LOG_LEVEL: Key =
    used("log_level", Some('l'), "Level of the log: critical, error, warning, info or debug");

/// The keys of kwollector.
pub(crate) static KWOLLECTOR: [Key; 7] = [
    used(
        "metrics_dir",
        Some('m'),
        "The folder of description files [default: /etc/kwollect/metrics.d/]",
    ),
    LOG_LEVEL,
    Key { is_number: true, ..unused("worker", Some('w')) },
    unused("db_host", Some('d')),
    unused("db_name", None),
    unused("db_user", None),
    unused("db_password", None),
];

/// The keys of kwollector-wattmetre.
pub(crate) static WATTMETRE: [Key; 8] = [
    used("wattmetre_id", Some('w'), "The ID of the meter [default: wattmetre]"),
    Key {
        is_number: true,
        ..used("wattmetre_version", None, "The version of its lines: 2 or 3 [default: 2]")
    },
    used("mapping_file_path", Some('m'), "The file with the nodes that its ports feed"),
    LOG_LEVEL,
    unused("db_host", Some('d')),
    unused("db_name", None),
    unused("db_user", None),
    unused("db_password", None),
];

/// The folder of description files that kwollector reads by default.
const METRICS_DIR: &str = "/etc/kwollect/metrics.d/";
/// The ID of a meter by default.
const METER: &str = "wattmetre";

/// Why a configuration is rejected.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {what}")]
pub(crate) struct KwollectError {
    /// The file with its line, or the option.
    place: String,
    what: String,
}

/// The values of the keys that are set, with their places.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct KwollectConfig {
    values: BTreeMap<&'static str, (String, String)>,
    /// What the user should know, a line each.
    pub(crate) notes: Vec<String>,
}

/// The arguments of a command with these keys.
pub(crate) fn args(keys: &[Key]) -> Vec<Arg> {
    let file = Arg::new(FILE).value_name("CONF").help("The YAML file with the keys below");
    let mut args = vec![file.value_parser(clap::value_parser!(PathBuf))];
    args.extend(keys.iter().map(|key| {
        let arg = Arg::new(key.name).long(key.name).help(key.help).help_heading("Keys");
        let arg = key.short.into_iter().fold(arg, Arg::short);
        let arg = arg.value_name(if key.is_number { "N" } else { "TEXT" });
        arg.value_parser(NonEmptyStringValueParser::new())
    }));
    args
}

impl KwollectConfig {
    /// Reads the file and the options. An option comes before the file.
    pub(crate) fn read(keys: &'static [Key], matches: &ArgMatches) -> Result<Self, KwollectError> {
        let mut config = Self::default();
        if let Some(file) = matches.get_one::<PathBuf>(FILE) {
            let text = config::read_small(file, FILE_BYTES_MAX).and_then(config::as_text);
            let place = || file.display().to_string();
            let text =
                text.map_err(|why| KwollectError { place: place(), what: why.to_string() })?;
            config.add_file(keys, file, &text)?;
        }
        for key in keys {
            if let Some(text) = matches.get_one::<String>(key.name) {
                let place = format!("--{}", key.name);
                if key.is_number && text.parse::<i64>().is_err() {
                    return Err(KwollectError { place, what: "an integer is expected".into() });
                }
                config.values.insert(key.name, (text.clone(), place));
            }
        }
        let is_unused = |key: &&Key| !key.is_used && config.values.contains_key(key.name);
        let unused: Vec<&str> = keys.iter().filter(is_unused).map(|key| key.name).collect();
        if !unused.is_empty() {
            let names = unused.join(", ");
            config.notes.push(format!("not used: {names}: samples go to the server of jobmeter"));
        }
        Ok(config)
    }

    fn add_file(
        &mut self,
        keys: &'static [Key],
        file: &Path,
        text: &str,
    ) -> Result<(), KwollectError> {
        let place = |line: usize| format!("{}:{line}", file.display());
        let error = |line, what| KwollectError { place: place(line), what };
        let document = load(text).map_err(|why| error(why.line, why.what))?;
        let entries = match &document.value {
            Value::Null => return Ok(()),
            Value::Map(entries) => entries,
            other => {
                let what = format!("a map of keys is expected, not {}", other.kind());
                return Err(error(document.line, what));
            }
        };
        for (name, node) in entries {
            let known = |key: &&Key| matches!(&name.value, Value::Text(text) if text == key.name);
            match keys.iter().find(known) {
                Some(key) => {
                    let text = text_of(key, node);
                    let text =
                        text.map_err(|what| error(node.line, format!("{}: {what}", key.name)))?;
                    self.values.insert(key.name, (text, place(node.line)));
                }
                None => {
                    let written = match &name.value {
                        Value::Text(text) => text.escape_debug().to_string(),
                        other => other.kind().to_owned(),
                    };
                    let near = nearest(&written, keys.iter().map(|key| key.name));
                    let near = near.map(|near| format!("; `{near}` is known")).unwrap_or_default();
                    self.notes.push(format!(
                        "{}: warning: unknown key `{written}`{near}",
                        place(name.line)
                    ));
                }
            }
        }
        Ok(())
    }

    fn get(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(|(text, _)| &**text).filter(|text| !text.is_empty())
    }

    fn error(&self, key: &str, what: String) -> KwollectError {
        let place = self.values.get(key).map(|(_, place)| place.clone()).unwrap_or_default();
        KwollectError { place, what: format!("{key}: {what}") }
    }

    /// Our word for the level of the log, if it is set.
    pub(crate) fn log_level(&self) -> Result<Option<&'static str>, KwollectError> {
        let Some(level) = self.get(LOG_LEVEL.name) else { return Ok(None) };
        match &*level.to_ascii_lowercase() {
            "critical" | "fatal" | "error" => Ok(Some("error")),
            "warning" | "warn" => Ok(Some("warn")),
            "info" => Ok(Some("info")),
            "debug" | "notset" => Ok(Some("debug")),
            other => {
                let levels = "critical, error, warning, info or debug";
                let what = format!("`{}` is none of {levels}", other.escape_debug());
                Err(self.error(LOG_LEVEL.name, what))
            }
        }
    }

    /// The folder of kwollector's description files.
    pub(crate) fn metrics_dir(&self) -> PathBuf {
        self.get("metrics_dir").unwrap_or(METRICS_DIR).into()
    }

    /// What kwollector-wattmetre reads.
    pub(crate) fn feed_options(&self) -> Result<FeedOptions, KwollectError> {
        let version = match self.get("wattmetre_version") {
            None | Some("2") => LineVersion::V2,
            Some("3") => LineVersion::V3,
            Some(other) => {
                let what = format!("`{}` is neither 2 nor 3", other.escape_debug());
                return Err(self.error("wattmetre_version", what));
            }
        };
        Ok(FeedOptions {
            id: self.get("wattmetre_id").unwrap_or(METER).to_owned(),
            version,
            mapping: self.get("mapping_file_path").map(PathBuf::from),
            is_every_sample: false,
        })
    }
}

/// The value of a key as text. Python writes an integer as it stands.
fn text_of(key: &Key, node: &Node) -> Result<String, String> {
    match &node.value {
        Value::Int(number) => Ok(number.to_string()),
        Value::Text(text) if !key.is_number => Ok(text.clone()),
        Value::Null if !key.is_number => Ok(String::new()),
        other if key.is_number => Err(format!("an integer is expected, not {}", other.kind())),
        other => Err(format!("a text is expected, not {}; quote it", other.kind())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Command;

    fn read(
        keys: &'static [Key],
        text: &str,
        words: &[&str],
    ) -> Result<KwollectConfig, KwollectError> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("conf");
        std::fs::write(&file, text).unwrap();
        let command = Command::new("x").args(args(keys)).infer_long_args(true);
        let words = [&["x", file.to_str().unwrap()], words].concat();
        KwollectConfig::read(keys, &command.try_get_matches_from(words).unwrap())
    }

    #[test]
    fn an_option_comes_before_the_file_and_that_before_the_default() {
        let text = "metrics_dir: /a\ndb_host: h\nworker: 3\nlog_level: DEBUG\n";
        let config = read(&KWOLLECTOR, text, &[]).unwrap();
        assert_eq!(config.metrics_dir(), Path::new("/a"));
        assert_eq!(config.log_level(), Ok(Some("debug")));
        assert_eq!(
            config.notes,
            ["not used: worker, db_host: samples go to the server of jobmeter"]
        );
        for words in [&["--metrics_dir", "/b"][..], &["-m", "/b"], &["--metrics=/b"]] {
            assert_eq!(read(&KWOLLECTOR, text, words).unwrap().metrics_dir(), Path::new("/b"));
        }
        let empty = read(&KWOLLECTOR, "", &[]).unwrap();
        assert_eq!(empty.metrics_dir(), Path::new(METRICS_DIR));
        assert_eq!((empty.log_level(), empty.notes.len()), (Ok(None), 0));
    }

    #[test]
    fn the_keys_of_the_wattmeter_are_options_of_a_feed() {
        let text = "wattmetre_id: site-1\nwattmetre_version: 3\nmapping_file_path: ''\n";
        let options = |words| read(&WATTMETRE, text, words).unwrap().feed_options();
        let expected = FeedOptions {
            id: "site-1".into(),
            version: LineVersion::V3,
            mapping: None,
            is_every_sample: false,
        };
        assert_eq!(options(&[]), Ok(expected.clone()));
        let words = ["-w", "w", "--wattmetre_version", "2", "--mapping_file_path", "/m"];
        let version = LineVersion::V2;
        let changed =
            FeedOptions { id: "w".into(), version, mapping: Some("/m".into()), ..expected };
        assert_eq!(options(&words), Ok(changed));
        let none = read(&WATTMETRE, "", &[]).unwrap().feed_options().unwrap();
        assert_eq!((&*none.id, none.version), (METER, LineVersion::V2));
    }

    #[test]
    fn a_wrong_value_is_an_error_with_its_key() {
        for (text, words, key) in [
            ("wattmetre_version: 4", &[][..], "wattmetre_version"),
            ("wattmetre_version: '2'", &[], "wattmetre_version"),
            ("wattmetre_id: [a]", &[], "wattmetre_id"),
            ("db_password: {a: b}", &[], "db_password"),
            ("log_level: loud", &[], "log_level"),
            ("", &["--wattmetre_version", "x"], "wattmetre_version"),
        ] {
            let config = read(&WATTMETRE, text, words);
            let checked = config.and_then(|config| {
                config.log_level()?;
                config.feed_options()
            });
            let error = checked.unwrap_err().to_string();
            assert!(error.contains(key), "{text}: {error}");
        }
        assert!(read(&WATTMETRE, "- a", &[]).is_err());
        let config = read(&WATTMETRE, "wattmeter_id: a", &[]).unwrap();
        assert!(config.notes[0].contains("`wattmetre_id` is known"), "{:?}", config.notes);
    }
}
