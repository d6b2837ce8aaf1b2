//! Sources that the settings exclude, and the origin of the setting. The server shows it to users who miss a metric.

use crate::reading::plan::{off, sources};
use config::{AgentConfig, MetricPattern, RemoteChange};
use model::setting::{UnreadReason, UnreadSource};

/// Lists the sources that these settings disable entirely or in part.
pub(crate) fn unread(config: &AgentConfig, change: Option<&RemoteChange>) -> Vec<UnreadSource> {
    let mut unread = Vec::new();
    for spec in sources() {
        let (name, Some(source)) = (spec.name, config.sources.get(spec.name)) else { continue };
        let change_of = change.and_then(|change| change.sources.get(name));
        let reason = match (change_of.and_then(|change_of| change_of.enabled), source.enabled) {
            (Some(true), _) => continue,
            (_, false) => UnreadReason::File,
            (Some(false), true) => UnreadReason::Server,
            (None, true) if off(spec, &source.optional, change).is_empty() => continue,
            (None, true) => UnreadReason::Optional,
        };
        let optional = source.optional.iter().filter(|_| reason == UnreadReason::Optional);
        let optional = optional.map(|pattern| MetricPattern::as_str(pattern).to_owned()).collect();
        unread.push(UnreadSource { source: name.to_owned(), reason, optional });
    }
    unread
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::{ConfigFile, ConfigInputs, Promotion, SourceChange};
    use model::Timestamp;

    #[test]
    fn the_setting_that_disables_a_source_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("agent.toml");
        let text = "[sources.load]\nenabled = false\noptional = true\n[sources.memory]\nenabled = false\n\
                    [sources.uptime]\noptional = [\"uptime_idle.*\", \"x\"]\n[sources.vmstat]\noptional = true\n";
        std::fs::write(&file, text).unwrap();
        let file = ConfigFile::Given(file);
        let given = ConfigInputs { file, environment: &|_| None, flags: Vec::new() };
        let config = crate::reading::plan::load(&given).unwrap().config;
        let lines_of = |change| {
            let line = |it: UnreadSource| {
                let optional = it.optional.iter().map(|text| format!(" {text}"));
                format!("{} {}{}", it.source, it.reason.word(), optional.collect::<String>())
            };
            let mut lines_of: Vec<_> = unread(&config, change).into_iter().map(line).collect();
            lines_of.sort_unstable();
            lines_of
        };
        assert_eq!(
            lines_of(None),
            ["load file", "memory file", "uptime optional uptime_idle.* x", "vmstat optional .*"]
        );
        let switched = |name: &str, enabled| {
            let change = SourceChange { enabled: Some(enabled), ..SourceChange::default() };
            (name.to_owned(), change)
        };
        let promoted = |metric| Promotion {
            metric: MetricPattern::new(metric).unwrap(),
            until: Timestamp::from_seconds(60),
        };
        let change = RemoteChange {
            sources: [("cpu", false), ("load", true), ("memory", false), ("vmstat", true)]
                .map(|(name, enabled)| switched(name, enabled))
                .into(),
            promotions: vec![promoted("uptime_.*")],
            ..RemoteChange::default()
        };
        // The server disables `memory`, too, but it is off by the file anyway.
        assert_eq!(lines_of(Some(&change)), ["cpu server", "memory file"]);
        let change = RemoteChange { promotions: vec![promoted("x")], ..RemoteChange::default() };
        assert!(lines_of(Some(&change)).contains(&"uptime optional uptime_idle.* x".to_owned()));
    }

    #[test]
    fn by_default_all_is_read() {
        let given =
            ConfigInputs { file: ConfigFile::None, environment: &|_| None, flags: Vec::new() };
        assert_eq!(unread(&crate::reading::plan::load(&given).unwrap().config, None), []);
    }
}
