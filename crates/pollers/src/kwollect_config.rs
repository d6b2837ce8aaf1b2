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
/// Characters of a key or value in a message.
const SHOWN_MAX: usize = 100;
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
    /// What is wrong with a value of its type.
    check: fn(&str) -> Option<String>,
}

const fn used(name: &'static str, short: Option<char>, help: &'static str) -> Key {
    Key { name, short, is_number: false, is_used: true, help, check: |_| None }
}

const fn unused(name: &'static str, short: Option<char>) -> Key {
    Key { is_used: false, ..used(name, short, "Checked, and not used") }
}

const LOG_LEVEL: Key = Key {
    check: |text| match level(text) {
        Some(_) => None,
        None => {
            Some(format!("`{}` is none of critical, error, warning, info or debug", shown(text)))
        }
    },
    ..used("log_level", Some('l'), "Level of the log: critical, error, warning, info or debug")
};

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
        check: |text| match line_version(text) {
            Some(_) => None,
            None => Some(format!("`{}` is neither 2 nor 3", shown(text))),
        },
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

/// Why a configuration is rejected: every error with its file and line, or its option.
#[derive(Debug, Default, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct KwollectErrors(pub Vec<String>);

/// The values of the keys that are set, with their places.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct KwollectConfig {
    values: BTreeMap<&'static str, (String, String)>,
    /// What the user should know, a line each.
    pub notes: Vec<String>,
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
    pub(crate) fn read(keys: &'static [Key], matches: &ArgMatches) -> Result<Self, KwollectErrors> {
        let (mut config, mut errors) = (Self::default(), Vec::new());
        if let Some(file) = matches.get_one::<PathBuf>(FILE) {
            config.add_file(keys, file, &mut errors);
        }
        for key in keys {
            if let Some(text) = matches.get_one::<String>(key.name) {
                let place = format!("--{}", key.name);
                if key.is_number && text.parse::<i64>().is_err() {
                    errors.push(format!("{place}: an integer is expected"));
                } else {
                    config.values.insert(key.name, (text.clone(), place));
                }
            }
        }
        config.drop_wrong(keys, &mut errors);
        let is_unused = |key: &&Key| !key.is_used && config.values.contains_key(key.name);
        let unused: Vec<&str> = keys.iter().filter(is_unused).map(|key| key.name).collect();
        if !unused.is_empty() {
            let names = unused.join(", ");
            config.notes.push(format!("not used: {names}: samples go to the server of jobmeter"));
        }
        if errors.is_empty() { Ok(config) } else { Err(KwollectErrors(errors)) }
    }

    /// Reads a file of kwollector. A wrong value is an error, and hides no other key.
    pub fn of_kwollector(file: &Path) -> (Self, KwollectErrors) {
        let (mut config, mut errors) = (Self::default(), Vec::new());
        config.add_file(&KWOLLECTOR, file, &mut errors);
        config.drop_wrong(&KWOLLECTOR, &mut errors);
        (config, KwollectErrors(errors))
    }

    /// Drops wrong values.
    fn drop_wrong(&mut self, keys: &[Key], errors: &mut Vec<String>) {
        for key in keys {
            if let Some((text, place)) = self.values.get(key.name)
                && !text.is_empty()
                && let Some(what) = (key.check)(text)
            {
                errors.push(format!("{place}: {}: {what}", key.name));
                self.values.remove(key.name);
            }
        }
    }

    fn add_file(&mut self, keys: &'static [Key], file: &Path, errors: &mut Vec<String>) {
        let place = |line: usize| format!("{}:{line}", file.display());
        let text = config::read_small(file, FILE_BYTES_MAX).and_then(config::as_text);
        let document = match text {
            Ok(text) => load(&text).map_err(|why| format!("{}: {}", place(why.line), why.what)),
            Err(why) => Err(format!("{}: {why}", file.display())),
        };
        let entries = match document {
            Err(error) => return errors.push(error),
            Ok(Node { value: Value::Null, .. }) => return,
            Ok(Node { value: Value::Map(entries), .. }) => entries,
            Ok(Node { value, line }) => {
                let kind = value.kind();
                return errors
                    .push(format!("{}: a map of keys is expected, not {kind}", place(line)));
            }
        };
        for (name, node) in &entries {
            let known = |key: &&Key| matches!(&name.value, Value::Text(text) if text == key.name);
            let Some(key) = keys.iter().find(known) else {
                self.notes.push(format!("{}: warning: {}", place(name.line), unknown(keys, name)));
                continue;
            };
            match text_of(key, node) {
                Ok(text) => {
                    self.values.insert(key.name, (text, place(node.line)));
                }
                Err(what) => errors.push(format!("{}: {}: {what}", place(node.line), key.name)),
            }
        }
    }

    /// The value of a key that is set and not empty.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(|(text, _)| &**text).filter(|text| !text.is_empty())
    }

    /// Our word for the level of the log, if it is set.
    pub fn log_level(&self) -> Option<&'static str> {
        self.get(LOG_LEVEL.name).and_then(level)
    }

    /// The folder of kwollector's description files.
    pub fn metrics_dir(&self) -> PathBuf {
        self.get("metrics_dir").unwrap_or(METRICS_DIR).into()
    }

    /// The parameters of the original's database, as libpq has them, without the password.
    pub fn database(&self) -> String {
        let value = |key, default| quoted(self.get(key).unwrap_or(default));
        format!(
            "host={} user={} dbname={}",
            value("db_host", "localhost"),
            value("db_user", "kwuser"),
            value("db_name", "kwdb")
        )
    }

    /// The command that runs a server on the database of the original.
    pub(crate) fn server_command(&self) -> String {
        // A quote ends the argument of a shell.
        let parameters = self.database().replace('\'', "'\\''");
        format!(
            "jobmeter server --store postgres --postgres-database '{parameters}' --postgres-password-file FILE"
        )
    }

    /// What kwollector-wattmetre reads.
    pub(crate) fn feed_options(&self) -> FeedOptions {
        FeedOptions {
            id: self.get("wattmetre_id").unwrap_or(METER).to_owned(),
            version: self
                .get("wattmetre_version")
                .and_then(line_version)
                .unwrap_or(LineVersion::V2),
            mapping: self.get("mapping_file_path").map(PathBuf::from),
            is_every_sample: false,
        }
    }
}

/// Our word for a level of Python's logging.
pub fn level(text: &str) -> Option<&'static str> {
    match &*text.to_ascii_lowercase() {
        "critical" | "fatal" | "error" => Some("error"),
        "warning" | "warn" => Some("warn"),
        "info" => Some("info"),
        "debug" | "notset" => Some("debug"),
        _ => None,
    }
}

fn line_version(text: &str) -> Option<LineVersion> {
    match text {
        "2" => Some(LineVersion::V2),
        "3" => Some(LineVersion::V3),
        _ => None,
    }
}

/// A value of libpq's parameters.
fn quoted(text: &str) -> String {
    if !text.is_empty() && !text.contains([' ', '\'', '\\', '=']) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// The beginning of a value, for a message.
fn shown(text: &str) -> String {
    let start: String = text.chars().take(SHOWN_MAX).collect();
    start.escape_debug().to_string()
}

/// The warning of an unknown key.
fn unknown(keys: &[Key], name: &Node) -> String {
    let written = match &name.value {
        Value::Text(text) => shown(text),
        other => other.kind().to_owned(),
    };
    let near = nearest(&written, keys.iter().map(|key| key.name));
    let near = near.map(|near| format!("; `{near}` is known")).unwrap_or_default();
    format!("unknown key `{written}`{near}")
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
    ) -> Result<KwollectConfig, KwollectErrors> {
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
        assert_eq!(config.log_level(), Some("debug"));
        assert_eq!(
            config.notes,
            ["not used: worker, db_host: samples go to the server of jobmeter"]
        );
        for words in [&["--metrics_dir", "/b"][..], &["-m", "/b"], &["--metrics=/b"]] {
            assert_eq!(read(&KWOLLECTOR, text, words).unwrap().metrics_dir(), Path::new("/b"));
        }
        let empty = read(&KWOLLECTOR, "", &[]).unwrap();
        assert_eq!(empty.metrics_dir(), Path::new(METRICS_DIR));
        assert_eq!((empty.log_level(), empty.notes.len()), (None, 0));
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
        assert_eq!(options(&[]), expected);
        let words = ["-w", "w", "--wattmetre_version", "2", "--mapping_file_path", "/m"];
        let version = LineVersion::V2;
        let changed =
            FeedOptions { id: "w".into(), version, mapping: Some("/m".into()), ..expected };
        assert_eq!(options(&words), changed);
        let none = read(&WATTMETRE, "", &[]).unwrap().feed_options();
        assert_eq!((&*none.id, none.version), (METER, LineVersion::V2));
    }

    #[test]
    fn the_command_of_a_server_has_the_database_and_no_password() {
        let command = |text| read(&KWOLLECTOR, text, &[]).unwrap().server_command();
        let expected = |parameters: &str| {
            format!(
                "jobmeter server --store postgres --postgres-database '{parameters}' \
                 --postgres-password-file FILE"
            )
        };
        assert_eq!(command("{}"), expected("host=localhost user=kwuser dbname=kwdb"));
        let text = "db_host: /run/postgresql\ndb_name: \"a' b\"\ndb_user: u\ndb_password: secret\n";
        assert_eq!(command(text), expected(r"host=/run/postgresql user=u dbname='\''a\'\'' b'\''"));
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
            let error = read(&WATTMETRE, text, words).unwrap_err().to_string();
            assert!(error.contains(key), "{text}: {error}");
        }
        assert!(read(&WATTMETRE, "- a", &[]).is_err());
        let config = read(&WATTMETRE, "wattmeter_id: a", &[]).unwrap();
        assert!(config.notes[0].contains("`wattmetre_id` is known"), "{:?}", config.notes);
    }

    #[test]
    fn all_wrong_values_are_reported_together() {
        let text = "wattmetre_version: 4\nwattmetre_id: [a]\nlog_level: loud\ndb_host: {a: b}\n";
        let error = read(&WATTMETRE, text, &[]).unwrap_err();
        assert_eq!(error.0.len(), 4, "{error}");
        for (line, key) in [(1, "wattmetre_version"), (2, "wattmetre_id"), (3, "log_level")] {
            let place = format!("conf:{line}: {key}: ");
            assert!(error.0.iter().any(|one| one.contains(&place)), "{place} {error}");
        }
        // An option comes before a wrong value of the file.
        let words = ["--wattmetre_version", "3", "--log_level", "info"];
        assert_eq!(read(&WATTMETRE, text, &words).unwrap_err().0.len(), 2);
    }
}
