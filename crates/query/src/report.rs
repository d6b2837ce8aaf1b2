//! What one job used.

use crate::by_job::SLACK;
use crate::lists::gap;
use crate::shown::{allocation, share, shown, step};
use crate::{Asker, QueryError, Questions};
use jobs::{JobName, Listed, Sees, Whole};
use model::{DeviceId, JobKey, Kind, Point, Timestamp, increases};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use store::{Chunk, JobSelector, Selector, SeriesInfo};

impl Questions {
    /// What the newest run of a job used, of those that the asker sees: everything that was counted for it,
    /// read within ten seconds of its stay. A counter's amount is [`model::increases`] over the run, its first
    /// reading counting from its start.
    ///
    /// # Errors
    /// The job is not known or somebody else's; a block cannot be read; it was cancelled.
    pub fn job_report(&self, name: &JobName, asker: &Asker) -> Result<api::JobReport, QueryError> {
        self.run_report(name, None, asker)
    }

    /// The same of the newest run of those that had started by then: of a number that was given again.
    ///
    /// # Errors
    /// As [`Questions::job_report`]; none had started by then.
    pub fn run_report(
        &self,
        name: &JobName,
        by: Option<Timestamp>,
        asker: &Asker,
    ) -> Result<api::JobReport, QueryError> {
        let key = self.job_seen(name, asker)?;
        let whole = self.registry.whole_seen(&key, by, asker.reader)?;
        let whole = whole.ok_or(QueryError::UnknownJob(name.to_string()))?;
        let Whole { job, allocations, nodes, steps } = whole;
        if let Some(watch) = asker.watch.as_ref().filter(|_| by.is_some()) {
            watch.names(&key, job.uid);
        }
        let devices: BTreeSet<DeviceId> =
            allocations.iter().map(|allocation| allocation.device.clone()).collect();
        let stop = job.stop.unwrap_or(asker.now);
        // What never started used nothing.
        let start = job.start.unwrap_or(stop);
        let (from, to) = (start.plus(-SLACK), stop.plus(SLACK));
        let runs = self.runs_of(&key, asker)?;
        let select = Selector {
            devices: Some(devices.clone()),
            job: JobSelector::Is(key),
            ..Selector::default()
        };
        let mut used = Used::new(from, self.settings.series_max);
        for chunk in self.store.snapshot().scan(&select, from, to) {
            asker.cancel.check()?;
            used.take(&chunk?);
        }
        let (lines, series) = used.finish();
        let wall_seconds = stop.since(start).max(0) as f64 / 1e6;
        let totals = totals(&lines, wall_seconds);
        let mut missing = Vec::new();
        for device in &devices {
            missing.extend(self.gaps((start, stop), Some(device), asker)?);
        }
        Ok(api::JobReport {
            runs,
            gaps: missing.iter().map(gap).collect(),
            job: shown(Listed { job, devices: devices.into_iter().collect() }),
            allocations: allocations.iter().map(allocation).collect(),
            nodes: nodes.into_iter().map(share).collect(),
            steps: steps.into_iter().map(step).collect(),
            totals,
            lines: lines.into_values().collect(),
            series,
        })
    }

    /// The runs of a number that the asker sees, the newest first.
    fn runs_of(&self, key: &JobKey, asker: &Asker) -> Result<Vec<api::Run>, QueryError> {
        let mut runs = Vec::new();
        for run in self.registry.runs(key)?.into_iter().rev() {
            if runs.len() >= RUNS_MAX {
                break;
            }
            if self.registry.sees_run(asker.reader, &run)? == Sees::All {
                runs.push(api::Run {
                    start: run.start.map(Timestamp::seconds),
                    submit: run.submit.map(Timestamp::seconds),
                    stop: run.stop.map(Timestamp::seconds),
                    state: run.state.word().to_owned(),
                });
            }
        }
        Ok(runs)
    }
}

/// Most runs of a number that are told.
const RUNS_MAX: usize = 100;

/// A job's samples being summed up, series by series.
#[derive(Debug)]
struct Used {
    from: Timestamp,
    at_hand: Option<OneSeries>,
    metrics: BTreeMap<String, MetricSum>,
    series: Vec<api::SeriesRef>,
    series_max: usize,
}

#[derive(Debug)]
struct OneSeries {
    info: Arc<SeriesInfo>,
    before: Option<Point>,
    first: i64,
    sum: SeriesSum,
}

/// What is known of one series, or of several together.
#[derive(Clone, Copy, Debug, Default)]
struct SeriesSum {
    increase: f64,
    /// Value times seconds, by trapezoids.
    area: f64,
    /// The last value, for a series of one sample.
    last: f64,
    max: Option<f64>,
    samples: u64,
}

/// One metric, over devices and labels.
#[derive(Debug)]
struct MetricSum {
    unit: &'static str,
    kind: Kind,
    sum: SeriesSum,
    first: i64,
    last: i64,
}

impl Used {
    fn new(from: Timestamp, series_max: usize) -> Self {
        let (metrics, series) = (BTreeMap::new(), Vec::new());
        Self { from, at_hand: None, metrics, series, series_max }
    }

    fn take(&mut self, chunk: &Chunk) {
        let Some(first) = chunk.times.first() else { return };
        if !self.at_hand.as_ref().is_some_and(|one| Arc::ptr_eq(&one.info, &chunk.series)) {
            self.close();
        }
        let one = self.at_hand.get_or_insert_with(|| OneSeries {
            info: Arc::clone(&chunk.series),
            before: None,
            first: *first,
            sum: SeriesSum::default(),
        });
        let points = || chunk.rows().map(|(at, value, start)| Point { at, value, start });
        if one.info.kind == Kind::Counter {
            one.sum.increase += increases(one.before, self.from, points());
        }
        for point in points() {
            one.sum.samples += 1;
            if point.value.is_finite() {
                if let Some(before) = one.before.filter(|before| before.value.is_finite()) {
                    let seconds = point.at.since(before.at) as f64 / 1e6;
                    one.sum.area += (before.value + point.value) / 2.0 * seconds;
                }
                one.sum.last = point.value;
                one.sum.max = Some(one.sum.max.map_or(point.value, |max| max.max(point.value)));
            }
            one.before = Some(point);
        }
    }

    /// Adds the series at hand to its metric.
    fn close(&mut self) {
        let Some(one) = self.at_hand.take() else { return };
        let series = &one.info.series;
        let last = one.before.map_or(one.first, |point| point.at.0);
        let metric = self.metrics.entry(series.metric.to_string()).or_insert(MetricSum {
            unit: one.info.unit.word(),
            kind: one.info.kind,
            sum: SeriesSum::default(),
            first: one.first,
            last,
        });
        metric.first = metric.first.min(one.first);
        metric.last = metric.last.max(last);
        metric.sum.increase += one.sum.increase;
        metric.sum.area += one.sum.area;
        metric.sum.last += one.sum.last;
        metric.sum.samples += one.sum.samples;
        metric.sum.max = [metric.sum.max, one.sum.max].into_iter().flatten().reduce(f64::max);
        if self.series.len() < self.series_max {
            self.series.push(api::SeriesRef {
                device: series.device.to_string(),
                metric: series.metric.to_string(),
                labels: series.labels.pairs().into_iter().collect(),
            });
        }
    }

    fn finish(mut self) -> (BTreeMap<String, api::ReportLine>, Vec<api::SeriesRef>) {
        self.close();
        let line = |(name, metric): (String, MetricSum)| {
            let (counter, sum) = (metric.kind == Kind::Counter, metric.sum);
            let seconds = metric.last.saturating_sub(metric.first) as f64 / 1e6;
            let average = if seconds > 0.0 { sum.area / seconds } else { sum.last };
            let line = api::ReportLine {
                metric: name.clone(),
                unit: metric.unit.to_owned(),
                kind: metric.kind.word().to_owned(),
                increase: counter.then_some(sum.increase),
                average: Some(average).filter(|_| !counter && sum.max.is_some()),
                max: sum.max.filter(|_| !counter),
                samples: sum.samples,
            };
            (name, line)
        };
        (self.metrics.into_iter().map(line).collect(), self.series)
    }
}

/// What a job used, from the metrics that tell it best: those of its cgroup, else of its tasks, else what
/// `jobmeter run` saw of a command without a cgroup. `None` where none does.
fn totals(lines: &BTreeMap<String, api::ReportLine>, wall_seconds: f64) -> api::Totals {
    let grew = |name: &str| lines.get(name).and_then(|line| line.increase);
    let first = |names: &[&str]| names.iter().find_map(|name| grew(name));
    let most = |name: &str| lines.get(name).and_then(|line| line.max);
    let cpu_user = first(&[
        "cgroup_cpu_user_seconds_total",
        "taskstats_cpu_user_seconds_total",
        "run_cpu_user_seconds_total",
    ]);
    let cpu_system = first(&[
        "cgroup_cpu_system_seconds_total",
        "taskstats_cpu_system_seconds_total",
        "run_cpu_system_seconds_total",
    ]);
    let cpu = grew("cgroup_cpu_seconds_total")
        .or_else(|| cpu_user.zip(cpu_system).map(|(user, system)| user + system));
    let major = grew("cgroup_page_faults_major_total");
    // The kernel's count of faults holds the major ones.
    let minor = grew("cgroup_page_faults_total").zip(major).map(|(all, major)| all - major);
    api::Totals {
        wall_seconds,
        cpu_seconds: cpu,
        cpu_user_seconds: cpu_user,
        cpu_system_seconds: cpu_system,
        cores_used: cpu.filter(|_| wall_seconds > 0.0).map(|cpu| cpu / wall_seconds),
        memory_peak_bytes: most("cgroup_memory_peak_bytes")
            .or(most("cgroup_memory_bytes"))
            .or(most("run_memory_resident_bytes")),
        io_read_bytes: first(&[
            "cgroup_io_read_bytes_total",
            "taskstats_read_bytes_total",
            "run_io_read_bytes_total",
        ]),
        io_write_bytes: first(&[
            "cgroup_io_write_bytes_total",
            "taskstats_write_bytes_total",
            "run_io_write_bytes_total",
        ]),
        minor_faults: minor.or(grew("taskstats_minor_faults_total")),
        major_faults: major.or(grew("taskstats_major_faults_total")),
        voluntary_switches: grew("taskstats_voluntary_switches_total"),
        involuntary_switches: grew("taskstats_involuntary_switches_total"),
        throttled_seconds: grew("cgroup_cpu_throttled_seconds_total"),
        pressure_cpu_seconds: grew("cgroup_pressure_cpu_some_seconds_total"),
        pressure_memory_seconds: grew("cgroup_pressure_memory_some_seconds_total"),
        pressure_io_seconds: grew("cgroup_pressure_io_some_seconds_total"),
        unread_seconds: most("cgroup_unread_seconds"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_last_reading_that_was_missed_is_in_the_totals() {
        let line = |max| api::ReportLine {
            metric: "cgroup_unread_seconds".to_owned(),
            unit: "seconds".to_owned(),
            kind: "gauge".to_owned(),
            increase: None,
            average: Some(max),
            max: Some(max),
            samples: 1,
        };
        let lines = |lines: Vec<api::ReportLine>| {
            lines.into_iter().map(|line| (line.metric.clone(), line)).collect()
        };
        assert_eq!(totals(&lines(vec![line(0.75)]), 2.0).unread_seconds, Some(0.75));
        assert_eq!(totals(&lines(Vec::new()), 2.0).unread_seconds, None, "it was read");
    }
}
