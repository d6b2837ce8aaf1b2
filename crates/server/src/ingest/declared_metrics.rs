//! The metrics that the sources of this version declare, with their descriptions, and those that users may
//! send.
//!
//! The server must not depend on the crate `sources`, which runs on nodes. A test of the command therefore
//! generates the table beside this file from the sources, and fails if the two differ.

use model::{Kind, Metric, Unit};
use storage::{DeclaredMetrics, RunMetrics};

const TABLE: &str = include_str!("declared_metrics.tsv");
/// Labels of the series that `jobmeter run` measures.
const RUN_LABELS: [&str; 6] = ["disk", "pid", "comm", "command", "node", "numa_node"];

/// Returns all declared metrics, and marks those that `jobmeter run` measures.
pub(crate) fn declared() -> DeclaredMetrics {
    let of_run = lines().filter(|(_, of_run)| *of_run);
    let names = of_run.map(|(metric, _)| Box::from(&*metric.name)).collect();
    let run = RunMetrics { names, labels: RUN_LABELS.into_iter().map(Box::from).collect() };
    DeclaredMetrics::new(lines().map(|(metric, _)| metric)).with_run(run)
}

/// Returns each metric of the table, and whether `jobmeter run` measures it.
fn lines() -> impl Iterator<Item = (Metric, bool)> {
    TABLE.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let mut cells = line.splitn(5, '\t');
        let (name, kind) = (cells.next()?, cells.next()?);
        let kind = [Kind::Gauge, Kind::Counter].into_iter().find(|one| one.word() == kind)?;
        let (unit, of_run) = (Unit::from_word(cells.next()?)?, cells.next()? == "run");
        let help = cells.next().unwrap_or_default();
        let (name, help) = (name.into(), help.into());
        Some((Metric { name, unit, kind, help, divisor: 1, assumed: false }, of_run))
    })
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
        for name in
            ["cgroup_tasks", "taskstats_tasks", "process_rss_bytes", "run_processes", "load_1m"]
        {
            let of_run = lines().find(|(metric, _)| &*metric.name == name).unwrap().1;
            assert_eq!(of_run, name != "load_1m", "{name}");
        }
    }
}
