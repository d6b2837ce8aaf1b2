//! The keys of an entry, their types, and the entry made of them.

use super::credentials;
use super::description::{ALIAS, DeclaredMeaning, Description, Rare, Target, TlsVerification};
use super::directory::EntryNames;
use super::key_list::KEYS;
use crate::protocols::{self, Parsed};
use crate::url::Secret;
use crate::url::UrlParts;
use crate::yaml::{Node, Value};
use model::{DeviceId, Kind, Labels, Metric, Unit, nearest};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Shortest period and timeout.
const PERIOD_MIN: Duration = config::POLL_PERIOD_MIN;
/// Longest period.
const PERIOD_MAX: Duration = Duration::from_secs(366 * 24 * 3600);
/// Kwollect's period of an entry without `update_every`.
const PERIOD_DEFAULT: Duration = Duration::from_secs(10);
/// Longest default timeout.
const TIMEOUT_DEFAULT_MAX: Duration = Duration::from_secs(10);
/// Bytes of a help text.
const HELP_BYTES_MAX: usize = 500;

/// What an entry's reading noticed: an error or a warning, with its line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Notice {
    pub(super) line: usize,
    pub(super) is_error: bool,
    pub(super) what: String,
}

/// An entry that was read: the description unless there were errors, and what was noticed.
pub(super) struct ReadEntry {
    pub(super) description: Option<Description>,
    pub(super) notices: Vec<Notice>,
    /// What the entry names.
    pub(super) names: EntryNames,
    /// Whether Kwollect 1.3.1 rejects the whole file because of this entry's keys.
    pub(super) is_rejected_by_kwollect: bool,
}

/// Reads an entry of a file.
pub(super) fn read_entry(file: &Arc<Path>, node: &Node) -> ReadEntry {
    let Value::Map(entries) = &node.value else {
        let what = format!("an entry is a map of keys, not {}", node.value.kind());
        let notices = vec![Notice { line: node.line, is_error: true, what }];
        let (names, is_rejected_by_kwollect) = (EntryNames::default(), false);
        return ReadEntry { description: None, notices, names, is_rejected_by_kwollect };
    };
    let mut keys = Keys { line: node.line, values: BTreeMap::new(), notices: Vec::new() };
    for (key, value) in entries {
        keys.add(key, value);
    }
    let is_rejected_by_kwollect = keys.notices.iter().any(|notice| !notice.is_error)
        || KEYS.iter().any(|key| !key.is_of_kwollect && keys.values.contains_key(key.name));
    let description = keys.description(file);
    let has_errors = keys.notices.iter().any(|notice| notice.is_error);
    ReadEntry {
        description: description.filter(|_| !has_errors),
        names: keys.names(),
        notices: keys.notices,
        is_rejected_by_kwollect,
    }
}

/// The known keys of an entry.
struct Keys<'a> {
    line: usize,
    values: BTreeMap<&'static str, &'a Node>,
    notices: Vec<Notice>,
}

impl<'a> Keys<'a> {
    fn add(&mut self, key: &Node, value: &'a Node) {
        let Value::Text(name) = &key.value else {
            let what = format!("a key is a text, not {}; quote it", key.value.kind());
            return self.error(key.line, what);
        };
        let mut known = KEYS.iter().map(|key| key.name);
        match known.find(|known| known == name) {
            Some(known) => {
                self.values.insert(known, value);
            }
            None => {
                let known = KEYS.iter().map(|key| key.name);
                let near = nearest(&name.to_ascii_lowercase(), known)
                    .map(|near| format!("; `{near}` is known"));
                // A password with a comma, in a URL without quotes, looks like a key without a value.
                let is_key = near.is_some() || value.value != Value::Null && model::is_word(name);
                let what = match is_key {
                    true => {
                        format!("unknown key `{}`{}", name.escape_debug(), near.unwrap_or_default())
                    }
                    false => "unknown key, or a URL without quotes".to_owned(),
                };
                self.notices.push(Notice { line: key.line, is_error: false, what });
            }
        }
    }

    /// What the entry names, whatever else is wrong with it.
    fn names(&self) -> EntryNames {
        let value = |key: &str| self.values.get(key).map(|node| &node.value);
        let alias = value("labels").and_then(|value| labels(value).ok());
        let alias = alias.and_then(|labels| labels.get(ALIAS));
        EntryNames {
            metric: value("name").and_then(|value| metric_name(value).ok()),
            device: value("device_id").and_then(|value| device(value).ok()),
            alias: alias.and_then(|name| DeviceId::new(&name).ok()),
        }
    }

    fn error(&mut self, line: usize, what: String) {
        self.notices.push(Notice { line, is_error: true, what });
    }

    /// Reads a key by a function that states what it expects. `null` counts as absent, except for the three
    /// mandatory keys.
    fn get<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&Value) -> Result<T, String>,
    ) -> Option<T> {
        let node = *self.values.get(key)?;
        if node.value == Value::Null {
            return None;
        }
        match read(&node.value) {
            Ok(value) => Some(value),
            Err(what) => {
                self.error(node.line, format!("{key}: {what}"));
                None
            }
        }
    }

    fn mandatory<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&Value) -> Result<T, String>,
    ) -> Option<T> {
        let is_absent = self.values.get(key).is_none_or(|node| node.value == Value::Null);
        if is_absent {
            let line = self.values.get(key).map_or(self.line, |node| node.line);
            self.error(line, format!("the key `{key}` is missing"));
        }
        self.get(key, read)
    }

    fn description(&mut self, file: &Arc<Path>) -> Option<Description> {
        let name = self.mandatory("name", metric_name);
        let device = self.mandatory("device_id", device);
        let credential = self.get("credential", credential);
        let url = self.mandatory("url", |value| url(text(value)?, credential.as_deref()));
        let period = self.get("update_every", duration).unwrap_or(PERIOD_DEFAULT);
        let period_idle = self.get("update_every_idle", duration);
        let period_promoted = self.get("update_every_promoted", duration);
        let timeout = self.get("timeout", duration);
        let is_optional = self.get("optional", boolean).unwrap_or(false);
        let labels = self.get("labels", labels).unwrap_or_default();
        let scale_factor = self.get("scale_factor", scale_factor).flatten();
        let declared = self.declared();
        let tls = self.get("tls", tls).unwrap_or_default();
        let (parts, found) = url?;
        if let Some(node) = self.values.get("tls").filter(|_| !found.is_tls) {
            let what = "`tls` has no effect: the URL is not of TLS".to_owned();
            self.notices.push(Notice { line: node.line, is_error: false, what });
        }
        let target = Target {
            protocol: found.protocol,
            is_tls: found.is_tls,
            host: parts.host,
            port: parts.port.unwrap_or(found.port),
            user: found.user.map(Secret::new),
            password: parts.password.map(Secret::new),
            session: found.request.session(),
        };
        let rare = Rare { period_idle, period_promoted, scale_factor, credential, tls, only: None };
        Some(Description {
            file: Arc::clone(file),
            line: self.line,
            name: name?,
            device: device?,
            target: Arc::new(target),
            request: found.request,
            period,
            timeout: timeout.unwrap_or_else(|| period.min(TIMEOUT_DEFAULT_MAX)),
            is_optional,
            labels,
            declared,
            rare: rare.into_box(),
        })
    }

    fn declared(&mut self) -> DeclaredMeaning {
        let kind = self.get("kind", |value| match text(value)? {
            "gauge" => Ok(Kind::Gauge),
            "counter" => Ok(Kind::Counter),
            other => Err(format!("`{}` is neither gauge nor counter", other.escape_debug())),
        });
        let unit = self.get("unit", |value| {
            let word = text(value)?;
            let known =
                Unit::ALL.map(|unit| if unit.word().is_empty() { "count" } else { unit.word() });
            Unit::from_word(word).ok_or_else(|| {
                format!("`{}` is no unit; units are {}", word.escape_debug(), known.join(", "))
            })
        });
        let help = self.get("help", |value| {
            let help = text(value)?;
            match help.len() {
                0..=HELP_BYTES_MAX => Ok(Arc::from(help)),
                length => Err(format!("{length} bytes are too long; {HELP_BYTES_MAX} at most")),
            }
        });
        DeclaredMeaning { kind, unit, help }
    }
}

fn text(value: &Value) -> Result<&str, String> {
    match value {
        Value::Text(text) => Ok(text),
        other => Err(format!("a text is expected, not {}; quote it", other.kind())),
    }
}

fn device(value: &Value) -> Result<DeviceId, String> {
    DeviceId::new(text(value)?).map_err(|error| error.to_string())
}

fn metric_name(value: &Value) -> Result<String, String> {
    let name = text(value)?;
    match Metric::check_name(name) {
        Ok(()) => Ok(name.to_owned()),
        Err(_) if name.is_empty() => Err("it is empty".into()),
        Err(error) => Err(error.to_string()),
    }
}

fn boolean(value: &Value) -> Result<bool, String> {
    match value {
        Value::Bool(value) => Ok(*value),
        other => Err(format!("true or false is expected, not {}", other.kind())),
    }
}

/// A duration in milliseconds, as in `update_every`.
fn duration(value: &Value) -> Result<Duration, String> {
    let ms = match *value {
        Value::Int(ms) => u64::try_from(ms).ok().map(Duration::from_millis),
        Value::Float(ms) => Duration::try_from_secs_f64(ms / 1000.0).ok(),
        ref other => return Err(format!("milliseconds are expected, not {}", other.kind())),
    };
    match ms {
        Some(period) if (PERIOD_MIN..=PERIOD_MAX).contains(&period) => Ok(period),
        _ => Err(format!(
            "a duration is {} ms to {} ms",
            PERIOD_MIN.as_millis(),
            PERIOD_MAX.as_millis()
        )),
    }
}

/// Kwollect ignores a factor of 0.
#[expect(
    clippy::cast_precision_loss,
    clippy::as_conversions,
    reason = "a factor beyond 2^53 is rounded as Python does"
)]
fn scale_factor(value: &Value) -> Result<Option<f64>, String> {
    let factor = match *value {
        Value::Int(factor) => factor as f64,
        Value::Float(factor) => factor,
        ref other => return Err(format!("a number is expected, not {}", other.kind())),
    };
    match factor.is_finite() {
        true => Ok((factor != 0.0).then_some(factor)),
        false => Err("a finite number is expected".into()),
    }
}

fn labels(value: &Value) -> Result<Labels, String> {
    let json = object(value)?.to_string();
    let labels = Labels::from_json(&json).and_then(Labels::must_be_printable);
    labels.map_err(|error| error.to_string())
}

fn object(value: &Value) -> Result<serde_json::Value, String> {
    let Value::Map(entries) = value else {
        return Err(format!("a map is expected, not {}", value.kind()));
    };
    let pairs = entries.iter().map(|(key, value)| Ok((text(&key.value)?.to_owned(), json(value)?)));
    let pairs: Result<serde_json::Map<_, _>, String> = pairs.collect();
    Ok(pairs?.into())
}

fn json(node: &Node) -> Result<serde_json::Value, String> {
    Ok(match &node.value {
        Value::Null => serde_json::Value::Null,
        Value::Bool(value) => (*value).into(),
        Value::Int(value) => match (i64::try_from(*value), u64::try_from(*value)) {
            (Ok(value), _) => value.into(),
            (_, Ok(value)) => value.into(),
            _ => return Err(format!("the integer {value} has more than 64 bits; quote it")),
        },
        Value::Float(value) => match serde_json::Number::from_f64(*value) {
            Some(number) => number.into(),
            None => return Err(format!("{value} is no JSON number; quote it")),
        },
        Value::Text(text) => text.clone().into(),
        Value::Time(text) => return Err(format!("`{text}` is a date; quote it")),
        Value::List(items) => items.iter().map(json).collect::<Result<Vec<_>, _>>()?.into(),
        Value::Map(_) => object(&node.value)?,
    })
}

/// Reads a URL. An error about a URL with an `@` after its host shows nothing of it: a password with a `/` that is
/// not encoded ends there.
fn url(text: &str, credential: Option<&str>) -> Result<(UrlParts, Parsed), String> {
    let read = UrlParts::parse(text).and_then(|mut parts| {
        if let Some(name) = credential {
            credentials::insert(name, &mut parts).map_err(|what| format!("credential: {what}"))?;
        }
        let parsed = protocols::parse(&parts)?;
        Ok((parts, parsed))
    });
    let has_late_at = text.splitn(4, '/').nth(3).is_some_and(|path| path.contains('@'));
    match read {
        Err(_) if has_late_at => {
            Err("it is not valid, and `@` follows the host; write `/`, `?`, `#`, `@` and `:` \
             in a user or password as %2F, %3F, %23, %40 and %3A"
                .into())
        }
        read => read,
    }
}

/// A name of a secret: a file name without a folder.
fn credential(value: &Value) -> Result<String, String> {
    let name = text(value)?;
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    match !name.is_empty()
        && name.len() <= 64
        && !name.starts_with('.')
        && name.chars().all(is_letter)
    {
        true => Ok(name.to_owned()),
        false => Err("a name is 1 to 64 letters, digits, `.`, `_` or `-`".into()),
    }
}

/// How the certificate of the target is verified: one of `ca`, `fingerprint` and `insecure`.
fn tls(value: &Value) -> Result<TlsVerification, String> {
    const EXPECTED: &str = "write {ca: FILE}, {fingerprint: SHA256} or {insecure: true}";
    let Value::Map(entries) = value else {
        return Err(format!("{} is no map; {EXPECTED}", value.kind()));
    };
    let [(key, value)] = &entries[..] else { return Err(EXPECTED.into()) };
    match (text(&key.value)?, &value.value) {
        ("ca", Value::Text(file)) => {
            let read = config::read_small(file.as_ref(), config::CERTIFICATES_BYTES_MAX);
            read.map_err(|error| format!("{}: {error}", file.escape_debug()))?;
            Ok(TlsVerification::Ca(file.into()))
        }
        ("fingerprint", Value::Text(hexadecimal)) => fingerprint(hexadecimal),
        ("insecure", Value::Bool(true)) => Ok(TlsVerification::Insecure),
        ("insecure", Value::Bool(false)) => Ok(TlsVerification::SystemRoots),
        _ => Err(EXPECTED.into()),
    }
}

/// The key `fingerprint`.
fn fingerprint(text: &str) -> Result<TlsVerification, String> {
    let digest = TlsVerification::digest(text).map(Box::new);
    digest
        .map(TlsVerification::Fingerprint)
        .ok_or_else(|| "a fingerprint is the 64 hexadecimal digits of a SHA-256".into())
}
