//! Converts changes of settings: of a request to typed values, and of an answer from them.

use super::declared_sources::DeclaredSource;
use super::shown_seconds;
use crate::common::http_error::HttpError;
use api::{ChangedBurst, ChangedSource, Set, SetBurst, SetSource};
use config::{burst_setting, source_setting};
use model::setting::{Kind, NodeSettings, Override, SETTINGS_BYTES_MAX, SettingValue};
use std::collections::BTreeMap;
use std::time::Duration;

/// Most sources of a change, and events of a source.
const LISTED_MAX: usize = 100;
/// Longest name of an event, in bytes.
const EVENT_BYTES_MAX: usize = 100;

/// Values by key.
type Values = BTreeMap<Box<str>, SettingValue>;

/// Converts a request to settings.
pub(super) fn settings_of(set: &Set) -> Result<NodeSettings, HttpError> {
    if set.sources.len() > LISTED_MAX || set.bursts.len() > LISTED_MAX {
        return Err(HttpError::malformed(format!("more than {LISTED_MAX} sources")));
    }
    let mut settings = NodeSettings::default();
    for (name, changed) in &set.sources {
        let values = source_values(&DeclaredSource::changeable(name)?, changed)?;
        if !values.is_empty() {
            settings.sources.insert((&**name).into(), Override { values, until: None });
        }
    }
    for (name, burst) in &set.bursts {
        DeclaredSource::with_burst(name)?;
        let values = burst_values(burst)?;
        settings.bursts.insert((&**name).into(), Override { values, until: None });
    }
    if settings.is_empty() {
        return Err(HttpError::malformed("the change is empty: set `sources` or `bursts`"));
    }
    if wire::encode_settings(&settings).len() > SETTINGS_BYTES_MAX {
        let message = format!("the change has more than {SETTINGS_BYTES_MAX} bytes of settings");
        return Err(HttpError::malformed(message));
    }
    Ok(settings)
}

fn source_values(source: &DeclaredSource, changed: &SetSource) -> Result<Values, HttpError> {
    let SetSource { enabled, period_seconds, events } = changed;
    let mut values = Values::new();
    if let Some(enabled) = enabled {
        source.check_switch()?;
        values.insert("enabled".into(), SettingValue::Switch(*enabled));
    }
    if let Some(period) = period_seconds {
        values.insert("period".into(), span("period_seconds", *period, source_setting("period"))?);
    }
    if let Some(events) = events {
        let is_word = |event: &String| {
            (1..=EVENT_BYTES_MAX).contains(&event.len())
                && event.bytes().all(|byte| byte.is_ascii_graphic())
        };
        if events.len() > LISTED_MAX || !events.iter().all(is_word) {
            return Err(HttpError::malformed(format!(
                "`events` are {LISTED_MAX} names at most, without blanks, each of \
                 {EVENT_BYTES_MAX} bytes at most"
            )));
        }
        source.check_events(events)?;
        let events = events.iter().map(|event| (&**event).into()).collect();
        values.insert("events".into(), SettingValue::List(events));
    }
    Ok(values)
}

fn burst_values(burst: &SetBurst) -> Result<Values, HttpError> {
    let SetBurst { period_seconds, keep_seconds, flush_on } = burst;
    if flush_on.len() > 2 {
        return Err(HttpError::malformed("`flush_on` has at most two entries"));
    }
    let word = |on: &api::FlushOn| match on {
        api::FlushOn::JobStart => "job_start".into(),
        api::FlushOn::JobEnd => "job_end".into(),
    };
    let flush_on = SettingValue::List(flush_on.iter().map(word).collect());
    let period = span("period_seconds", *period_seconds, burst_setting("period"))?;
    let keep = span("keep_seconds", *keep_seconds, burst_setting("keep"))?;
    Ok([("period", period), ("keep", keep), ("flush_on", flush_on)]
        .map(|(key, value)| (key.into(), value))
        .into())
}

/// Converts a duration in seconds, rounded to milliseconds, within the limits of its setting.
fn span(what: &str, seconds: f64, kind: Option<Kind>) -> Result<SettingValue, HttpError> {
    let (least, most) = match kind {
        Some(Kind::Duration { min, max }) => (min.as_secs_f64(), max.as_secs_f64()),
        _ => (0.0, 0.0),
    };
    if !(least..=most).contains(&seconds) {
        return Err(HttpError::malformed(format!(
            "`{what}` must be {least} to {most} seconds ({} to {})",
            shown_seconds(least),
            shown_seconds(most)
        )));
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "bounded by the lines above"
    )]
    let ms = (seconds * 1000.0).round() as u64;
    Ok(SettingValue::Duration(Duration::from_millis(ms)))
}

/// The changed settings by source, for an answer.
pub(super) fn changed_sources(settings: &NodeSettings) -> Vec<ChangedSource> {
    let NodeSettings { sources, bursts, .. } = settings;
    let mut changed: BTreeMap<&str, ChangedSource> = BTreeMap::new();
    let named = |name: &str| ChangedSource { source: name.to_owned(), ..ChangedSource::default() };
    for (name, Override { values, .. }) in sources {
        let source = changed.entry(name).or_insert_with(|| named(name));
        source.enabled = values.get("enabled").and_then(switch);
        source.period_seconds = values.get("period").and_then(seconds);
        source.events = values.get("events").and_then(list);
    }
    for (name, Override { values, .. }) in bursts {
        changed.entry(name).or_insert_with(|| named(name)).burst = Some(ChangedBurst {
            period_seconds: values.get("period").and_then(seconds),
            keep_seconds: values.get("keep").and_then(seconds),
            flush_on: values.get("flush_on").and_then(list),
        });
    }
    changed.into_values().collect()
}

fn switch(value: &SettingValue) -> Option<bool> {
    if let SettingValue::Switch(is_on) = value { Some(*is_on) } else { None }
}

fn seconds(value: &SettingValue) -> Option<f64> {
    if let SettingValue::Duration(time) = value { Some(time.as_secs_f64()) } else { None }
}

fn list(value: &SettingValue) -> Option<Vec<String>> {
    let SettingValue::List(texts) = value else { return None };
    Some(texts.iter().map(|text| text.to_string()).collect())
}

/// The key of a rejected setting, as an agent reports it: `sources.load.period` or `burst.cpu`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RejectedKey<'a> {
    /// The source; `None`: all settings.
    pub(super) source: Option<&'a str>,
    pub(super) is_burst: bool,
    /// The setting; `None`: all of the source or of its burst.
    pub(super) key: Option<&'a str>,
}

impl<'a> RejectedKey<'a> {
    /// Parses a key. Returns `None` for promotions and flushes, which are no settings.
    pub(super) fn of(setting: &'a str) -> Option<Self> {
        if setting.is_empty() {
            return Some(Self { source: None, is_burst: false, key: None });
        }
        let (part, rest) = setting.split_once('.')?;
        let (source, key) = match rest.split_once('.') {
            Some((source, key)) => (source, Some(key)),
            None => (rest, None),
        };
        let is_burst = match part {
            "sources" => false,
            "burst" => true,
            _ => return None,
        };
        Some(Self { source: Some(source), is_burst, key })
    }

    /// The word of the setting in an answer.
    pub(super) fn word(self) -> Option<String> {
        match (self.is_burst, self.key) {
            (false, key) => key.map(str::to_owned),
            (true, None) => Some("burst".to_owned()),
            (true, Some(key)) => Some(format!("burst_{key}")),
        }
    }
}
