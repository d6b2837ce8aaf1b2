//! Changes that the server makes to the configuration, with their expiry and its one-time flush requests.

use crate::reading::plan::{NO_BURST, may_burst, source_settings};
use config::{AgentConfig, FirstReceived, RemoteChange, accept_settings};
use model::Timestamp;
use model::setting::{NodeSettings, Rejection, RejectionCode};
use std::collections::VecDeque;

/// Maximum number of remembered flush requests. The agent ignores a request that it remembers.
const SEEN_MAX: usize = 256;

/// Changes that the server makes.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    change: Option<RemoteChange>,
    received: FirstReceived,
    seen: VecDeque<(String, u64)>,
}

/// Actions that result from a change.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Sources that send their burst samples.
    pub(crate) flushes: Vec<String>,
    /// Settings that the node's own configuration rejects or shortens.
    pub(crate) rejected: Vec<Rejection>,
}

impl Changes {
    /// The change in effect, if there is one.
    pub(crate) const fn change(&self) -> Option<&RemoteChange> {
        self.change.as_ref()
    }

    /// Applies a change from the server, as far as the node's own file allows it.
    pub(crate) fn take(
        &mut self,
        generation: u64,
        settings: &[u8],
        config: &AgentConfig,
        now: Timestamp,
    ) -> Taken {
        let sources = source_settings();
        let (settings, malformed) = match wire::decode_settings(settings) {
            Ok(settings) => (settings, None),
            Err(error) => (NodeSettings::default(), Some(rejection("", &error))),
        };
        let (remote, burst) = (&config.remote, &config.burst);
        let mut change =
            accept_settings(&settings, now, &mut self.received, remote, burst, &sources);
        let rejected = &mut change.rejected;
        rejected.extend(malformed);
        change.bursts.retain(|source, _| {
            let may = may_burst(source);
            if !may {
                let code = RejectionCode::Unsupported;
                let why = format!("`{source}` {NO_BURST}");
                rejected.push(Rejection { code, ..rejection(&format!("burst.{source}"), &why) });
            }
            may
        });
        let flushes = change.flushes.iter().filter(|flush| self.is_new(flush)).cloned();
        let flushes: Vec<_> = flushes.collect();
        for flush in &flushes {
            if self.seen.len() >= SEEN_MAX {
                self.seen.pop_front();
            }
            self.seen.push_back(flush.clone());
        }
        let until =
            change.next_end().map_or_else(String::new, |end| format!("; the first until {end}"));
        log::info!("the server's settings {generation} change {}{until}", change.summary());
        for rejected in &change.rejected {
            log::warn!("rejected of the server's settings {generation}: {rejected}");
        }
        let rejected = std::mem::take(&mut change.rejected);
        self.change = (generation != 0).then_some(change);
        Taken { flushes: flushes.into_iter().map(|(source, _)| source).collect(), rejected }
    }

    fn is_new(&self, flush: &(String, u64)) -> bool {
        !self.seen.contains(flush)
    }

    /// Removes expired parts. Returns whether there were any.
    pub(crate) fn expire(&mut self, now: Timestamp) -> bool {
        self.change.as_mut().is_some_and(|change| change.expire(now))
    }

    /// Time at which the next part expires.
    pub(crate) fn next_end(&self) -> Option<Timestamp> {
        self.change.as_ref().and_then(RemoteChange::next_end)
    }
}

/// A rejection of settings that cannot be decoded.
fn rejection(setting: &str, reason: &dyn std::fmt::Display) -> Rejection {
    let (setting, reason) = (setting.to_owned(), reason.to_string());
    Rejection { setting, code: RejectionCode::Malformed, reason, until: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::{ConfigFile, ConfigInputs};
    use model::setting::{FlushRequest, Kind, Override, SettingValue, show_bytes, show_duration};
    use std::time::Duration;

    fn config(allow: &str) -> AgentConfig {
        let flags = vec![("remote.allow".to_owned(), config::Raw::One(allow.to_owned()))];
        let given = ConfigInputs { file: ConfigFile::None, environment: &|_| None, flags };
        crate::reading::plan::load(&given).unwrap().config
    }

    /// A valid text of a setting.
    fn sample(kind: Kind, default: &str) -> String {
        match kind {
            _ if !default.is_empty() && kind.check(default).is_ok() => default.to_owned(),
            Kind::Switch => "true".to_owned(),
            Kind::Number { max, .. } => max.to_string(),
            Kind::Duration { max, .. } => show_duration(max),
            Kind::Bytes { max, .. } => show_bytes(max),
            Kind::Choice(words) => words[0].to_owned(),
            Kind::List(_) => "a,b".to_owned(),
            Kind::Command(_) => "/bin/a\0b,c\0".to_owned(),
            Kind::Text(_) => "text".to_owned(),
            Kind::TextOf(..) | Kind::ListOf(..) => String::new(),
        }
    }

    #[test]
    fn every_setting_of_every_source_passes_typed() {
        let mut count = 0;
        for source in source_settings() {
            for setting in source.settings() {
                let text = sample(setting.kind, &setting.default);
                let value = setting.kind.value(&text).unwrap();
                let key = setting.key.rsplit('.').next().unwrap();
                let values = [(key.into(), value.clone())].into();
                let sources = [(source.name.into(), Override { values, until: None })].into();
                let settings = NodeSettings { sources, ..NodeSettings::default() };
                let decoded = wire::decode_settings(&wire::encode_settings(&settings));
                assert_eq!(decoded, Ok(settings), "{}", setting.key);
                assert_eq!(setting.kind.accepts(&value), Ok(()), "{}", setting.key);
                count += 1;
            }
        }
        assert!(count > 100, "{count} settings");
    }

    #[test]
    fn what_a_server_may_change_of_every_source_is_applied_as_typed() {
        let config = config("sources,periods,events");
        for source in source_settings() {
            let own = |it: &&model::setting::OptionSpec| matches!(it.kind, Kind::Command(_));
            let period = SettingValue::Duration(Duration::from_millis(1500));
            let mut values: std::collections::BTreeMap<Box<str>, SettingValue> =
                [("enabled".into(), SettingValue::Switch(true)), ("period".into(), period)].into();
            if source.name == "perf" {
                let events = vec!["cache_ll".into(), "emulation_faults".into()];
                values.insert("events".into(), SettingValue::List(events));
            }
            let changed = Override { values, until: None };
            let sources = [(source.name.into(), changed)].into();
            let settings = NodeSettings { sources, ..NodeSettings::default() };
            let mut changes = Changes::default();
            let settings = wire::encode_settings(&settings);
            let taken = changes.take(1, &settings, &config, Timestamp(0));
            let accepted = &changes.change().unwrap().sources;
            if source.options.iter().find(own).is_some() {
                assert!(accepted.is_empty() && taken.rejected.len() == 2, "{taken:?}");
                continue;
            }
            assert_eq!(taken.rejected, [], "{}", source.name);
            let accepted = &accepted[source.name];
            assert_eq!(accepted.enabled, Some(true));
            assert_eq!(accepted.period, Some(Duration::from_millis(1500)));
            let events = (source.name == "perf").then_some("cache_ll,emulation_faults");
            assert_eq!(accepted.events.as_deref(), events);
        }
    }

    #[test]
    fn each_number_flushes_once() {
        let (mut changes, config) = (Changes::default(), config("bursts"));
        let mut take = |numbers: &[u64]| {
            let flush = |number: &u64| FlushRequest { source: "cpu".into(), number: *number };
            let flushes = numbers.iter().map(flush).collect();
            let settings = NodeSettings { flushes, ..NodeSettings::default() };
            let settings = wire::encode_settings(&settings);
            changes.take(1, &settings, &config, Timestamp(0)).flushes
        };
        assert_eq!(take(&[17]), ["cpu"]);
        assert_eq!(take(&[17]), [""; 0]);
        assert_eq!(take(&[17, 18]), ["cpu"]);
        assert_eq!(take(&[17]), [""; 0], "one that was seen before another is not new");
    }

    #[test]
    fn a_value_that_a_source_reports_once_is_not_kept() {
        let (mut changes, config) = (Changes::default(), config("bursts"));
        let until = Some(Timestamp::from_seconds(60));
        let burst = |name: &str| (name.into(), Override { until, ..Override::default() });
        let bursts = ["exec", "cpu"].map(burst).into();
        let settings = NodeSettings { bursts, ..NodeSettings::default() };
        let settings = wire::encode_settings(&settings);
        let taken = changes.take(3, &settings, &config, Timestamp(0));
        assert_eq!(taken.rejected.len(), 1, "{taken:?}");
        let Rejection { setting, code, .. } = &taken.rejected[0];
        assert_eq!((&**setting, *code), ("burst.exec", RejectionCode::Unsupported));
        let held = |changes: &Changes| {
            let bursts = &changes.change().unwrap().bursts;
            bursts.keys().map(String::clone).collect::<Vec<_>>()
        };
        assert_eq!(held(&changes), ["cpu"]);
        assert_eq!(changes.next_end(), Some(Timestamp::from_seconds(60)));
        assert!(changes.expire(Timestamp::from_seconds(60)));
        assert_eq!((held(&changes).len(), changes.next_end()), (0, None));
        changes.take(0, b"", &config, Timestamp(0));
        assert_eq!(changes.change(), None);
        // Damaged settings change nothing, and are reported so that the server does not send them again.
        let damaged = changes.take(4, b"\xff", &config, Timestamp(0));
        assert_eq!(damaged.rejected[0].code, RejectionCode::Malformed);
        assert_eq!(changes.change(), Some(&RemoteChange::default()));
    }
}
