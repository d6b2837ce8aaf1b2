//! The periods of polls that changes of settings set, for the devices that a poller reads.

use super::compose::furthest;
use super::node_settings_cache::Active;
use crate::demand::Change;
use config::POLLED_SOURCES;
use model::Timestamp;
use model::setting::{NodeSettings, SettingValue};
use std::collections::BTreeMap;
use std::time::Duration;

/// Most changes of the period of a device by one protocol that its poller receives: the latest ones.
pub const PERIODS_OF_DEVICE_MAX: usize = 8;

/// The period of the polls of some devices by one protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedPeriod<'a> {
    /// The ID of the change.
    pub number: i64,
    /// The name of the protocol.
    pub source: &'static str,
    /// The period.
    pub period: Duration,
    /// Until when it holds, at most 12 h ahead.
    pub until: Timestamp,
    /// The end of the change.
    pub end: Timestamp,
    /// The devices.
    pub names: Vec<&'a str>,
}

/// Changes of the periods of a device, by source.
pub type PeriodChanges<'a> = BTreeMap<&'static str, Vec<(&'a Change, Duration)>>;

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
    /// Returns the changed periods of each of these names: of each source those of the latest changes, because a poller may
    /// reject the latest one.
    pub fn periods_of<'a>(&self, names: &'a [String], now: Timestamp) -> Vec<NamedPeriod<'a>> {
        let mut found: BTreeMap<(i64, &'static str), NamedPeriod<'a>> = BTreeMap::new();
        let furthest = furthest(now);
        for name in names {
            for (source, changes) in self.period_changes_of(name, now) {
                for (change, period) in changes {
                    let (number, end) = (change.number, change.until);
                    let until = end.min(furthest);
                    let new =
                        || NamedPeriod { number, source, period, until, end, names: Vec::new() };
                    found.entry((number, source)).or_insert_with(new).names.push(name);
                }
            }
        }
        found.into_values().collect()
    }

    /// Returns the changes of the periods of a device that its poller receives: of each source at most
    /// [`PERIODS_OF_DEVICE_MAX`], the latest one first.
    pub fn period_changes_of(&self, name: &str, now: Timestamp) -> PeriodChanges<'_> {
        let get = |at: usize| self.held.changes.get(at).map(|one| (one, &one.nodes));
        let mut changes = self.changes.find(name, get);
        changes.retain(|change| change.until > now);
        let mut found = PeriodChanges::new();
        // They are in the order of their IDs.
        for change in changes.into_iter().rev() {
            for (source, period) in polled_periods(&change.settings) {
                let of_source = found.entry(source).or_default();
                if of_source.len() < PERIODS_OF_DEVICE_MAX {
                    of_source.push((change, period));
                }
            }
        }
        found
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
    fn a_poller_receives_the_latest_changes_of_each_device_and_protocol() {
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
                (1, "snmp", 1, until(60), &["pdu-1", "pdu-2"][..]),
                (2, "json", 3, until(30), &["pdu-2"]),
                (2, "snmp", 2, until(30), &["pdu-2"]),
            ]
        );
        assert_eq!(active.newest_period_change(), 3);
        let latest = active.period_changes_of("pdu-2", now);
        let numbers = |source: &str| latest[source].iter().map(|(one, _)| one.number);
        assert_eq!(numbers("snmp").collect::<Vec<_>>(), [2, 1]);
    }

    #[test]
    fn the_number_of_changes_of_a_device_is_bounded() {
        let now = Timestamp::from_seconds(1_767_706_500);
        let one = |number| change(number, now.plus(1), &[period("sources.snmp", 1)]);
        let changes = (1..=20).map(one).collect();
        let active = Active::new(ActiveRequests { changes, ..ActiveRequests::default() });
        let names = ["n1".to_owned()];
        let numbers: Vec<i64> =
            active.periods_of(&names, now).iter().map(|one| one.number).collect();
        assert_eq!(numbers, (13..=20).collect::<Vec<_>>());
    }

    #[test]
    fn a_long_change_reaches_twelve_hours() {
        let now = Timestamp::from_seconds(1_767_706_500);
        let long = change(1, now.plus(30 * 86_400_000_000), &[period("sources.snmp", 1)]);
        let held = ActiveRequests { changes: vec![long], ..ActiveRequests::default() };
        let names = ["n1".to_owned()];
        let active = Active::new(held);
        let sent = &active.periods_of(&names, now)[0];
        assert_eq!(sent.until, Timestamp::parse("2026-01-07T01:00:00Z").unwrap());
        assert_eq!(sent.end, now.plus(30 * 86_400_000_000));
    }
}
