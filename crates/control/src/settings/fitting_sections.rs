//! Selects the sections of changes that fit into a node's text. A node rejects a text with too many bursts
//! or bytes as a whole. Changes already in effect come before later ones. The rest is cut, section by
//! section: a source's section fits completely or not at all.

use super::text::{Sections, quoted};
use crate::demand::{Change, Entry};
use config::{BURSTS_MAX, FLUSHES_MAX, TEXT_BYTES_MAX};
use model::Timestamp;
use std::collections::BTreeMap;

/// Bytes of a flush: its keys, a number, and a source name of 64 bytes.
const FLUSH_BYTES: usize = 128;
/// Bytes of the `until` line.
const UNTIL_BYTES: usize = 48;
/// Name prefix of burst sections.
const BURST: &str = "burst.";

/// The sections of a node's text that fit so far.
#[derive(Debug)]
pub(super) struct FittingSections {
    pub(super) sections: Sections,
    /// Sections that did not fit, with the ID of their change.
    pub(super) cut: Vec<(i64, Box<str>)>,
    bytes: usize,
}

impl FittingSections {
    /// Reserves the bytes of the existing text with these sections, and of flushes.
    pub(super) fn after(bytes: usize, sections: &Sections) -> Self {
        let reserved = FLUSHES_MAX * FLUSH_BYTES + UNTIL_BYTES;
        let bytes = TEXT_BYTES_MAX.saturating_sub(reserved).saturating_sub(bytes);
        Self { sections: sections.clone(), cut: Vec::new(), bytes }
    }

    /// Adds a change that ends at `ends`. Returns whether a section other than a burst fit; bursts have an
    /// `until` of their own.
    pub(super) fn take(&mut self, change: &Change, ends: Timestamp) -> bool {
        let mut has_flushes = false;
        for entries in change.entries.chunk_by(|one, other| one.section == other.section) {
            let Some(Entry { section, .. }) = entries.first() else { continue };
            let is_burst = section.starts_with(BURST);
            let until = is_burst.then(|| ("until".to_owned(), quoted(&ends.to_string())));
            let lines = entries.iter().map(|one| (one.key.to_string(), one.value.to_string()));
            let fits = self.fit(section, lines.chain(until).collect());
            if !fits {
                self.cut.push((change.number, section.clone()));
            }
            has_flushes |= fits && !is_burst;
        }
        has_flushes
    }

    /// Adds lines to a section if all of them fit.
    fn fit(&mut self, name: &str, lines: BTreeMap<String, String>) -> bool {
        let section = self.sections.get(name);
        let bursts = self.sections.keys().filter(|name| name.starts_with(BURST)).count();
        if section.is_none() && name.starts_with(BURST) && bursts >= BURSTS_MAX {
            return false;
        }
        let bytes = |key: &str, value: &str| key.len() + " = \n".len() + value.len();
        let there = |key: &String| section.and_then(|section| section.get(key));
        let header = if section.is_none() { name.len() + "[]\n".len() } else { 0 };
        let more: usize = lines.iter().map(|(key, value)| bytes(key, value)).sum();
        let less: usize =
            lines.keys().filter_map(|key| there(key).map(|value| bytes(key, value))).sum();
        let Some(left) = (self.bytes + less).checked_sub(header + more) else { return false };
        self.bytes = left;
        self.sections.entry(name.to_owned()).or_default().extend(lines);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::text;

    const ENDS: Timestamp = Timestamp::from_seconds(1_767_706_500);

    fn change(number: i64, entries: &[(&str, &str, &str)]) -> Change {
        text::tests::change(number, ENDS, entries)
    }

    #[test]
    fn bursts_that_hold_stand_before_later_ones() {
        let base = [("burst.load".to_owned(), BTreeMap::new())].into();
        let mut fitting = FittingSections::after(0, &base);
        let keep = |section| (section, "keep", "\"1m\"");
        let three = change(1, &[keep("burst.cpu"), keep("burst.disk"), keep("burst.memory")]);
        assert!(!fitting.take(&three, ENDS), "a burst has an end of its own");
        let more =
            change(2, &[keep("burst.numa"), ("burst.cpu", "keep", "\"2m\""), keep("sources.x")]);
        assert!(fitting.take(&more, ENDS));
        assert_eq!(fitting.cut, [(2, "burst.numa".into())]);
        let cpu = &fitting.sections["burst.cpu"];
        assert_eq!((&*cpu["keep"], fitting.sections.len()), ("\"2m\"", 5));
        assert_eq!(cpu["until"], quoted(&ENDS.to_string()));
    }

    #[test]
    fn a_source_is_sent_completely_or_not_at_all() {
        let reserved = FLUSHES_MAX * FLUSH_BYTES + UNTIL_BYTES;
        let mut fitting = FittingSections::after(TEXT_BYTES_MAX - reserved - 35, &Sections::new());
        let long = "x".repeat(30);
        let none = change(1, &[("sources.perf", "events", &long), ("sources.perf", "period", "1")]);
        assert!(!fitting.take(&none, ENDS) && fitting.sections.is_empty());
        let short = change(2, &[("sources.perf", "events", "1234567890")]);
        assert!(fitting.take(&short, ENDS));
        // This replaces an existing value.
        let other = change(3, &[("sources.perf", "events", "12345678901")]);
        assert!(!fitting.take(&other, ENDS));
        let less = change(4, &[("sources.perf", "events", "1")]);
        assert!(fitting.take(&less, ENDS) && fitting.take(&short, ENDS));
        let cut: Vec<i64> = fitting.cut.iter().map(|one| one.0).collect();
        assert_eq!(cut, [1, 3]);
    }
}
