//! Layers of values: default, file, environment, flag. Later layers override earlier ones; each value keeps its origin.

use crate::settings::file::{self, TableSettings, WrongKey};
use crate::settings::setting::{Kind, Setting};
use crate::settings::small_file::{FILE_BYTES_MAX, as_text, open_regular, read_whole};
use crate::settings::text::{Raw, Value, wrong};
use kernel::trust::changed_by_others;
use model::nearest;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The origin of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueOrigin {
    /// The declaration.
    Default,
    /// A file.
    File {
        /// Its path.
        path: Arc<Path>,
        /// The line, from 1.
        line: usize,
        /// The character of the line, from 1.
        column: usize,
    },
    /// An environment variable.
    Environment(String),
    /// A flag.
    Flag(String),
}

/// `agent.toml:3`, `environment JOBMETER_PERIOD`, `flag --period`, `default`.
impl fmt::Display for ValueOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line, .. } => write!(f, "{}:{line}", path.display()),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// One error with its origin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    /// Origin of the invalid value.
    pub place: ValueOrigin,
    /// What is wrong, and what is valid.
    pub what: String,
}

/// `agent.toml:3:5: unknown key ...`.
impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            ValueOrigin::File { path, line, column } => {
                write!(f, "{}:{line}:{column}: {}", path.display(), self.what)
            }
            ValueOrigin::Default => f.write_str(&self.what),
            place => write!(f, "{place}: {}", self.what),
        }
    }
}

/// All errors of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigErrors(pub Vec<ConfigError>);

/// One per line.
impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.0.iter().enumerate() {
            write!(f, "{}{error}", if i == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

/// The file to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigFile {
    /// This one, which must exist.
    Given(PathBuf),
    /// This one, if it exists.
    Default(PathBuf),
    /// None.
    None,
}

/// The settings that the tables of a file's text have, and its wrong keys.
pub(crate) type OfTables = (Vec<Setting>, Vec<WrongKey>);

/// The value and origin of each setting.
#[derive(Clone, Debug)]
pub struct Values {
    settings: Vec<Setting>,
    values: BTreeMap<String, (Raw, ValueOrigin)>,
    /// Why the file is not trusted to name a program.
    distrust: Option<String>,
    /// Whether a file was read.
    has_file: bool,
}

/// The inputs of a configuration.
pub struct ConfigInputs<'a> {
    /// The file to read.
    pub file: ConfigFile,
    /// The environment.
    pub environment: &'a dyn Fn(&str) -> Option<String>,
    /// Keys with the values of their flags.
    pub flags: Vec<(String, Raw)>,
}

impl fmt::Debug for ConfigInputs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, flags, .. } = self;
        f.debug_struct("ConfigInputs")
            .field("file", file)
            .field("flags", flags)
            .finish_non_exhaustive()
    }
}

impl Values {
    /// Reads every layer. Adds all invalid values to `errors`.
    pub(crate) fn read(
        settings: Vec<Setting>,
        given: &ConfigInputs<'_>,
        errors: &mut Vec<ConfigError>,
    ) -> Self {
        Self::read_with_tables(settings, &|_| Default::default(), given, errors)
    }

    /// As [`Self::read`], with the settings that the tables of the file's text have, and its wrong keys.
    pub(crate) fn read_with_tables(
        mut settings: Vec<Setting>,
        tables: &dyn Fn(&str) -> OfTables,
        given: &ConfigInputs<'_>,
        errors: &mut Vec<ConfigError>,
    ) -> Self {
        let file = file_text(&given.file, errors);
        let (of_tables, wrong_keys) =
            file.as_ref().map(|file| tables(&file.text)).unwrap_or_default();
        settings.extend(of_tables);
        let values = settings.iter().map(|setting| {
            let raw = Raw::One(setting.default.to_string());
            (setting.key.to_string(), (raw, ValueOrigin::Default))
        });
        let mut all = Self { values: values.collect(), settings, distrust: None, has_file: false };
        if let Some(FileText { path, text, distrust }) = file {
            all.add_file((&path, &text), &wrong_keys, errors);
            all.distrust = distrust;
            all.has_file = true;
        }
        for setting in all.settings.clone() {
            let name = setting.variable();
            if let Some(text) = (given.environment)(&name) {
                all.add(&setting.key, Raw::One(text), ValueOrigin::Environment(name), errors);
            }
        }
        for (key, raw) in &given.flags {
            let flag = format!("--{}", key.replace(['_', '.'], "-"));
            all.add(key, raw.clone(), ValueOrigin::Flag(flag), errors);
        }
        all.only_the_file_has(errors);
        all
    }

    /// Rejects values from other origins if only the file may set them.
    fn only_the_file_has(&self, errors: &mut Vec<ConfigError>) {
        for setting in self.settings.iter().filter(|setting| setting.in_file_only) {
            if let Some((_, ValueOrigin::Environment(_) | ValueOrigin::Flag(_))) =
                self.raw(&setting.key)
            {
                let what = format!("`{}` is allowed only in the agent's own file", setting.key);
                errors.push(self.error(&setting.key, &what));
            }
        }
    }

    /// Why the file is not trusted to name a program, and how to correct it.
    pub(crate) fn distrust(&self) -> Option<&str> {
        self.distrust.as_deref()
    }

    /// Adds the values of a file. The value of a mistyped key is checked as that of the key that is probably meant.
    /// The unknown key is an error, so no program runs with that value.
    fn add_file(
        &mut self,
        (path, text): (&Path, &str),
        wrong_keys: &[WrongKey],
        errors: &mut Vec<ConfigError>,
    ) {
        let of_file = TableSettings { settings: &self.settings, wrong_keys };
        let file::FileValues { found, guessed } = file::read(path, text, of_file, errors);
        for (key, raw, origin) in found {
            self.add(&key, self.beside(path, &key, raw), origin, errors);
        }
        for (key, raw, origin) in guessed {
            if self.is_default(&key) {
                self.add(&key, self.beside(path, &key, raw), origin, errors);
            }
        }
    }

    /// A value of a file with its relative paths completed: they start at the file's folder.
    fn beside(&self, file: &Path, key: &str, raw: Raw) -> Raw {
        let setting = self.settings.iter().find(|setting| setting.key == key);
        if !setting.is_some_and(Setting::is_path) {
            return raw;
        }
        let Some(folder) = file.parent() else { return raw };
        let full = |text: String| {
            let is_none = setting.is_some_and(|setting| setting.is_word(&text));
            let path = Path::new(&text);
            if text.is_empty() || is_none || path.is_absolute() {
                return text;
            }
            folder.join(path).into_os_string().into_string().unwrap_or(text)
        };
        match raw {
            Raw::One(text) => Raw::One(full(text)),
            Raw::Many(texts) => Raw::Many(texts.into_iter().map(full).collect()),
        }
    }

    /// Overrides a value if the new one is valid. An invalid one leaves the old value, so that one run finds
    /// every error.
    fn add(&mut self, key: &str, raw: Raw, origin: ValueOrigin, errors: &mut Vec<ConfigError>) {
        let Some(setting) = self.settings.iter().find(|setting| setting.key == key) else {
            errors.push(ConfigError { place: origin, what: unknown(key, &self.settings) });
            return;
        };
        let empty = raw == Raw::One(String::new()) && setting.default.is_empty();
        match setting.check(&raw) {
            Err(want) if !empty => {
                let what = match setting.kind {
                    // Its message already names the problem or the invalid word.
                    Kind::TextOf(..) | Kind::ListOf(..) => format!("`{key}`: {want}"),
                    _ => format!("`{key}` {}", wrong(&raw, &want)),
                };
                errors.push(ConfigError { place: origin, what });
            }
            _ => {
                self.values.insert(key.to_owned(), (raw, origin));
            }
        }
    }

    /// The settings that the values belong to.
    pub(crate) fn settings(&self) -> &[Setting] {
        &self.settings
    }

    /// The value and origin of a key.
    pub fn raw(&self, key: &str) -> Option<&(Raw, ValueOrigin)> {
        self.values.get(key)
    }

    /// The keys with different values in two configurations of one program, in order.
    pub fn changed_keys<'a>(&'a self, other: &Self) -> Vec<&'a str> {
        let differs = |(key, (raw, _)): &(&String, &(Raw, ValueOrigin))| {
            other.values.get(*key).is_none_or(|(before, _)| before != raw)
        };
        self.values.iter().filter(differs).map(|(key, _)| key.as_str()).collect()
    }

    /// Whether a file was read.
    pub const fn has_file(&self) -> bool {
        self.has_file
    }

    /// Whether a key has its default.
    pub fn is_default(&self, key: &str) -> bool {
        self.values.get(key).is_none_or(|(_, origin)| *origin == ValueOrigin::Default)
    }

    /// The typed value of a key. Adds an error to `errors` if it is invalid.
    pub(crate) fn get<T: Value>(&self, key: &str, errors: &mut Vec<ConfigError>) -> Option<T> {
        let Some((raw, origin)) = self.values.get(key) else {
            errors.push(ConfigError {
                place: ValueOrigin::Default,
                what: format!("`{key}` has no value"),
            });
            return None;
        };
        let wrong = |why: String| {
            let what = format!("`{key}` {why}");
            errors.push(ConfigError { place: origin.clone(), what });
        };
        T::from_raw(raw).map_err(wrong).ok()
    }

    /// As [`Self::get`], with the default in place of an invalid value, so that one run finds every error.
    pub(crate) fn get_or_default<T: Value>(
        &self,
        key: &str,
        errors: &mut Vec<ConfigError>,
    ) -> Option<T> {
        self.get(key, errors).or_else(|| {
            let setting = self.settings.iter().find(|setting| setting.key == key)?;
            T::from_raw(&Raw::One(setting.default.to_string())).ok()
        })
    }

    /// An error about the value of a key, with its origin.
    pub fn error(&self, key: &str, what: &str) -> ConfigError {
        let place = self.values.get(key).map_or(ValueOrigin::Default, |(_, origin)| origin.clone());
        ConfigError { place, what: what.to_owned() }
    }
}

/// Requires both of a certificate and its key, or none.
pub(crate) fn check_cert_and_key(
    cert: Option<&Path>,
    key: Option<&Path>,
    values: &Values,
    errors: &mut Vec<ConfigError>,
) {
    match (cert, key) {
        (Some(_), None) => errors.push(values.error("cert", "`cert` also needs `key`")),
        (None, Some(_)) => errors.push(values.error("key", "`key` also needs `cert`")),
        _ => {}
    }
}

/// The message for an unknown key, with the nearest valid name.
pub(crate) fn unknown(key: &str, settings: &[Setting]) -> String {
    let meant = meant(key, settings);
    let meant = meant.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
    format!("unknown key `{key}`{meant}")
}

/// The key or table that a mistyped one probably means.
pub(crate) fn meant(key: &str, settings: &[Setting]) -> Option<String> {
    let (table, name) = key.rsplit_once('.').unwrap_or(("", key));
    let mut here: Vec<&str> = settings
        .iter()
        .filter_map(|setting| match table {
            "" => Some(&*setting.key),
            _ => setting.key.strip_prefix(table)?.strip_prefix('.'),
        })
        .map(|rest| rest.split('.').next().unwrap_or(rest))
        .collect();
    here.dedup();
    nearest(name, here.iter().copied())
        .map(|near| if table.is_empty() { near.to_owned() } else { format!("{table}.{near}") })
        .or_else(|| nearest(key, settings.iter().map(|s| &*s.key)).map(str::to_owned))
}

/// The content of a file.
struct FileText {
    path: Arc<Path>,
    text: String,
    distrust: Option<String>,
}

fn file_text(file: &ConfigFile, errors: &mut Vec<ConfigError>) -> Option<FileText> {
    let (path, must) = match file {
        ConfigFile::Given(path) => (path, true),
        ConfigFile::Default(path) => (path, false),
        ConfigFile::None => return None,
    };
    // Checks the owner of the open file itself, not of the path.
    let read = || -> std::io::Result<FileText> {
        let file = open_regular(path)?;
        let distrust = distrust(path, &file.metadata()?);
        let text = as_text(read_whole(file, FILE_BYTES_MAX)?)?;
        Ok(FileText { path: Arc::from(&**path), text, distrust })
    };
    match read() {
        Ok(text) => Some(text),
        Err(e) if e.kind() == ErrorKind::NotFound && !must => None,
        Err(e) => {
            let advice = match e.kind() {
                ErrorKind::PermissionDenied => {
                    "; let this user read it (chmod, chown), or name another file with --config"
                }
                ErrorKind::InvalidData => "; it is no text in UTF-8",
                ErrorKind::NotFound if must => "; name another file with --config",
                _ => "",
            };
            // The standard library's text for other bytes names its own functions.
            let why = match e.kind() {
                ErrorKind::InvalidData => "cannot be read".to_owned(),
                _ => e.to_string(),
            };
            let what = format!("{}: {why}{advice}", path.display());
            errors.push(ConfigError { place: ValueOrigin::Default, what });
            None
        }
    }
}

/// Why a file that names a program is not trusted: users other than root can write or replace it.
fn distrust(file: &Path, metadata: &Metadata) -> Option<String> {
    let path = file.display();
    if metadata.uid() != 0 {
        return Some(format!(
            "{path} belongs to user {}, not to root: chown root {path}",
            metadata.uid()
        ));
    }
    let mode = metadata.mode() & 0o7777;
    if mode & 0o022 != 0 {
        let why = format!("{path} can be written by others than root (mode {mode:o})");
        return Some(format!("{why}: chmod go-w {path}"));
    }
    changed_by_others(file, &[0]).unwrap_or_else(|e| Some(format!("{path}: {e}")))
}
