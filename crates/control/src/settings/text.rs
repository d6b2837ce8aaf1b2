//! Composes the text for a node, as the TOML of docs/decisions/0017-on-demand.md.

use super::fitting_promotions::FittingPromotions;
use super::fitting_sections::FittingSections;
use crate::demand::{Change, FLUSH_LISTED_US, Flush, Promotion};
use config::FLUSHES_MAX;
use model::Timestamp;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write;
use toml::de::{DeTable, DeValue};

const HOUR: i64 = 3600 * Timestamp::SECOND;
/// Maximum lifetime of a text: a node without contact to its server falls back to its own file.
const REACH_US: i64 = 12 * HOUR;

/// The server's agent file, parsed.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct AgentFile {
    until: Option<Timestamp>,
    top: BTreeMap<String, String>,
    sections: Sections,
    /// Arrays of tables: each table with its name.
    lists: Vec<(String, BTreeMap<String, String>)>,
}

pub(super) type Sections = BTreeMap<String, BTreeMap<String, String>>;

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

impl AgentFile {
    /// Parses the file, or returns the reason why it is invalid.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let table = DeTable::parse(text).map_err(|error| error.to_string().trim().to_owned())?;
        let mut base = Self::default();
        for (key, value) in table.get_ref() {
            let (key, value) = (key.get_ref(), value.get_ref());
            let tables = value.as_array().filter(|array| {
                !array.is_empty() && array.iter().all(|value| value.get_ref().is_table())
            });
            match (value, tables) {
                (DeValue::Table(table), _) => base.section(key, table),
                (_, Some(tables)) => {
                    let tables = tables.iter().filter_map(|value| value.get_ref().as_table());
                    base.lists.extend(tables.map(|table| (word(key), settings(table))));
                }
                _ => {
                    let text = written(value);
                    if key == "until" {
                        base.until = Timestamp::parse(text.trim_matches('"')).ok();
                    }
                    base.top.insert(word(key), text);
                }
            }
        }
        Ok(base)
    }

    fn section(&mut self, name: &str, table: &DeTable<'_>) {
        let mut plain = BTreeMap::new();
        for (key, value) in table {
            match value.get_ref() {
                DeValue::Table(table) => {
                    let name = format!("{}.{}", word(name), word(key.get_ref()));
                    self.sections.insert(name, settings(table));
                }
                value => drop(plain.insert(word(key.get_ref()), written(value))),
            }
        }
        if !plain.is_empty() {
            self.sections.insert(word(name), plain);
        }
    }
}

fn settings(table: &DeTable<'_>) -> BTreeMap<String, String> {
    table.iter().map(|(key, value)| (word(key.get_ref()), written(value.get_ref()))).collect()
}

/// Formats a TOML key.
fn word(key: &str) -> String {
    let bare = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if !key.is_empty() && key.bytes().all(bare) { key.to_owned() } else { quoted(key) }
}

/// Formats a TOML value.
fn written(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => quoted(text),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(truth) => truth.to_string(),
        DeValue::Datetime(time) => time.to_string(),
        DeValue::Array(array) => list(array.iter().map(|value| written(value.get_ref()))),
        DeValue::Table(table) => {
            let pairs = settings(table).into_iter().map(|(key, value)| format!("{key} = {value}"));
            format!("{{ {} }}", pairs.collect::<Vec<_>>().join(", "))
        }
    }
}

/// Formats a TOML list.
pub fn list(values: impl Iterator<Item = String>) -> String {
    format!("[{}]", values.collect::<Vec<_>>().join(", "))
}

/// Formats a text as a TOML basic string.
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            letter if model::is_unprintable(letter) => {
                // Writing to a string cannot fail.
                write!(out, "\\u{:04x}", u32::from(letter)).ok();
            }
            letter => out.push(letter),
        }
    }
    out.push('"');
    out
}

/// The composed text for a node.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Composed {
    pub(super) text: String,
    /// Time until which the text remains valid; after it, the text must be recomposed.
    pub(super) valid_until: Timestamp,
    /// Number of promotions that did not fit.
    pub(super) cut: usize,
    /// Sections that did not fit, with the ID of their change.
    pub(super) left_out: Vec<(i64, Box<str>)>,
    /// Number of flushes that did not fit.
    pub(super) flushes_cut: usize,
}

/// Composes the text for a node. Requests of administrators come before promotions of users, so that no
/// user displaces them.
pub(super) fn compose(base: &AgentFile, of: &NodeEntries<'_>, now: Timestamp) -> Composed {
    let hour = Timestamp(now.0.div_euclid(HOUR) * HOUR);
    let (furthest, mut valid_until) = (hour.plus(REACH_US), hour.plus(HOUR));
    let mut reach = |until: Option<Timestamp>| {
        valid_until = until.map_or(valid_until, |until| valid_until.min(until));
        until.map_or(furthest, |until| until.min(furthest))
    };
    let there = print(&base.top, &base.sections, &base.lists).len();
    let (mut fitting, mut until) = (FittingSections::after(there, &base.sections), base.until);
    for change in &of.changes {
        let ends = reach(Some(change.until));
        if fitting.take(change, ends) {
            until = Some(until.map_or(ends, |until| until.min(ends)));
        }
    }
    let mut top = base.top.clone();
    if let Some(until) = until.filter(|until| Some(*until) != base.until) {
        top.insert("until".to_owned(), quoted(&until.to_string()));
    }
    let mut lists = base.lists.clone();
    let count = |what: &str| base.lists.iter().filter(|(name, _)| name == what).count();
    let (flushes, flushes_cut) = newest(&of.flushes, FLUSHES_MAX.saturating_sub(count("flush")));
    for (source, flush) in flushes {
        reach(Some(flush.made.plus(FLUSH_LISTED_US)));
        let source = ("source".to_owned(), quoted(source));
        let pairs = [source, ("number".to_owned(), flush.number.to_string())];
        lists.push(("flush".to_owned(), pairs.into()));
    }
    let FittingSections { sections, cut: left_out, .. } = fitting;
    let mut text = print(&top, &sections, &lists);
    let mut fitting_promotions = FittingPromotions::after(text.len(), count("promote"));
    fitting_promotions.fill(&of.promotions, &mut reach);
    for (metric, until) in fitting_promotions.listed {
        let (metric, until) = (quoted(metric), quoted(&until.to_string()));
        // Writing to a string cannot fail.
        writeln!(text, "[[promote]]\nmetric = {metric}\nuntil = {until}").ok();
    }
    Composed { text, valid_until, cut: fitting_promotions.cut, left_out, flushes_cut }
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

fn print(
    top: &BTreeMap<String, String>,
    sections: &Sections,
    lists: &[(String, BTreeMap<String, String>)],
) -> String {
    let mut text = String::new();
    let pairs = |text: &mut String, pairs: &BTreeMap<String, String>| {
        for (key, value) in pairs {
            // Writing to a string cannot fail.
            writeln!(text, "{key} = {value}").ok();
        }
    };
    pairs(&mut text, top);
    for (name, section) in sections {
        writeln!(text, "[{name}]").ok();
        pairs(&mut text, section);
    }
    for (name, table) in lists {
        writeln!(text, "[[{name}]]").ok();
        pairs(&mut text, table);
    }
    text
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::demand::{Entry, Origin};
    use model::NodeList;
    use proptest::prelude::*;

    /// 2026-01-06T13:35:00Z.
    const NOW: Timestamp = Timestamp::from_seconds(1_767_706_500);

    fn minutes(n: i64) -> Timestamp {
        NOW.plus(n * 60 * Timestamp::SECOND)
    }

    pub(in crate::settings) fn change(
        number: i64,
        until: Timestamp,
        entries: &[(&str, &str, &str)],
    ) -> Change {
        let entry = |(section, key, value): &(&str, &str, &str)| Entry {
            section: (*section).into(),
            key: (*key).into(),
            value: (*value).into(),
        };
        Change {
            number,
            nodes: NodeList::new("n1").unwrap(),
            until,
            made: NOW,
            by: "root".into(),
            entries: entries.iter().map(entry).collect(),
        }
    }

    fn promotion(metric: &str, until: Option<Timestamp>) -> Promotion {
        Promotion {
            number: 1,
            nodes: NodeList::new("n1").unwrap(),
            metric: metric.into(),
            until,
            made: NOW,
            by: "hand".into(),
            origin: Origin::Hand,
            job: None,
            uid: None,
        }
    }

    #[test]
    fn the_later_change_counts_and_the_first_end_is_shown() {
        let base = "note = \"a \\\"b\\\" é\"\n[sources.load]\nperiod = \"5s\"\nenabled = true\n\
                    [[promote]]\nmetric = \"x\"\n";
        let base = AgentFile::parse(base).unwrap();
        let one = change(1, minutes(10), &[("sources.load", "period", "\"1s\"")]);
        let two = change(
            2,
            minutes(5),
            &[
                ("sources.load", "period", "\"2s\""),
                ("sources.perf", "events", "[\"cache_ll\"]"),
                ("burst.cpu", "keep", "\"60s\""),
            ],
        );
        let promotions = [promotion("perf_.*", None), promotion("perf_.*", Some(minutes(9)))];
        let flush = |number| Flush {
            number,
            nodes: NodeList::new("n1").unwrap(),
            source: "cpu".into(),
            made: minutes(-1),
            by: "root".into(),
        };
        let flushes = [flush(16), flush(17)];
        let of = NodeEntries {
            changes: vec![&one, &two],
            promotions: promotions.iter().collect(),
            flushes: flushes.iter().collect(),
        };
        let Composed { text, valid_until, cut, .. } = compose(&base, &of, NOW);
        assert_eq!(
            text,
            "note = \"a \\\"b\\\" é\"\nuntil = \"2026-01-06T13:40:00+00:00\"\n[burst.cpu]\n\
             keep = \"60s\"\nuntil = \"2026-01-06T13:40:00+00:00\"\n[sources.load]\n\
             enabled = true\nperiod = \"2s\"\n[sources.perf]\nevents = [\"cache_ll\"]\n\
             [[promote]]\nmetric = \"x\"\n[[flush]]\nnumber = 17\nsource = \"cpu\"\n\
             [[promote]]\nmetric = \"perf_.*\"\nuntil = \"2026-01-07T01:00:00+00:00\"\n"
        );
        assert_eq!((valid_until, cut), (minutes(5), 0));
        assert_eq!(compose(&base, &of, minutes(1)).text, text, "the text stays within the hour");
        assert!(DeTable::parse(&text).is_ok());
    }

    #[test]
    fn a_text_has_what_a_node_accepts_however_much_is_requested() {
        let events = format!("[{}]", "\"an_event_with_a_long_name\", ".repeat(400));
        let (mut changes, mut flushes) = (Vec::new(), Vec::new());
        for n in 1..=20 {
            let (source, burst) = (format!("sources.s{n}"), format!("burst.s{n}"));
            let entries = [(&*burst, "keep", "\"1m\""), (&*source, "events", &*events)];
            changes.push(change(n, minutes(10), &entries));
            let source = format!("s{n}").into();
            let nodes = NodeList::new("n1").unwrap();
            flushes.push(Flush { number: n, nodes, source, made: NOW, by: "root".into() });
        }
        let promotions = [promotion("perf_.*", None)];
        let of = NodeEntries {
            changes: changes.iter().collect(),
            promotions: promotions.iter().collect(),
            flushes: flushes.iter().collect(),
        };
        let composed = compose(&AgentFile::default(), &of, NOW);
        assert!(composed.text.len() <= config::TEXT_BYTES_MAX, "{}", composed.text.len());
        let count = |what: &str| composed.text.matches(what).count();
        assert_eq!((count("[burst."), count("[sources."), count("[[flush]]")), (4, 5, 16));
        assert_eq!((composed.left_out.len(), composed.flushes_cut), (16 + 15, 4));
        assert!(composed.text.contains("number = 20\n") && !composed.text.contains("number = 4\n"));
        assert!(count("[[promote]]") + composed.cut == 1 && DeTable::parse(&composed.text).is_ok());
        // The server's agent file takes precedence.
        let base =
            AgentFile::parse("[[flush]]\nsource = \"x\"\nnumber = 1\n[burst.a]\nkeep = \"1m\"\n");
        let composed = compose(&base.unwrap(), &of, NOW);
        assert_eq!(composed.text.matches("[burst.").count(), 4);
        assert_eq!((composed.left_out.len(), composed.flushes_cut), (17 + 15, 5));
    }

    #[test]
    fn a_text_reaches_twelve_hours_and_is_renewed_each_hour() {
        let forever = promotion("x", None);
        let of = NodeEntries { promotions: vec![&forever], ..NodeEntries::default() };
        let Composed { text, valid_until, .. } = compose(&AgentFile::default(), &of, NOW);
        assert_eq!(text, "[[promote]]\nmetric = \"x\"\nuntil = \"2026-01-07T01:00:00+00:00\"\n");
        assert_eq!(valid_until, minutes(25));
        let later = compose(&AgentFile::default(), &of, valid_until).text;
        assert!(later.contains("2026-01-07T02:00:00"), "{later}");
    }

    #[test]
    fn the_end_of_the_file_counts_if_it_is_first() {
        let base =
            AgentFile::parse("until = 2026-01-06T13:36:00Z\n[a]\nb = 1.0\n[a.c]\nd = {e = 1}\n");
        let one = change(1, minutes(10), &[("sources.load", "period", "\"1s\"")]);
        let of = NodeEntries { changes: vec![&one], ..NodeEntries::default() };
        let text = compose(&base.unwrap(), &of, NOW).text;
        let want = "until = 2026-01-06T13:36:00Z\n[a]\nb = 1.0\n[a.c]\nd = { e = 1 }\n\
                    [sources.load]\nperiod = \"1s\"\n";
        assert_eq!(text, want);
        assert!(AgentFile::parse("[[[").is_err());
    }

    proptest! {
        #[test]
        fn every_text_is_quoted_so_that_it_is_read_again(text in "\\PC{0,20}|[\\x00-\\x7f]{0,20}") {
            let line = format!("{} = {}", word(&text), quoted(&text));
            let table = DeTable::parse(&line).unwrap();
            let (key, value) = table.get_ref().iter().next().unwrap();
            prop_assert_eq!((&**key.get_ref(), value.get_ref().as_str()), (&*text, Some(&*text)));
        }
    }
}
