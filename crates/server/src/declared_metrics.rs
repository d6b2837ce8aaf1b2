//! The metrics that this version's sources declare, with their meaning; and those of them that users may send.
//!
//! The server may not use the crate `sources`, which runs on nodes. So a test of the command writes the table
//! beside this file from the sources, and fails where the two differ.

use model::{Kind, Metric, SeriesEntry, Unit};
use std::collections::HashSet;
use std::sync::OnceLock;
use store::DeclaredMetrics;

const TABLE: &str = include_str!("declared_metrics.tsv");
/// The sources that `jobmeter run` reads.
const RUN_SOURCES: [&str; 4] = ["cgroup", "taskstats", "process", "run"];
/// The labels that these give their series.
const RUN_LABELS: [&str; 6] = ["disk", "pid", "comm", "command", "node", "numa_node"];

/// All declared metrics.
pub(crate) fn declared() -> DeclaredMetrics {
    DeclaredMetrics::new(lines().map(|(metric, _)| metric))
}

fn lines() -> impl Iterator<Item = (Metric, &'static str)> {
    TABLE.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let mut cells = line.splitn(5, '\t');
        let (name, kind) = (cells.next()?, cells.next()?);
        let kind = [Kind::Gauge, Kind::Counter].into_iter().find(|one| one.word() == kind)?;
        let (unit, source) = (Unit::from_word(cells.next()?)?, cells.next()?);
        let help = cells.next().unwrap_or_default();
        let (name, help) = (name.into(), help.into());
        Some((Metric { name, unit, kind, help, divisor: 1 }, source))
    })
}

/// Checks that a series is one that `jobmeter run` measures.
///
/// # Errors
/// It is another; the text says in what.
pub(crate) fn check_of_run(entry: &SeriesEntry) -> Result<(), String> {
    static METRICS: OnceLock<HashSet<(String, Unit, Kind)>> = OnceLock::new();
    let of_run = METRICS.get_or_init(|| {
        let lines = lines().filter(|(_, source)| RUN_SOURCES.contains(source));
        lines.map(|(metric, _)| (metric.name.into_owned(), metric.unit, metric.kind)).collect()
    });
    let Metric { name, unit, kind, .. } = &*entry.metric;
    if !of_run.contains(&(name.to_string(), *unit, *kind)) {
        let (kind, unit) = (kind.word(), unit.word());
        return Err(format!(
            "`jobmeter run` of this version measures no {kind} {name} in `{unit}`"
        ));
    }
    let labels = entry.labels.pairs();
    match labels.iter().find(|(key, _)| !RUN_LABELS.contains(&key.as_str())) {
        Some((key, _)) => Err(format!("`jobmeter run` gives {name} no label `{key}`")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_a_metric() {
        let count = TABLE.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(lines().count(), count);
        assert!(count > 500);
        for (metric, _) in lines() {
            metric.check().unwrap();
            assert!(!metric.help.is_empty(), "{metric:?}");
        }
        for source in RUN_SOURCES {
            assert!(lines().any(|(_, of)| of == source), "{source}");
        }
    }
}
