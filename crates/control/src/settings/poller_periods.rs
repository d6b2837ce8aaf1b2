//! The periods of polls that changes of settings set, for the devices that a poller reads.

use super::compose::furthest;
use super::node_settings_cache::Active;
use crate::demand::Change;
use config::POLLED_SOURCES;
use model::Timestamp;
use model::setting::{NodeSettings, SettingValue};
use std::collections::BTreeMap;
use std::time::Duration;

/// The period of the polls of some devices by one protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedPeriod<'a> {
    /// The ID of the change.
    pub number: i64,
    /// The name of the protocol.
    pub source: &'static str,
    /// The period.
    pub period: Duration,
    /// Until when it holds.
    pub until: Timestamp,
    /// The devices.
    pub names: Vec<&'a str>,
}

/// Returns the periods that a change sets for sources of pollers.
pub fn polled_periods(settings: &NodeSettings) -> impl Iterator<Item = (&'static str, Duration)> {
    POLLED_SOURCES.into_iter().filter_map(|source| {
        match settings.sources.get(source)?.values.get("period")? {
            SettingValue::Duration(period) => Some((source, *period)),
            _ => None,
        }
    })
}

/// Whether a change concerns agents.
pub fn concerns_agents(settings: &NodeSettings) -> bool {
    let mut sources = settings.sources.keys();
    !settings.bursts.is_empty() || sources.any(|source| !config::is_only_polled(source))
}

impl Active {
    /// Returns the changed periods of each of these names: of each source, that of the latest change.
    pub fn periods_of<'a>(&self, names: &'a [String], now: Timestamp) -> Vec<NamedPeriod<'a>> {
        let mut found: BTreeMap<(i64, &'static str), NamedPeriod<'a>> = BTreeMap::new();
        let furthest = furthest(now);
        for name in names {
            let get = |at: usize| self.held.changes.get(at).map(|one| (one, &one.nodes));
            let changes = self.changes.find(name, get);
            let in_force = changes.into_iter().filter(|change| change.until > now);
            let periods = in_force.flat_map(|change| {
                polled_periods(&change.settings)
                    .map(move |(source, period)| (source, (change, period)))
            });
            // In the order of their IDs: the latest one remains.
            let latest: BTreeMap<&'static str, (&Change, Duration)> = periods.collect();
            for (source, (change, period)) in latest {
                let (number, until) = (change.number, change.until.min(furthest));
                let new = || NamedPeriod { number, source, period, until, names: Vec::new() };
                found.entry((number, source)).or_insert_with(new).names.push(name);
            }
        }
        found.into_values().collect()
    }

    /// Returns the largest ID of the changes that set a period of polls; 0 if there is none.
    pub fn newest_period_change(&self) -> i64 {
        let sets = |change: &&Change| polled_periods(&change.settings).next().is_some();
        self.held.changes.iter().filter(sets).map(|change| change.number).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demand::ActiveRequests;
    use crate::settings::compose::tests::change;
    use model::NodeList;

    fn period(section: &'static str, seconds: u64) -> (&'static str, &'static str, SettingValue) {
        (section, "period", SettingValue::Duration(Duration::from_secs(seconds)))
    }

    #[test]
    fn the_latest_change_of_each_device_and_protocol_counts() {
        let now = Timestamp::from_seconds(1_767_706_500);
        let until = |seconds: i64| now.plus(seconds * Timestamp::SECOND);
        let of = |number, nodes: &str, seconds, entries: &[_]| Change {
            nodes: NodeList::new(nodes).unwrap(),
            ..change(number, until(seconds), entries)
        };
        let enabled = ("sources.ipmi", "enabled", SettingValue::Switch(false));
        let changes = vec![
            of(1, "pdu-[1-2]", 60, &[period("sources.snmp", 1)]),
            of(2, "pdu-2", 30, &[period("sources.snmp", 2), period("sources.json", 3)]),
            of(3, "pdu-1", 0, &[period("sources.snmp", 4)]),
            of(4, "pdu-1", 60, &[period("sources.cpu", 1), enabled]),
        ];
        assert!(!concerns_agents(&changes[0].settings) && concerns_agents(&changes[3].settings));
        let active = Active::new(ActiveRequests { changes, ..ActiveRequests::default() });
        let names = ["pdu-1", "pdu-2", "pdu-3"].map(str::to_owned);
        let found = active.periods_of(&names, now);
        let found: Vec<_> = found
            .iter()
            .map(|one| (one.number, one.source, one.period.as_secs(), one.until, &*one.names))
            .collect();
        assert_eq!(
            found,
            [
                (1, "snmp", 1, until(60), &["pdu-1"][..]),
                (2, "json", 3, until(30), &["pdu-2"]),
                (2, "snmp", 2, until(30), &["pdu-2"]),
            ]
        );
        assert_eq!(active.newest_period_change(), 3);
    }

    #[test]
    fn a_long_change_reaches_twelve_hours() {
        let now = Timestamp::from_seconds(1_767_706_500);
        let long = change(1, now.plus(30 * 86_400_000_000), &[period("sources.snmp", 1)]);
        let held = ActiveRequests { changes: vec![long], ..ActiveRequests::default() };
        let names = ["n1".to_owned()];
        let until = Active::new(held).periods_of(&names, now)[0].until;
        assert_eq!(until, Timestamp::parse("2026-01-07T01:00:00Z").unwrap());
    }
}
