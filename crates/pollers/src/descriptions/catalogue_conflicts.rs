//! Entries that contradict a metric of the agents' sources: its unit and kind are those of the program.

use super::description::Description;
use super::directory::{EntryNames, Finding, Severity};
use model::{Metric, Unit};
use std::collections::HashMap;
use std::sync::Arc;

/// Warnings of entries that declare another kind or unit than a source of the agents.
pub fn catalogue_conflicts(all: &[Description]) -> Vec<Finding> {
    let metrics = sources::SOURCES.iter().flat_map(|spec| spec.metrics.iter().copied());
    let known: HashMap<&str, &Metric> = metrics.map(|metric| (&*metric.name, metric)).collect();
    let conflict = |one: &Description| {
        let metric = *known.get(&*one.name)?;
        let meaning = one.meaning().filter(|meaning| meaning.is_declared)?;
        ((meaning.kind, meaning.unit) != (metric.kind, metric.unit)).then(|| Finding {
            file: Arc::clone(&one.file),
            line: one.line,
            severity: Severity::Warning,
            names: EntryNames::default(),
            what: format!(
                "the server rejects the samples of this entry: {} has another kind or unit by jobmeter's own sources: it \
                 is a {}, {}",
                metric.name,
                metric.kind.word(),
                unit(metric.unit)
            ),
        })
    };
    all.iter().filter_map(conflict).collect()
}

fn unit(unit: Unit) -> String {
    match unit {
        Unit::Count => "a plain count".to_owned(),
        other => format!("in {}", other.word()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptions::entries_of;

    #[test]
    fn entries_that_contradict_a_source_are_warnings() {
        let entry =
            |more: &str| format!("- {{name: load_1m, device_id: d, url: 'http://d/#a'{more}}}\n");
        let text = ["", ", unit: watts", ", kind: gauge", ", kind: counter"].map(entry).concat();
        let found = catalogue_conflicts(&entries_of(&text));
        let lines: Vec<usize> = found.iter().map(|one| one.line).collect();
        assert_eq!(lines, [2, 4]);
        let text = found[0].to_string();
        assert!(text.ends_with("load_1m has another kind or unit by jobmeter's own sources: it is a gauge, a plain count"), "{text}");
    }
}
