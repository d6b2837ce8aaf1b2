//! Default, file, environment, flag: one above the other, each value with its origin.

use crate::settings::setting::{Kind, Setting};
use crate::settings::text::{Raw, Value};
use kernel::trust::changed_by_others;
use model::nearest;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// From the declaration.
    Default,
    /// From a file.
    File {
        /// Which.
        path: Arc<Path>,
        /// Which line, from 1.
        line: usize,
        /// Which character of the line, from 1.
        column: usize,
    },
    /// From an environment variable.
    Environment(String),
    /// From a flag.
    Flag(String),
}

/// `agent.toml:3`, `environment JOBMETER_PERIOD`, `flag --period`, `default`.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line, .. } => write!(f, "{}:{line}", path.display()),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// One thing that is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    /// Where it stands.
    pub place: Origin,
    /// What is wrong, and what would do.
    pub what: String,
}

/// `agent.toml:3:5: unknown key ...`.
impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Origin::File { path, line, column } => {
                write!(f, "{}:{line}:{column}: {}", path.display(), self.what)
            }
            Origin::Default => f.write_str(&self.what),
            place => write!(f, "{place}: {}", self.what),
        }
    }
}

/// Everything that is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigErrors(pub Vec<ConfigError>);

/// One a line.
impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.0.iter().enumerate() {
            write!(f, "{}{error}", if i == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

/// Which file is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigFile {
    /// This one, which must be there.
    Given(PathBuf),
    /// This one, if it is there.
    Default(PathBuf),
    /// None.
    None,
}

/// What stands for each setting, and where it comes from.
#[derive(Clone, Debug)]
pub struct Values {
    settings: Vec<Setting>,
    values: BTreeMap<String, (Raw, Origin)>,
    /// Why the file is not believed where it names a program to run.
    distrust: Option<String>,
}

/// What was given beside the file.
pub struct Given<'a> {
    /// Which file.
    pub file: ConfigFile,
    /// The environment.
    pub environment: &'a dyn Fn(&str) -> Option<String>,
    /// Keys with what their flags say.
    pub flags: Vec<(String, Raw)>,
}

impl fmt::Debug for Given<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, flags, .. } = self;
        f.debug_struct("Given").field("file", file).field("flags", flags).finish_non_exhaustive()
    }
}

impl Values {
    /// Reads every layer. What does not fit any setting is told in `errors`, all of it.
    pub(crate) fn read(
        settings: Vec<Setting>,
        given: &Given<'_>,
        errors: &mut Vec<ConfigError>,
    ) -> Self {
        let values = settings.iter().map(|setting| {
            let raw = Raw::One(setting.default.to_string());
            (setting.key.to_string(), (raw, Origin::Default))
        });
        let mut all = Self { values: values.collect(), settings, distrust: None };
        if let Some(FileText { path, text, distrust }) = file_text(&given.file, errors) {
            all.add_file(&path, &text, errors);
            all.distrust = distrust;
        }
        for setting in all.settings.clone() {
            let name = setting.variable();
            if let Some(text) = (given.environment)(&name) {
                all.add(&setting.key, Raw::One(text), Origin::Environment(name), errors);
            }
        }
        for (key, raw) in &given.flags {
            let flag = format!("--{}", key.replace(['_', '.'], "-"));
            all.add(key, raw.clone(), Origin::Flag(flag), errors);
        }
        all.only_the_file_has(errors);
        all
    }

    /// What has another origin than the file, though only the file may say it.
    fn only_the_file_has(&self, errors: &mut Vec<ConfigError>) {
        for setting in self.settings.iter().filter(|setting| setting.in_file_only) {
            if let Some((_, Origin::Environment(_) | Origin::Flag(_))) = self.raw(&setting.key) {
                let what = format!("`{}` may stand only in the agent's own file", setting.key);
                errors.push(self.error(&setting.key, &what));
            }
        }
    }

    /// Why the file is not believed where it names a program to run, and how to make it so.
    pub(crate) fn distrust(&self) -> Option<&str> {
        self.distrust.as_deref()
    }

    /// The settings of a text that is no file of this machine.
    pub(crate) fn of_text(
        settings: Vec<Setting>,
        name: &Path,
        text: &str,
        errors: &mut Vec<ConfigError>,
    ) -> Self {
        let mut all = Self { values: BTreeMap::new(), settings, distrust: None };
        all.add_file(name, text, errors);
        all
    }

    fn add_file(&mut self, path: &Path, text: &str, errors: &mut Vec<ConfigError>) {
        for (key, raw, origin) in crate::settings::file::read(path, text, &self.settings, errors) {
            self.add(&key, raw, origin, errors);
        }
    }

    /// Puts a value above what is there, if it fits; a bad one leaves what is there, so that every
    /// error is found in one go.
    fn add(&mut self, key: &str, raw: Raw, origin: Origin, errors: &mut Vec<ConfigError>) {
        let Some(setting) = self.settings.iter().find(|setting| setting.key == key) else {
            errors.push(ConfigError { place: origin, what: unknown(key, &self.settings) });
            return;
        };
        let empty = raw == Raw::One(String::new()) && setting.default.is_empty();
        match setting.check(&raw) {
            Err(want) if !empty => {
                let what = match setting.kind {
                    // It says itself what is wrong, or which of its words.
                    Kind::TextOf(..) | Kind::ListOf(..) => format!("`{key}`: {want}"),
                    _ => format!("`{key}` is {}; it wants {want}", show(&raw)),
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

    /// What stands for a key, and where it comes from.
    pub fn raw(&self, key: &str) -> Option<&(Raw, Origin)> {
        self.values.get(key)
    }

    /// Whether a file gave any of the values.
    pub fn has_file(&self) -> bool {
        self.values.values().any(|(_, origin)| matches!(origin, Origin::File { .. }))
    }

    /// Whether nobody said anything about a key.
    pub fn is_default(&self, key: &str) -> bool {
        self.values.get(key).is_none_or(|(_, origin)| *origin == Origin::Default)
    }

    /// The understood value of a key; what does not fit is told in `errors`.
    pub(crate) fn get<T: Value>(&self, key: &str, errors: &mut Vec<ConfigError>) -> Option<T> {
        let Some((raw, origin)) = self.values.get(key) else {
            errors.push(ConfigError {
                place: Origin::Default,
                what: format!("`{key}` has no value"),
            });
            return None;
        };
        let wrong = |want: String| {
            let what = format!("`{key}` is {}; it wants {want}", show(raw));
            errors.push(ConfigError { place: origin.clone(), what });
        };
        T::from_raw(raw).map_err(wrong).ok()
    }

    /// An error about the value of a key, at its place.
    pub fn error(&self, key: &str, what: &str) -> ConfigError {
        let place = self.values.get(key).map_or(Origin::Default, |(_, origin)| origin.clone());
        ConfigError { place, what: what.to_owned() }
    }
}

/// The words for a key that is no setting, with what was probably meant.
pub(crate) fn unknown(key: &str, settings: &[Setting]) -> String {
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
    let meant = nearest(name, here.iter().copied())
        .map(|near| if table.is_empty() { near.to_owned() } else { format!("{table}.{near}") })
        .or_else(|| nearest(key, settings.iter().map(|s| &*s.key)).map(str::to_owned));
    let meant = meant.map_or_else(String::new, |near| format!("; is `{near}` meant?"));
    format!("unknown key `{key}`{meant}")
}

/// A file that was read.
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
    // Whose it is, is asked of the very file that is read.
    let read = || -> std::io::Result<FileText> {
        let mut file = File::open(path)?;
        let distrust = distrust(path, &file.metadata()?);
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        Ok(FileText { path: Arc::from(&**path), text, distrust })
    };
    match read() {
        Ok(text) => Some(text),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound && !must => None,
        Err(e) => {
            let what = format!("{}: {e}", path.display());
            errors.push(ConfigError { place: Origin::Default, what });
            None
        }
    }
}

/// Why a file that names a program to run is not believed: somebody other than root can write it, or put another
/// one in its place.
fn distrust(file: &Path, told: &Metadata) -> Option<String> {
    let path = file.display();
    if told.uid() != 0 {
        return Some(format!(
            "{path} belongs to user {}, not to root: chown root {path}",
            told.uid()
        ));
    }
    let mode = told.mode() & 0o7777;
    if mode & 0o022 != 0 {
        let why = format!("{path} can be written by others than root (mode {mode:o})");
        return Some(format!("{why}: chmod go-w {path}"));
    }
    changed_by_others(file, &[0]).unwrap_or_else(|e| Some(format!("{path}: {e}")))
}

fn show(raw: &Raw) -> String {
    match raw {
        Raw::One(text) => format!("`{}`", text.chars().take(200).collect::<String>()),
        Raw::Many(texts) => format!("a list of {}", texts.len()),
    }
}
