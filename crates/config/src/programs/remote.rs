//! Configuration changes that the server requests, within the limits of the node's own file.
//!
//! The change is a text such as
//!
//! ```toml
//! until = "2026-01-06T14:00:00Z"      # end of the changes in [sources]
//! [sources.taskstats]
//! period = "1s"
//! [sources.filesystem]
//! enabled = false
//! [sources.perf]
//! events = ["cache_ll"]
//! [[promote]]                         # collects optional metrics
//! metric = "filesystem_.*"
//! until = "2026-01-06T14:30:00Z"
//! [burst.cpu]                         # reads often, keeps the samples in memory
//! period = "100ms"
//! keep = "1m"
//! flush_on = ["job_end"]
//! until = "2026-01-06T15:00:00Z"
//! [[flush]]                           # sends the samples of a burst now; each number once
//! source = "cpu"
//! number = 17
//! ```
//!
//! A change never names a path, command, address or credential. It may set `enabled`, `period` and the events
//! that `perf` counts.
//! It cannot change a source that runs a program. Each entry that is not allowed is rejected by itself, and reported.

use crate::programs::agent::{BURST_KEEP_MAX, BURST_PERIOD_MAX};
use crate::settings::load::{ConfigError, Values};
use crate::settings::setting::{Kind, Setting, SourceSettings};
use crate::settings::text::{Raw, Value};
use crate::{BurstSettings, MetricPattern, RemoteSettings};
use model::Timestamp;
use model::setting::{show_duration, words};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Longest text, in bytes.
pub const TEXT_BYTES_MAX: usize = 64 * 1024;
/// Most promotions.
pub const PROMOTIONS_MAX: usize = 64;
/// Most sources with a burst.
pub const BURSTS_MAX: usize = 4;
/// Most flush requests.
pub const FLUSHES_MAX: usize = 16;

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
    /// Messages about rejected or shortened entries, for the log and the server.
    pub rejected: Vec<String>,
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

/// When the agent first received each change of a source and each burst that the server's text holds.
///
/// The server sends a change again with every new text. Its longest duration counts from the first.
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
        let has = |word: &str| words.iter().any(|one| one == word);
        Ok(Self { job_start: has("job_start"), job_end: has("job_end") })
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

/// Reads the server's requests. Each entry is independent: a rejected one does not affect the others.
/// Unset values of a burst come from the node's own settings.
///
/// A change of a source and a burst end `remote.time_max` after `received` at the latest; a promotion, which
/// may last as long as a job, that long after the server last sent it.
pub fn read_remote(
    text: &[u8],
    now: Timestamp,
    received: &mut FirstReceived,
    bounds: &RemoteSettings,
    burst: &BurstSettings,
    sources: &[SourceSettings],
) -> RemoteChange {
    let mut change = RemoteChange::default();
    let text = match std::str::from_utf8(text) {
        Ok(text) if text.len() <= TEXT_BYTES_MAX => text,
        Ok(_) => return rejected(change, format!("it has more than {TEXT_BYTES_MAX} bytes")),
        Err(_) => return rejected(change, "it is not UTF-8".to_owned()),
    };
    let mut errors = Vec::new();
    let values = Values::of_text(settings(sources), Path::new("server"), text, &mut errors);
    let before = std::mem::take(received);
    let mut reader = RequestReader { values, errors, bounds, now, before, received };
    for source in sources {
        reader.source(source, &mut change);
        reader.burst(source, burst, &mut change);
    }
    for number in 0..PROMOTIONS_MAX {
        change.promotions.extend(reader.promotion(number));
    }
    for number in 0..FLUSHES_MAX {
        change.flushes.extend(reader.flush(number, sources));
    }
    change.rejected.extend(reader.errors.iter().map(ToString::to_string));
    change.expire(now);
    change
}

/// Begins the message about a change that ends earlier than requested. Its end follows, up to `: `.
pub const SHORTENED: &str = "shortened to ";

fn rejected(mut change: RemoteChange, why: String) -> RemoteChange {
    change.rejected.push(why);
    change
}

/// A request while it is read, with its errors.
struct RequestReader<'a> {
    values: Values,
    errors: Vec<ConfigError>,
    bounds: &'a RemoteSettings,
    now: Timestamp,
    /// First receipts of the entries of the text before this one, and of this one.
    before: FirstReceived,
    received: &'a mut FirstReceived,
}

impl RequestReader<'_> {
    fn source(&mut self, source: &SourceSettings, change: &mut RemoteChange) {
        let key = |name: &str| format!("sources.{}.{name}", source.name);
        let mut changed = SourceChange {
            enabled: self.value(&key("enabled")),
            period: self.value(&key("period")),
            events: self.value(&key("events")).map(|events: Vec<String>| events.join(",")),
            until: Timestamp(0),
        };
        if source.runs_a_program() {
            for name in ["enabled", "period"] {
                let what = "the source runs a program; only the node's own file may change it";
                self.reject_if_set(&key(name), what);
            }
            return;
        }
        changed.enabled = changed.enabled.filter(|_| self.allows("sources", &key("enabled")));
        changed.period = changed.period.filter(|_| self.allows("periods", &key("period")));
        changed.period =
            changed.period.filter(|period| self.is_long_enough(*period, &key("period")));
        changed.events = changed.events.filter(|_| self.allows("events", &key("events")));
        if changed != SourceChange::default() {
            let first = self.first(format!("{}: {changed:?}", key("*")));
            let names = ["enabled", "period", "events"].map(key);
            let set = names.into_iter().find(|key| self.values.raw(key).is_some());
            // The end is common to all sources, and shortened for each.
            let at = set.unwrap_or_else(|| "until".to_owned());
            changed.until = self.end("until", &at, first).unwrap_or_else(|| self.longest(first));
            change.sources.insert(source.name.to_owned(), changed);
        }
    }

    fn burst(&mut self, source: &SourceSettings, usual: &BurstSettings, change: &mut RemoteChange) {
        let key = |name: &str| format!("burst.{}.{name}", source.name);
        let Some(first) = BURST_NAMES.iter().find(|name| self.values.raw(&key(name)).is_some())
        else {
            return;
        };
        let first = key(first);
        let period = self.or_usual(&key("period"), PERIOD, usual.period);
        let keep = self.or_usual(&key("keep"), KEEP, usual.keep);
        let flush_on = self.or_usual(&key("flush_on"), FLUSH_ON, usual.flush_on);
        let entry = format!("{}: {period:?} {keep:?} {flush_on:?}", key("*"));
        let received = self.first(entry);
        let until = self.must_end(&key("until"), &first, received);
        if !self.allows("bursts", &first) {
            return;
        }
        let (Some(period), Some(keep), Some(flush_on), Some(until)) =
            (period, keep, flush_on, until)
        else {
            return;
        };
        if !self.is_long_enough(period, &key("period")) {
            return;
        }
        if change.bursts.len() >= BURSTS_MAX {
            let what = format!("more than {BURSTS_MAX} sources with a burst");
            self.errors.push(self.values.error(&first, &what));
            return;
        }
        change.bursts.insert(source.name.to_owned(), Burst { period, keep, flush_on, until });
    }

    fn promotion(&mut self, number: usize) -> Option<Promotion> {
        let (metric, until) =
            (format!("promote.{number}.metric"), format!("promote.{number}.until"));
        let Some(text) = self.value::<String>(&metric) else {
            self.reject_if_set(&until, "a promotion without `metric`");
            return None;
        };
        let until = self.must_end(&until, &metric, self.now);
        match MetricPattern::new(&text) {
            Ok(pattern) => {
                let allowed = self.allows("promotions", &metric);
                until.filter(|_| allowed).map(|until| Promotion { metric: pattern, until })
            }
            Err(what) => {
                self.errors.push(self.values.error(&metric, &what));
                None
            }
        }
    }

    fn flush(&mut self, number: usize, sources: &[SourceSettings]) -> Option<(String, u64)> {
        let (source, number) = (format!("flush.{number}.source"), format!("flush.{number}.number"));
        let (name, once) = (self.value::<String>(&source), self.value::<u64>(&number));
        let Some(name) = name else {
            self.reject_if_set(&number, "a flush without `source`");
            return None;
        };
        if !sources.iter().any(|source| source.name == name) {
            let what = format!("there is no source `{name}`");
            self.errors.push(self.values.error(&source, &what));
            return None;
        }
        if self.values.raw(&number).is_none() {
            let what = "the flush has no `number`";
            self.errors.push(self.values.error(&source, what));
        }
        Some((name, once?))
    }

    /// A required end, shortened to the longest time that the node allows.
    fn must_end(&mut self, key: &str, of: &str, received: Timestamp) -> Option<Timestamp> {
        if self.values.raw(key).is_none() {
            self.errors.push(self.values.error(of, "it has no `until`"));
            return None;
        }
        self.end(key, key, received)
    }

    /// Returns when the agent first received an entry.
    fn first(&mut self, entry: String) -> Timestamp {
        let first = self.before.0.get(&entry).copied().unwrap_or(self.now);
        self.received.0.insert(entry, first);
        first
    }

    /// The latest end that the node allows for an entry that it received then.
    fn longest(&self, received: Timestamp) -> Timestamp {
        received.plus(i64::try_from(self.bounds.time_max.as_micros()).unwrap_or(i64::MAX))
    }

    /// A time, shortened to the longest that the node allows; shortening is reported at the key `at`.
    fn end(&mut self, key: &str, at: &str, received: Timestamp) -> Option<Timestamp> {
        let until: Timestamp = self.value(key)?;
        let latest = self.longest(received);
        if until > latest {
            let longest = show_duration(self.bounds.time_max);
            let what = format!("{SHORTENED}{latest}: `remote.time_max` is {longest}");
            self.errors.push(self.values.error(at, &what));
        }
        Some(until.min(latest))
    }

    /// The value of a key, or the node's usual one if unset. `None` if invalid.
    fn or_usual<T: Value>(&mut self, key: &str, kind: Kind, usual: T) -> Option<T> {
        let Some((raw, _)) = self.values.raw(key) else { return Some(usual) };
        if let Err(want) = kind.check(&raw.list().join(",")) {
            let what = format!("`{key}` is invalid: expected {want}");
            self.errors.push(self.values.error(key, &what));
            return None;
        }
        self.value(key)
    }

    fn value<T: Value>(&mut self, key: &str) -> Option<T> {
        self.values.raw(key)?;
        self.values.get(key, &mut self.errors)
    }

    fn reject_if_set(&mut self, key: &str, what: &str) {
        if self.values.raw(key).is_some() {
            self.errors.push(self.values.error(key, what));
        }
    }

    fn allows(&mut self, word: &str, key: &str) -> bool {
        let allows = self.bounds.allow.iter().any(|allowed| allowed == word);
        if !allows {
            let what = format!("`remote.allow` has no `{word}`");
            self.errors.push(self.values.error(key, &what));
        }
        allows
    }

    fn is_long_enough(&mut self, period: Duration, key: &str) -> bool {
        let is = period >= self.bounds.period_min;
        if !is {
            self.errors.push(self.values.error(key, "shorter than `remote.period_min`"));
        }
        is
    }
}

const PERIOD: Kind = Kind::Duration { min: crate::PERIOD_MIN, max: BURST_PERIOD_MAX };
const KEEP: Kind = Kind::Duration { min: Duration::from_secs(1), max: BURST_KEEP_MAX };
const FLUSH_ON: Kind = Kind::ListOf("WORD", FlushOn::check);
const BURST_NAMES: &[&str] = &["period", "keep", "flush_on", "until"];

fn settings(sources: &[SourceSettings]) -> Vec<Setting> {
    let of_source = |source: &SourceSettings| {
        let events = format!("sources.{}.events", source.name);
        let named = move |setting: &Setting| {
            let is_list = matches!(setting.kind, Kind::ListOf(..));
            setting.key.ends_with(".enabled")
                || setting.key.ends_with(".period")
                || setting.key == events && is_list
        };
        source.settings().into_iter().filter(named)
    };
    let mut list: Vec<_> = sources.iter().flat_map(of_source).collect();
    // All types are accepted here: a value of the wrong type must not count as absent.
    let mut add = |key: String| list.push(setting(key, Kind::List("WORD")));
    add("until".to_owned());
    for source in sources {
        BURST_NAMES.iter().for_each(|name| add(format!("burst.{}.{name}", source.name)));
    }
    for number in 0..PROMOTIONS_MAX {
        ["metric", "until"].iter().for_each(|name| add(format!("promote.{number}.{name}")));
    }
    for number in 0..FLUSHES_MAX {
        ["source", "number"].iter().for_each(|name| add(format!("flush.{number}.{name}")));
    }
    list
}

fn setting(key: String, kind: Kind) -> Setting {
    Setting {
        key: key.into(),
        kind,
        default: "".into(),
        unset: "",
        help: "".into(),
        topic: "".into(),
        in_file_only: false,
    }
}

#[cfg(test)]
mod tests;
