//! A configuration that the server asks for, within what the node's own file allows.
//!
//! It is a text such as
//!
//! ```toml
//! until = "2026-01-06T14:00:00Z"
//! [sources.taskstats]
//! period = "1s"
//! [sources.filesystem]
//! enabled = false
//! ```
//!
//! Never a path, command, address or credential: of a source it may name `enabled` and `period`, and
//! nothing beside them but `until`; of a source that runs a program, nothing at all. What is not allowed is refused entry by entry, and reported.

use crate::RemoteSettings;
use crate::load::{ConfigError, Values};
use crate::setting::{Kind, Setting, SourceSettings};
use model::Timestamp;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Longest text that is read.
const TEXT_BYTES_MAX: usize = 64 * 1024;

/// The changes that a node grants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemoteChange {
    /// When they end by themselves.
    pub until: Timestamp,
    /// By source: switched on or off, and read how often.
    pub sources: BTreeMap<String, (Option<bool>, Option<Duration>)>,
    /// What was refused, for the log and the server: one sentence each.
    pub refused: Vec<String>,
}

/// Reads what a server asks for. Every entry stands for itself: one that is refused does not stop the
/// others.
pub fn read_remote(
    text: &[u8],
    now: Timestamp,
    bounds: &RemoteSettings,
    sources: &[SourceSettings],
) -> RemoteChange {
    let mut change = RemoteChange { until: longest(now, bounds), ..RemoteChange::default() };
    let text = match std::str::from_utf8(text) {
        Ok(text) if text.len() <= TEXT_BYTES_MAX => text,
        Ok(_) => return refused(change, format!("it has more than {TEXT_BYTES_MAX} bytes")),
        Err(_) => return refused(change, "it is not UTF-8".to_owned()),
    };
    let mut errors = Vec::new();
    let values = Values::of_text(settings(sources), Path::new("server"), text, &mut errors);
    if let Some(until) = optional(&values, "until", &mut errors) {
        change.until = change.until.min(until);
    }
    let allows = |word: &str| bounds.allow.iter().any(|allowed| allowed == word);
    for source in sources {
        let key = |name: &str| format!("sources.{}.{name}", source.name);
        let mut enabled = optional(&values, &key("enabled"), &mut errors);
        let mut period: Option<Duration> = optional(&values, &key("period"), &mut errors);
        if source.runs_a_program() {
            for name in ["enabled", "period"] {
                if values.raw(&key(name)).is_some() {
                    let what = "it runs a program, and only the node's own file changes it";
                    errors.push(values.error(&key(name), what));
                }
            }
            continue;
        }
        if enabled.is_some() && !allows("sources") {
            errors.push(values.error(&key("enabled"), "`remote.allow` has no `sources`"));
            enabled = None;
        }
        if period.is_some() && !allows("periods") {
            errors.push(values.error(&key("period"), "`remote.allow` has no `periods`"));
            period = None;
        }
        if period.is_some_and(|period| period < bounds.period_min) {
            errors.push(values.error(&key("period"), "shorter than `remote.period_min`"));
            period = None;
        }
        if enabled.is_some() || period.is_some() {
            change.sources.insert(source.name.to_owned(), (enabled, period));
        }
    }
    change.refused.extend(errors.iter().map(ToString::to_string));
    change
}

fn longest(now: Timestamp, bounds: &RemoteSettings) -> Timestamp {
    now.plus(i64::try_from(bounds.time_max.as_micros()).unwrap_or(i64::MAX))
}

fn refused(mut change: RemoteChange, why: String) -> RemoteChange {
    change.refused.push(why);
    change
}

fn optional<T: crate::text::Value>(
    values: &Values,
    key: &str,
    errors: &mut Vec<ConfigError>,
) -> Option<T> {
    values.raw(key)?;
    values.get(key, errors)
}

fn settings(sources: &[SourceSettings]) -> Vec<Setting> {
    let named =
        |setting: &Setting| setting.key.ends_with(".enabled") || setting.key.ends_with(".period");
    let mut list: Vec<_> =
        sources.iter().flat_map(SourceSettings::settings).filter(named).collect();
    list.push(Setting {
        key: "until".into(),
        kind: Kind::Text("TIME"),
        default: "".into(),
        unset: "",
        help: "".into(),
        topic: "".into(),
        in_file_only: false,
    });
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::setting::OptionSpec;

    static OPTIONS: [OptionSpec; 1] =
        [OptionSpec { name: "enabled_too", kind: Kind::Switch, default: "true", help: "" }];

    static COMMAND: [OptionSpec; 1] =
        [OptionSpec { name: "command", kind: Kind::Command("WORD"), default: "", help: "" }];

    fn source(name: &'static str) -> SourceSettings {
        SourceSettings { name, help: "", period: None, options: &OPTIONS }
    }

    fn bounds(allow: &[&str]) -> RemoteSettings {
        RemoteSettings {
            allow: allow.iter().map(|word| (*word).to_owned()).collect(),
            period_min: Duration::from_millis(100),
            time_max: Duration::from_secs(3600),
        }
    }

    fn read(text: &str, allow: &[&str]) -> RemoteChange {
        let run = SourceSettings { options: &COMMAND, ..source("run") };
        let sources = [source("load"), source("cgroup"), run];
        read_remote(text.as_bytes(), Timestamp(0), &bounds(allow), &sources)
    }

    #[test]
    fn what_is_allowed_is_granted_for_a_time() {
        let text =
            "until = 1970-01-01T00:10:00Z\n[sources.load]\nenabled = false\nperiod = \"1s\"\n";
        let change = read(text, &["sources", "periods"]);
        assert_eq!(change.refused, [""; 0]);
        assert_eq!(change.until, Timestamp::from_seconds(600));
        assert_eq!(change.sources["load"], (Some(false), Some(Duration::from_secs(1))));
        let change = read("until = \"2030-01-01\"", &["sources"]);
        assert_eq!(change.until, Timestamp::from_seconds(3600));
    }

    #[test]
    fn each_refusal_stands_for_itself() {
        let text = "server = \"http://evil\"\n[sources.load]\nperiod = \"1ms\"\n[sources.cgroup]\n\
                    enabled = true\nperiod = \"1s\"\nenabled_too = false\n[sources.lod]\nenabled = false\n";
        let change = read(text, &["periods"]);
        assert_eq!(change.sources.len(), 1);
        assert_eq!(change.sources["cgroup"], (None, Some(Duration::from_secs(1))));
        assert_eq!(
            change.refused,
            [
                "server:1:1: unknown key `server`",
                "server:7:1: unknown key `sources.cgroup.enabled_too`; is \
                 `sources.cgroup.enabled` meant?",
                "server:8:10: unknown key `sources.lod`; is `sources.load` meant?",
                "server:3:10: shorter than `remote.period_min`",
                "server:5:11: `remote.allow` has no `sources`",
            ]
        );
    }

    #[test]
    fn a_source_that_runs_a_program_is_not_the_servers() {
        let text = "[sources.run]\nenabled = true\nperiod = \"1s\"\ncommand = [\"/bin/sh\"]\n";
        let change = read(text, &["sources", "periods"]);
        assert!(change.sources.is_empty(), "{change:?}");
        assert_eq!(change.refused.len(), 3, "{change:?}");
        assert!(change.refused[1].contains("only the node's own file"), "{change:?}");
    }

    #[test]
    fn garbage_changes_nothing() {
        for text in [&b"\xff\xfe"[..], b"[[[", &[b'#'; TEXT_BYTES_MAX + 1]] {
            let change = read_remote(text, Timestamp(0), &bounds(&["sources"]), &[source("load")]);
            assert!(change.sources.is_empty() && !change.refused.is_empty(), "{change:?}");
        }
    }
}
