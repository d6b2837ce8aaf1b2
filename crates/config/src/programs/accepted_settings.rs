//! The server's settings for a node, within the limits of the node's own file.
//!
//! A setting never names a path, command, address or credential. The server may set `enabled`, `period` and the events
//! that `perf` counts.
//! It cannot change a source that runs a program. Each entry that is not allowed is rejected by itself, and reported.

use crate::programs::agent::{BURST_KEEP_MAX, BURST_PERIOD_MAX};
use crate::settings::setting::SourceSettings;
use crate::settings::text::{Raw, Value};
use crate::{BurstSettings, MetricPattern, PERIOD_MAX, PERIOD_MIN, RemoteSettings};
use model::setting::{
    BURSTS_MAX, FLUSHES_MAX, FlushRequest, Kind, NodeSettings, Override, PROMOTIONS_MAX, Rejection,
    RejectionCode, SettingValue, show_duration, words,
};
use model::{Timestamp, nearest};
use std::collections::BTreeMap;
use std::time::Duration;

/// Settings of a source that a server may change, and what `remote.allow` calls them.
const SOURCE_SETTINGS: &[(&str, Kind, &str)] = &[
    ("enabled", Kind::Switch, "sources"),
    ("period", Kind::Duration { min: PERIOD_MIN, max: PERIOD_MAX }, "periods"),
    ("events", Kind::List("EVENT"), "events"),
];

/// Settings of a burst.
const BURST_SETTINGS: &[(&str, Kind)] = &[
    ("period", Kind::Duration { min: PERIOD_MIN, max: BURST_PERIOD_MAX }),
    ("keep", Kind::Duration { min: Duration::from_secs(1), max: BURST_KEEP_MAX }),
    ("flush_on", Kind::ListOf("WORD", FlushOn::check)),
];

/// Returns the type of a source's setting, if a server may change it.
pub fn source_setting(key: &str) -> Option<Kind> {
    SOURCE_SETTINGS.iter().find(|one| one.0 == key).map(|one| one.1)
}

/// Returns the type of a burst's setting.
pub fn burst_setting(key: &str) -> Option<Kind> {
    BURST_SETTINGS.iter().find(|one| one.0 == key).map(|one| one.1)
}

/// The accepted changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemoteChange {
    /// By source.
    pub sources: BTreeMap<String, SourceChange>,
    /// Promotions of optional metrics.
    pub promotions: Vec<Promotion>,
    /// Bursts, by source.
    pub bursts: BTreeMap<String, Burst>,
    /// Flush requests: the source of a burst, and the number of the request.
    pub flushes: Vec<(String, u64)>,
    /// Rejected or shortened settings, for the log and the server.
    pub rejected: Vec<Rejection>,
}

/// A change of one source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceChange {
    /// Switches it on or off.
    pub enabled: Option<bool>,
    /// Its period.
    pub period: Option<Duration>,
    /// The events that `perf` counts, in the words of its option.
    pub events: Option<String>,
    /// When it ends by itself.
    pub until: Timestamp,
}

/// When the agent first received each change of a source and each burst that the server requests.
///
/// The server sends a change again with every new generation. Its longest duration counts from the first.
#[derive(Debug, Default)]
pub struct FirstReceived(BTreeMap<String, Timestamp>);

/// A promotion of optional metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promotion {
    /// Names of the metrics.
    pub metric: MetricPattern,
    /// When it ends by itself.
    pub until: Timestamp,
}

/// A source that the agent reads often into memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Burst {
    /// Its period.
    pub period: Duration,
    /// How long the agent keeps the samples.
    pub keep: Duration,
    /// Events that send the samples.
    pub flush_on: FlushOn,
    /// When it ends by itself.
    pub until: Timestamp,
}

/// Events that send the samples of a burst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlushOn {
    /// A job came to the node.
    pub job_start: bool,
    /// A job ended.
    pub job_end: bool,
}

impl FlushOn {
    fn of(words: &[impl AsRef<str>]) -> Self {
        let has = |word: &str| words.iter().any(|one| one.as_ref() == word);
        Self { job_start: has("job_start"), job_end: has("job_end") }
    }

    pub(crate) fn check(text: &str) -> Result<(), String> {
        let unknown = words(text).filter(|word| !matches!(*word, "job_start" | "job_end"));
        let unknown = unknown.map(|word| format!("`{word}` is neither job_start nor job_end"));
        let unknown = unknown.collect::<Vec<_>>().join("; ");
        if unknown.is_empty() { Ok(()) } else { Err(unknown) }
    }
}

impl Value for FlushOn {
    fn from_raw(raw: &Raw) -> Result<Self, String> {
        let words = raw.list();
        Self::check(&words.join(",")).map_err(|why| format!("has a wrong entry: {why}"))?;
        Ok(Self::of(&words))
    }
}

impl RemoteChange {
    /// Removes expired changes. Returns whether there were any.
    pub fn expire(&mut self, now: Timestamp) -> bool {
        let before = (self.sources.len(), self.promotions.len(), self.bursts.len());
        self.sources.retain(|_, source| now < source.until);
        self.promotions.retain(|promotion| now < promotion.until);
        self.bursts.retain(|_, burst| now < burst.until);
        before != (self.sources.len(), self.promotions.len(), self.bursts.len())
    }

    /// The next time at which [`Self::expire`] removes a change.
    pub fn next_end(&self) -> Option<Timestamp> {
        let sources = self.sources.values().map(|source| source.until);
        let promotions = self.promotions.iter().map(|promotion| promotion.until);
        let bursts = self.bursts.values().map(|burst| burst.until);
        promotions.chain(bursts).chain(sources).min()
    }

    /// Summary of the number of changes.
    pub fn summary(&self) -> String {
        let counts = [
            (self.sources.len(), "sources"),
            (self.promotions.len(), "promotions"),
            (self.bursts.len(), "bursts"),
        ];
        let parts = counts.iter().filter(|(count, _)| *count > 0);
        let parts: Vec<_> = parts.map(|(count, what)| format!("{what}: {count}")).collect();
        if parts.is_empty() { "nothing".to_owned() } else { parts.join(", ") }
    }
}

/// Accepts the server's settings. Each entry is independent: a rejected one does not affect the others. Unset values
/// of a burst come from the node's own settings.
///
/// A change of a source and a burst end `remote.time_max` after `received` at the latest; a promotion, which
/// may last as long as a job, that long after the server last sent it.
pub fn accept_settings(
    settings: &NodeSettings,
    now: Timestamp,
    received: &mut FirstReceived,
    bounds: &RemoteSettings,
    burst: &BurstSettings,
    sources: &[SourceSettings],
) -> RemoteChange {
    let before = std::mem::take(received);
    let change = RemoteChange::default();
    let mut acceptor = Acceptor { bounds, sources, now, before, received, change };
    for (name, changed) in &settings.sources {
        acceptor.source(name, changed);
    }
    for (name, changed) in &settings.bursts {
        acceptor.burst(name, changed, burst);
    }
    for (metric, until) in &settings.promotions {
        acceptor.promotion(metric, *until);
    }
    for flush in &settings.flushes {
        acceptor.flush(flush);
    }
    let mut change = acceptor.change;
    change.expire(now);
    change
}

/// Accepts settings one by one.
struct Acceptor<'a> {
    bounds: &'a RemoteSettings,
    sources: &'a [SourceSettings],
    now: Timestamp,
    /// First receipts of the entries of the settings before these, and of these.
    before: FirstReceived,
    received: &'a mut FirstReceived,
    change: RemoteChange,
}

impl<'a> Acceptor<'a> {
    fn source(&mut self, name: &str, changed: &Override) {
        let section = format!("sources.{name}");
        let Some(source) = self.known(name, &section) else { return };
        let mut accepted = SourceChange::default();
        for (key, value) in &changed.values {
            let setting = format!("{section}.{key}");
            if source.runs_a_program() {
                let what = "the source runs a program; only the node's own file may change it";
                self.reject(setting, RejectionCode::NotAllowed, what);
            } else if self.allows_value(source, key, value, &setting) {
                match (&**key, value) {
                    ("enabled", SettingValue::Switch(is_on)) => accepted.enabled = Some(*is_on),
                    ("period", SettingValue::Duration(period)) => accepted.period = Some(*period),
                    ("events", SettingValue::List(events)) => {
                        accepted.events = Some(events.join(","));
                    }
                    _ => self.reject(setting, RejectionCode::Unknown, "the setting is unknown"),
                }
            }
        }
        if accepted != SourceChange::default() {
            let first = self.first(format!("{section}: {accepted:?}"));
            accepted.until = self.end(section, changed.until, first);
            self.change.sources.insert(name.to_owned(), accepted);
        }
    }

    /// Checks a value of a source's setting against its type and the node's own file.
    fn allows_value(
        &mut self,
        source: &SourceSettings,
        key: &str,
        value: &SettingValue,
        setting: &str,
    ) -> bool {
        let option = source.options.iter().find(|option| option.name == key);
        let known = SOURCE_SETTINGS.iter().find(|one| one.0 == key);
        // A source has common settings and options of its own; `events` is an option.
        let known = known.filter(|one| one.2 != "events" || option.is_some());
        let Some((_, kind, word)) = known else {
            let keys = SOURCE_SETTINGS.iter().map(|one| one.0);
            let what = unknown("setting that a server may change", key, keys);
            self.reject(setting, RejectionCode::Unknown, &what);
            return false;
        };
        let kind = option.map_or(*kind, |option| option.kind);
        if let Err(want) = kind.accepts(value) {
            self.reject(setting, RejectionCode::Invalid, &format!("expected {want}"));
            return false;
        }
        self.allows(word, setting)
            && match value {
                SettingValue::Duration(period) => self.is_long_enough(*period, setting),
                _ => true,
            }
    }

    fn burst(&mut self, name: &str, changed: &Override, usual: &BurstSettings) {
        let section = format!("burst.{name}");
        if self.known(name, &section).is_none() {
            return;
        }
        let Override { values, until } = changed;
        let (mut period, mut keep, mut flush_on) = (usual.period, usual.keep, usual.flush_on);
        let mut is_valid = true;
        for (key, value) in values {
            let want = match burst_setting(key) {
                Some(kind) => kind.accepts(value).err(),
                None => Some(unknown("setting", key, BURST_SETTINGS.iter().map(|one| one.0))),
            };
            if let Some(want) = want {
                let what = format!("expected {want}");
                self.reject(format!("{section}.{key}"), RejectionCode::Invalid, &what);
                is_valid = false;
            }
            match (&**key, value) {
                ("period", SettingValue::Duration(value)) => period = *value,
                ("keep", SettingValue::Duration(value)) => keep = *value,
                ("flush_on", SettingValue::List(words)) => flush_on = FlushOn::of(words),
                _ => {}
            }
        }
        let Some(until) = *until else {
            self.reject(format!("{section}.until"), RejectionCode::Invalid, "it has no end");
            return;
        };
        let first = self.first(format!("{section}: {period:?} {keep:?} {flush_on:?}"));
        if !is_valid
            || !self.allows("bursts", &section)
            || !self.is_long_enough(period, &format!("{section}.period"))
        {
            return;
        }
        if self.change.bursts.len() >= BURSTS_MAX {
            let what = format!("more than {BURSTS_MAX} sources with a burst");
            self.reject(section, RejectionCode::Limit, &what);
            return;
        }
        let until = self.end(section, Some(until), first);
        self.change.bursts.insert(name.to_owned(), Burst { period, keep, flush_on, until });
    }

    fn promotion(&mut self, metric: &str, until: Timestamp) {
        let setting = format!("promote.{metric}");
        let metric = match MetricPattern::new(metric) {
            Ok(metric) => metric,
            Err(what) => return self.reject(setting, RejectionCode::Invalid, &what),
        };
        if self.change.promotions.len() >= PROMOTIONS_MAX {
            let what = format!("more than {PROMOTIONS_MAX} promotions");
            return self.reject(setting, RejectionCode::Limit, &what);
        }
        if self.allows("promotions", &setting) {
            let until = self.end(setting, Some(until), self.now);
            self.change.promotions.push(Promotion { metric, until });
        }
    }

    fn flush(&mut self, FlushRequest { source, number }: &FlushRequest) {
        let setting = format!("flush.{source}");
        if self.known(source, &setting).is_none() {
            return;
        }
        if self.change.flushes.len() >= FLUSHES_MAX {
            let what = format!("more than {FLUSHES_MAX} flushes");
            return self.reject(setting, RejectionCode::Limit, &what);
        }
        self.change.flushes.push((source.to_string(), *number));
    }

    /// Finds the source of an entry.
    fn known(&mut self, name: &str, setting: &str) -> Option<&'a SourceSettings> {
        let sources = self.sources;
        let known = sources.iter().find(|source| source.name == name);
        if known.is_none() {
            let what = unknown("source", name, sources.iter().map(|source| source.name));
            self.reject(setting, RejectionCode::Unknown, &what);
        }
        known
    }

    /// Returns when the agent first received an entry.
    fn first(&mut self, entry: String) -> Timestamp {
        let first = self.before.0.get(&entry).copied().unwrap_or(self.now);
        self.received.0.insert(entry, first);
        first
    }

    /// The end of an entry: as requested, but not after the longest time that the node allows. Shortening is reported.
    fn end(&mut self, setting: String, until: Option<Timestamp>, received: Timestamp) -> Timestamp {
        let time_max = self.bounds.time_max;
        let latest = received.plus(i64::try_from(time_max.as_micros()).unwrap_or(i64::MAX));
        if until.is_some_and(|until| until > latest) {
            let reason = format!("`remote.time_max` is {}", show_duration(time_max));
            let (code, until) = (RejectionCode::Shortened, Some(latest));
            self.change.rejected.push(Rejection { setting, code, reason, until });
        }
        until.map_or(latest, |until| until.min(latest))
    }

    fn allows(&mut self, word: &str, setting: &str) -> bool {
        let allows = self.bounds.allow.iter().any(|allowed| allowed == word);
        if !allows {
            let what = format!("`remote.allow` has no `{word}`");
            self.reject(setting, RejectionCode::NotAllowed, &what);
        }
        allows
    }

    fn is_long_enough(&mut self, period: Duration, setting: &str) -> bool {
        let is = period >= self.bounds.period_min;
        if !is {
            let what = "shorter than `remote.period_min`";
            self.reject(setting, RejectionCode::NotAllowed, what);
        }
        is
    }

    fn reject(&mut self, setting: impl Into<String>, code: RejectionCode, reason: &str) {
        let (setting, reason) = (setting.into(), reason.to_owned());
        self.change.rejected.push(Rejection { setting, code, reason, until: None });
    }
}

/// Names an unknown word, and the one that was probably meant.
fn unknown(what: &str, word: &str, known: impl Iterator<Item = &'static str>) -> String {
    let near = nearest(word, known);
    let meant = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
    format!("there is no {what} `{word}`{meant}")
}

#[cfg(test)]
mod tests;
