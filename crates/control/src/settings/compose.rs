//! Composes the settings of a node: the server's agent file, changes, promotions and flushes.

use super::fitting_overrides::{FittingOverrides, flush_end};
use super::fitting_promotions::FittingPromotions;
use crate::demand::{Change, Flush, Promotion};
use model::Timestamp;
use model::setting::{FLUSHES_MAX, FlushRequest, NodeSettings, Override};
use std::cmp::Reverse;
use std::collections::BTreeMap;

const HOUR: i64 = 3600 * Timestamp::SECOND;
/// Maximum lifetime of settings: a node without contact to its server falls back to its own file.
const REACH_US: i64 = 12 * HOUR;

/// The start of the hour.
const fn hour_of(now: Timestamp) -> Timestamp {
    Timestamp(now.0.div_euclid(HOUR) * HOUR)
}

/// Latest end of what is sent at a time. It changes once an hour.
pub(super) const fn furthest(now: Timestamp) -> Timestamp {
    hour_of(now).plus(REACH_US)
}

/// Whether a flush is still sent.
pub(super) fn flush_holds(flush: &Flush, now: Timestamp) -> bool {
    flush_end(flush.made) > now
}

/// Entries that concern one node.
#[derive(Debug, Default)]
pub(super) struct NodeEntries<'a> {
    pub(super) changes: Vec<&'a Change>,
    pub(super) promotions: Vec<&'a Promotion>,
    pub(super) flushes: Vec<&'a Flush>,
}

impl NodeEntries<'_> {
    pub(super) const fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.promotions.is_empty() && self.flushes.is_empty()
    }
}

/// The composed settings of a node.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Composed {
    pub(super) settings: NodeSettings,
    /// Until when they are valid.
    pub(super) valid_until: Timestamp,
    /// Number of promotions that did not fit.
    pub(super) cut: usize,
    /// Sections of changes that did not fit, with the ID of their change.
    pub(super) left_out: Vec<(i64, Box<str>)>,
    /// Number of sources whose flush did not fit.
    pub(super) flushes_cut: usize,
}

/// Composes the settings of a node. Requests of administrators come before promotions of users, so that no
/// user displaces them.
pub(super) fn compose(base: &NodeSettings, of: &NodeEntries<'_>, now: Timestamp) -> Composed {
    let (furthest, mut valid_until) = (furthest(now), hour_of(now).plus(HOUR));
    let mut reach = |until: Option<Timestamp>| {
        valid_until = until.map_or(valid_until, |until| valid_until.min(until));
        until.map_or(furthest, |until| until.min(furthest))
    };
    let mut base = base.clone();
    // An expired section of the file must not end a change of the same source.
    let mut holds = |changed: &Override| {
        let holds = changed.until.is_none_or(|until| until > now);
        if let (true, Some(until)) = (holds, changed.until) {
            reach(Some(until));
        }
        holds
    };
    base.sources.retain(|_, changed| holds(changed));
    base.bursts.retain(|_, changed| holds(changed));
    let mut fitting = FittingOverrides::after(base);
    for change in &of.changes {
        fitting.take(change, reach(Some(change.until)));
    }
    let FittingOverrides { mut settings, cut: left_out, .. } = fitting;
    let most = FLUSHES_MAX.saturating_sub(settings.flushes.len());
    let (flushes, flushes_cut) = newest(&of.flushes, most);
    for (source, flush) in flushes {
        reach(Some(flush_end(flush.made)));
        let number = u64::try_from(flush.number).unwrap_or(0);
        settings.flushes.push(FlushRequest { source: source.into(), number });
    }
    let bytes = wire::encode_settings(&settings).len();
    let mut fitting = FittingPromotions::after(bytes, settings.promotions.len());
    fitting.fill(&of.promotions, &mut reach);
    for (metric, until) in fitting.listed {
        let end = settings.promotions.entry(metric.into()).or_insert(until);
        *end = until.max(*end);
    }
    Composed { settings, valid_until, cut: fitting.cut, left_out, flushes_cut }
}

/// Returns the latest flush of each source, for the `most` sources flushed last, and the number of sources
/// cut. A node that reports has executed the cut flushes long ago.
fn newest<'a>(flushes: &[&'a Flush], most: usize) -> (BTreeMap<&'a str, &'a Flush>, usize) {
    let newest: BTreeMap<&str, &Flush> = flushes.iter().map(|one| (&*one.source, *one)).collect();
    let mut numbers: Vec<i64> = newest.values().map(|flush| flush.number).collect();
    numbers.sort_unstable_by_key(|number| Reverse(*number));
    let cut = numbers.len().saturating_sub(most);
    numbers.truncate(most);
    (newest.into_iter().filter(|(_, flush)| numbers.contains(&flush.number)).collect(), cut)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::demand::PromotionOrigin;
    use model::NodeList;
    use model::setting::{SETTINGS_BYTES_MAX, SettingValue};
    use std::time::Duration;

    /// 2026-01-06T13:35:00Z.
    const NOW: Timestamp = Timestamp::from_seconds(1_767_706_500);

    fn minutes(n: i64) -> Timestamp {
        NOW.plus(n * 60 * Timestamp::SECOND)
    }

    /// Settings, each with its section.
    pub(in crate::settings) fn settings(entries: &[(&str, &str, SettingValue)]) -> NodeSettings {
        let mut settings = NodeSettings::default();
        for (section, key, value) in entries {
            let (part, source) = section.split_once('.').unwrap();
            let part = if part == "burst" { &mut settings.bursts } else { &mut settings.sources };
            let changed = part.entry(source.into()).or_default();
            changed.values.insert((*key).into(), value.clone());
        }
        settings
    }

    pub(in crate::settings) fn change(
        number: i64,
        until: Timestamp,
        entries: &[(&str, &str, SettingValue)],
    ) -> Change {
        Change {
            number,
            nodes: NodeList::new("n1").unwrap(),
            until,
            made: NOW,
            by: "root".into(),
            settings: settings(entries),
        }
    }

    fn seconds(seconds: u64) -> SettingValue {
        SettingValue::Duration(Duration::from_secs(seconds))
    }

    fn list(texts: &[&str]) -> SettingValue {
        SettingValue::List(texts.iter().map(|text| (*text).into()).collect())
    }

    fn promotion(metric: &str, until: Option<Timestamp>) -> Promotion {
        Promotion {
            number: 1,
            nodes: NodeList::new("n1").unwrap(),
            metric: metric.into(),
            until,
            made: NOW,
            by: "hand".into(),
            origin: PromotionOrigin::Hand,
            job: None,
            uid: None,
        }
    }

    fn flush(number: i64, source: &str, made: Timestamp) -> Flush {
        let nodes = NodeList::new("n1").unwrap();
        Flush { number, nodes, source: source.into(), made, by: "root".into() }
    }

    #[test]
    fn the_later_change_counts_and_the_first_end_of_a_source() {
        let enabled = ("sources.load", "enabled", SettingValue::Switch(true));
        let mut base = settings(&[("sources.load", "period", seconds(5)), enabled.clone()]);
        base.promotions.insert("x".into(), minutes(60));
        let one = change(1, minutes(10), &[("sources.load", "period", seconds(1))]);
        let events = ("sources.perf", "events", list(&["cache_ll"]));
        let keep = ("burst.cpu", "keep", seconds(60));
        let of_two = [("sources.load", "period", seconds(2)), events.clone(), keep.clone()];
        let two = change(2, minutes(5), &of_two);
        let promotions = [promotion("perf_.*", None), promotion("perf_.*", Some(minutes(9)))];
        let flushes = [16, 17].map(|number| flush(number, "cpu", minutes(-1)));
        let of = NodeEntries {
            changes: vec![&one, &two],
            promotions: promotions.iter().collect(),
            flushes: flushes.iter().collect(),
        };
        let composed = compose(&base, &of, NOW);
        let load = ("sources.load", "period", seconds(2));
        let mut want = settings(&[load, enabled, events, keep]);
        for changed in want.sources.values_mut().chain(want.bursts.values_mut()) {
            changed.until = Some(minutes(5));
        }
        let reach = Timestamp::parse("2026-01-07T01:00:00Z").unwrap();
        want.promotions = [("perf_.*".into(), reach), ("x".into(), minutes(60))].into();
        want.flushes = vec![FlushRequest { source: "cpu".into(), number: 17 }];
        assert_eq!(composed.settings, want);
        assert_eq!((composed.valid_until, composed.cut), (minutes(5), 0));
        let later = compose(&base, &of, minutes(1));
        assert_eq!(later.settings, composed.settings, "they stay within the hour");
    }

    #[test]
    fn settings_have_what_a_node_accepts_however_much_is_requested() {
        let events = list(&["an_event_with_a_long_name"; 400]);
        let (mut changes, mut flushes) = (Vec::new(), Vec::new());
        for n in 1..=20 {
            let (source, burst) = (format!("sources.s{n}"), format!("burst.s{n}"));
            let entries = [(&*burst, "keep", seconds(60)), (&*source, "events", events.clone())];
            changes.push(change(n, minutes(10), &entries));
            flushes.push(flush(n, &format!("s{n}"), NOW));
        }
        let promotions = [promotion("perf_.*", None)];
        let of = NodeEntries {
            changes: changes.iter().collect(),
            promotions: promotions.iter().collect(),
            flushes: flushes.iter().collect(),
        };
        let composed = compose(&NodeSettings::default(), &of, NOW);
        let NodeSettings { sources, bursts, promotions, flushes } = &composed.settings;
        assert!(wire::encode_settings(&composed.settings).len() <= SETTINGS_BYTES_MAX);
        assert_eq!((bursts.len(), sources.len(), flushes.len()), (4, 5, 16));
        assert_eq!((composed.left_out.len(), composed.flushes_cut), (16 + 15, 4));
        assert!(flushes.iter().all(|flush| (5..=20).contains(&flush.number)), "{flushes:?}");
        assert_eq!(promotions.len() + composed.cut, 1);
        // The server's agent file takes precedence.
        let mut base = settings(&[("burst.a", "keep", seconds(60))]);
        base.flushes.push(FlushRequest { source: "x".into(), number: 1 });
        let composed = compose(&base, &of, NOW);
        assert_eq!(composed.settings.bursts.len(), 4);
        assert_eq!((composed.left_out.len(), composed.flushes_cut), (17 + 15, 5));
    }

    #[test]
    fn settings_reach_twelve_hours_and_are_renewed_each_hour() {
        let forever = promotion("x", None);
        let of = NodeEntries { promotions: vec![&forever], ..NodeEntries::default() };
        let Composed { settings, valid_until, .. } = compose(&NodeSettings::default(), &of, NOW);
        let reach = Timestamp::parse("2026-01-07T01:00:00Z").unwrap();
        assert_eq!(settings.promotions["x"], reach);
        assert_eq!(valid_until, minutes(25));
        let later = compose(&NodeSettings::default(), &of, valid_until).settings;
        assert_eq!(later.promotions["x"], reach.plus(HOUR));
    }

    #[test]
    fn the_end_of_the_file_counts_if_it_is_first_and_until_it_is_over() {
        let mut base = settings(&[("sources.load", "enabled", SettingValue::Switch(true))]);
        base.sources.values_mut().for_each(|changed| changed.until = Some(minutes(1)));
        let one = change(1, minutes(10), &[("sources.load", "period", seconds(1))]);
        let of = NodeEntries { changes: vec![&one], ..NodeEntries::default() };
        let load = |now| {
            let Composed { settings, valid_until, .. } = compose(&base, &of, now);
            let load = &settings.sources["load"];
            (load.values.len(), load.until, valid_until)
        };
        assert_eq!(load(NOW), (2, Some(minutes(1)), minutes(1)));
        assert_eq!(load(minutes(1)), (1, Some(minutes(10)), minutes(10)));
    }
}
