//! Resource usage of one job.

use crate::common::time::SLACK;
use crate::lists::listing::gap;
use crate::lists::to_api::{allocation, share, step};
use crate::reports::coverage::{Read, coverage, set_missed};
use crate::reports::job_end;
use crate::reports::job_gaps::JobEnd;
use crate::reports::last_samples::{self, Ends, LastSamples};
use crate::reports::totals::{ByNode, JobBounds, NodeSum, USAGE_METRICS, is_at_least, totals};
use crate::{QueryContext, QueryEngine, QueryError};
use jobs::{AccessLevel, Filter, JobName, Listed, RunFacts};
use model::{ClusterId, DeviceId, Gap, Job, JobKey, Kind, Point, Timestamp, increases};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use storage::{Chunk, JobSelector, Selector, SeriesInfo};

impl QueryEngine {
    /// Usage of the newest run of a job that is visible to the reader and had started by `by`, for reused job IDs.
    /// It includes all samples attributed to the run from 10 s before its start to 10 s after its end. A counter's
    /// amount is [`model::increases`] over the run; its first reading counts from the counter's start.
    ///
    /// # Errors
    /// The job is unknown or owned by another user; no run had started by then; a block cannot be read; the query was
    /// cancelled.
    pub fn job_report(
        &self,
        name: &JobName,
        by: Option<Timestamp>,
        context: &QueryContext,
    ) -> Result<api::JobReport, QueryError> {
        self.job_report_with(name, by, None, context)
    }

    /// Like [`Self::job_report`], on request with the totals of metrics of the job's devices.
    ///
    /// # Errors
    /// The same.
    pub fn job_report_with(
        &self,
        name: &JobName,
        by: Option<Timestamp>,
        node_metrics: Option<&BTreeSet<Arc<str>>>,
        context: &QueryContext,
    ) -> Result<api::JobReport, QueryError> {
        let key = self.job_seen(name, context)?;
        let whole = self.registry.whole_seen(&key, by, context.reader)?;
        let whole = whole.ok_or(QueryError::UnknownJob(name.to_string()))?;
        let RunFacts { job, allocations, nodes, steps, oom_kills } = whole;
        if let Some(watch) = context.watch.as_ref().filter(|_| by.is_some()) {
            watch.names(&key, job.facts.uid);
        }
        let devices: BTreeSet<DeviceId> =
            allocations.iter().map(|allocation| allocation.device.clone()).collect();
        let stop = job.stop.unwrap_or(context.now);
        // A job that never started used nothing.
        let start = job.start.unwrap_or(stop);
        let reach = RunRange::of(&self.registry.runs(&key)?, start, stop);
        let runs = self.runs_of(&key, context)?;
        let select = Selector {
            devices: Some(devices.clone()),
            job: JobSelector::Is(key),
            ..Selector::default()
        };
        let mut used = UsageSums::new(reach, self.settings.series_max);
        for chunk in
            self.store.snapshot_until(context.cancel.flag()).scan(&select, reach.from, reach.to)
        {
            context.cancel.check()?;
            used.take(&chunk?);
        }
        let (mut by_node, lines, series, read) = used.finish();
        let coverage = coverage(&devices, &read, (start, stop), job.stop.is_some());
        let mut missing = Vec::new();
        for device in &devices {
            missing.extend(self.gaps((start, stop), Some(device), context)?);
        }
        missing.retain(|gap| is_of_job(gap, &job.key));
        let times = ((start, stop), &coverage);
        let last = set_missed(&mut by_node, &read, &missing, times, JobEnd::of(&job));
        let bounds = JobBounds::of(&job, (start, stop.max(last.unwrap_or(stop))), &coverage);
        let (totals, origins) = totals(&by_node, &bounds);
        let node_metrics =
            node_metrics.map(|metrics| self.node_metrics(metrics, &allocations, context));
        Ok(api::JobReport {
            node_metrics: node_metrics.transpose()?.unwrap_or_default(),
            runs,
            gaps: missing.iter().map(gap).collect(),
            end: job_end::how_it_ended(&job, job_end::last_kill(&oom_kills)),
            oom_kills: job_end::oom_kills(oom_kills),
            job: api::Job::new(job, devices),
            allocations: allocations.iter().map(allocation).collect(),
            nodes: nodes.into_iter().map(share).collect(),
            steps: steps.into_iter().map(step).collect(),
            totals,
            origins,
            coverage,
            metrics: lines,
            series,
        })
    }

    /// The jobs of a list. Each job that is entirely visible to the reader has its usage.
    ///
    /// # Errors
    /// The registry fails; a block cannot be read; the query was cancelled.
    pub fn jobs_with_usage(
        &self,
        filter: &Filter,
        context: &QueryContext,
    ) -> Result<Vec<api::Job>, QueryError> {
        let mut jobs = Vec::new();
        let list = self.listed(filter, context)?;
        let times = list
            .iter()
            .filter_map(|listed| Some((listed.job.start?, listed.job.stop.unwrap_or(context.now))));
        let times = times.reduce(|all, one| (all.0.min(one.0), all.1.max(one.1)));
        let gaps = times.map(|(from, to)| self.store.gaps(from, to, None)).unwrap_or_default();
        for listed in list {
            let seen = self.registry.sees_run(context.reader, &listed.job)? == AccessLevel::All;
            let usage = match listed.job.start {
                Some(start) if seen => Some(self.usage(&listed, start, &gaps, context)?),
                _ => None,
            };
            jobs.push(api::Job { usage, ..api::Job::new(listed.job, listed.devices) });
        }
        Ok(jobs)
    }

    /// Usage of a run, from the metrics in [`USAGE_METRICS`] only.
    fn usage(
        &self,
        listed: &Listed,
        start: Timestamp,
        gaps: &[Gap],
        context: &QueryContext,
    ) -> Result<api::Usage, QueryError> {
        let stop = listed.job.stop.unwrap_or(context.now);
        let reach = RunRange::of(&self.registry.runs(&listed.job.key)?, start, stop);
        let select = Selector {
            devices: Some(listed.devices.iter().cloned().collect()),
            metrics: Some(USAGE_METRICS.into_iter().map(Arc::from).collect()),
            job: JobSelector::Is(listed.job.key.clone()),
            labels: Vec::new(),
        };
        let mut used = UsageSums::new(reach, 0);
        for chunk in
            self.store.snapshot_until(context.cancel.flag()).scan(&select, reach.from, reach.to)
        {
            context.cancel.check()?;
            used.take(&chunk?);
        }
        let (mut by_node, .., read) = used.finish();
        let of_job = gaps.iter().filter(|gap| is_of_job(gap, &listed.job.key));
        let of_job: Vec<Gap> =
            of_job.filter(|gap| listed.devices.contains(&gap.device)).cloned().collect();
        let devices = listed.devices.iter().cloned().collect();
        let coverage = coverage(&devices, &read, (start, stop), listed.job.stop.is_some());
        let times = ((start, stop), &coverage);
        let last = set_missed(&mut by_node, &read, &of_job, times, JobEnd::of(&listed.job));
        let last = stop.max(last.unwrap_or(stop));
        let bounds = JobBounds::of(&listed.job, (start, last), &coverage);
        let (totals, origins) = totals(&by_node, &bounds);
        let is_bound =
            |total| origins.iter().any(|origin| origin.total == total && is_at_least(origin));
        Ok(api::Usage {
            cpu_seconds: totals.cpu_seconds,
            memory_peak_bytes: totals.memory_peak_bytes,
            wall_seconds: Some(totals.wall_seconds),
            cpu_at_least: is_bound("cpu_seconds"),
            memory_peak_at_least: is_bound("memory_peak_bytes"),
            wall_at_least: is_bound("wall_seconds"),
        })
    }

    /// The visible runs of a job ID, newest first.
    fn runs_of(&self, key: &JobKey, context: &QueryContext) -> Result<Vec<api::Run>, QueryError> {
        let mut runs = Vec::new();
        for run in self.registry.runs(key)?.into_iter().rev() {
            if runs.len() >= RUNS_MAX {
                break;
            }
            if self.registry.sees_run(context.reader, &run)? == AccessLevel::All {
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

/// Maximum runs listed per job ID.
const RUNS_MAX: usize = 100;

/// The metric that an agent sends at the end of a job that it observed.
const END: &str = "cgroup_unread_seconds";

/// Whether a gap belongs to a job: it is the gap of its node's agent or of its own `jobmeter run`. A poller reads no
/// values of jobs.
fn is_of_job(gap: &Gap, key: &JobKey) -> bool {
    if gap.origin.is_poller_group() {
        return false;
    }
    gap.origin.as_run().is_none_or(|(_, id)| key.cluster == ClusterId::local() && key.id == id)
}

/// Selects the samples of one run of a reused ID: those from 10 s before to 10 s after the run, without those of
/// adjacent runs.
#[derive(Clone, Copy, Debug)]
struct RunRange {
    from: Timestamp,
    to: Timestamp,
    /// Counters that started earlier belong to the previous run.
    first: Timestamp,
    /// Counters that started at this time or later belong to the next run.
    next: Timestamp,
}

impl RunRange {
    fn of(runs: &[Job], start: Timestamp, stop: Timestamp) -> Self {
        let (from, to) = (start.plus(-SLACK), stop.plus(SLACK));
        let near = runs.iter().filter(|run| run.stop.is_none_or(|stop| stop.plus(SLACK) > from));
        let starts = || near.clone().filter_map(|run| run.start);
        // The clocks of the node and of the scheduler may differ by up to 1 s.
        let cut = |earlier: Timestamp, later: Timestamp| {
            later.plus(-(later.since(earlier) / 2).min(Timestamp::SECOND))
        };
        let before = starts().filter(|other| *other < start).max();
        let after = starts().filter(|other| *other > start).min();
        let first = before.map(|before| cut(before, start));
        let next = after.map_or(Timestamp(i64::MAX), |after| cut(start, after));
        Self {
            from: first.map_or(from, |first| first.max(from)),
            to,
            first: first.unwrap_or(Timestamp(i64::MIN)),
            next,
        }
    }

    fn has(&self, point: &Point) -> bool {
        // A gauge has no start, so its sample time counts. A counter may be read once more after the next run
        // has begun.
        (self.first..self.next).contains(&point.start.unwrap_or(point.at))
    }
}

/// Aggregates a job's samples, series by series.
#[derive(Debug)]
struct UsageSums {
    reach: RunRange,
    at_hand: Option<SingleSeries>,
    /// Sums per metric and device.
    metrics: BTreeMap<String, BTreeMap<String, MetricSum>>,
    read: BTreeMap<String, Read>,
    ends: Ends,
    series: Vec<api::SeriesRef>,
    series_max: usize,
}

#[derive(Debug)]
struct SingleSeries {
    info: Arc<SeriesInfo>,
    before: Option<Point>,
    last_samples: Option<LastSamples>,
    first: i64,
    sum: SeriesSum,
}

/// Sums of one series, or of several.
#[derive(Clone, Copy, Debug, Default)]
struct SeriesSum {
    increase: f64,
    /// Whether a growth is known: there was a previous reading, or the counter's start.
    grown: bool,
    /// The integral (value × seconds), by the trapezoidal rule.
    area: f64,
    /// The last value, for a series with one sample.
    last: f64,
    min: Option<f64>,
    max: Option<f64>,
    samples: u64,
}

/// One metric of one device, summed over its labels.
#[derive(Clone, Debug)]
struct MetricSum {
    unit: &'static str,
    kind: Kind,
    sum: SeriesSum,
    /// The last samples of each gauge series; their integrals are not in the sum yet.
    last_samples: Vec<LastSamples>,
    /// The only samples of series of gauges; they are not in the sum yet.
    single_samples: Vec<Point>,
    first: i64,
    last: i64,
}

impl UsageSums {
    fn new(reach: RunRange, series_max: usize) -> Self {
        let (metrics, read, series) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        Self { reach, at_hand: None, metrics, read, ends: Ends::default(), series, series_max }
    }

    fn take(&mut self, chunk: &Chunk) {
        let reach = self.reach;
        let points = || {
            let points = chunk.rows().map(|(at, value, start)| Point { at, value, start });
            points.filter(|point| reach.has(point))
        };
        let Some(first) = points().next() else { return };
        if !self.at_hand.as_ref().is_some_and(|one| Arc::ptr_eq(&one.info, &chunk.series)) {
            self.close();
        }
        let one = self.at_hand.get_or_insert_with(|| SingleSeries {
            info: Arc::clone(&chunk.series),
            before: None,
            last_samples: None,
            first: first.at.0,
            sum: SeriesSum::default(),
        });
        if one.info.kind == Kind::Counter {
            one.sum.increase += increases(one.before, reach.from, points());
        }
        for point in points() {
            let counts = |start: Timestamp| start >= reach.from;
            one.sum.grown |= one.before.is_some() || point.start.is_some_and(counts);
            one.sum.samples += 1;
            if point.value.is_finite() {
                if let Some(before) = one.before.filter(|before| before.value.is_finite()) {
                    let last = one.last_samples.replace(LastSamples::new(before, point));
                    one.sum.area += last.map_or(0.0, |last| last.area());
                }
                one.sum.last = point.value;
                one.sum.min = Some(one.sum.min.map_or(point.value, |min| min.min(point.value)));
                one.sum.max = Some(one.sum.max.map_or(point.value, |max| max.max(point.value)));
            }
            one.before = Some(point);
        }
    }

    /// Adds the current series to its metric.
    fn close(&mut self) {
        let Some(one) = self.at_hand.take() else { return };
        let series = &one.info.series;
        let last = one.before.map_or(one.first, |point| point.at.0);
        let device = series.device.to_string();
        if let Some(last) = one.before {
            self.ends.take(&device, &series.metric, last);
        }
        let others = i64::try_from(one.sum.samples).unwrap_or(i64::MAX).saturating_sub(1);
        let distance = last.saturating_sub(one.first).checked_div(others).unwrap_or(i64::MAX);
        let read =
            self.read.entry(device.clone()).or_insert(Read { last, distance, has_end: false });
        (read.last, read.distance) = (read.last.max(last), read.distance.min(distance));
        read.has_end |= &*series.metric == END;
        let devices = self.metrics.entry(series.metric.to_string()).or_default();
        let metric = devices.entry(device).or_insert(MetricSum {
            unit: one.info.unit.word(),
            kind: one.info.kind,
            sum: SeriesSum::default(),
            last_samples: Vec::new(),
            single_samples: Vec::new(),
            first: one.first,
            last,
        });
        let is_single = one.info.kind != Kind::Counter && one.sum.samples == 1;
        match one.before.filter(|_| is_single) {
            Some(point) => {
                let sum = SeriesSum { samples: 1, ..SeriesSum::default() };
                metric.take(&sum, one.first, last);
                metric.single_samples.push(point);
            }
            None => metric.take(&one.sum, one.first, last),
        }
        metric.last_samples.extend(one.last_samples.filter(|_| one.info.kind != Kind::Counter));
        if self.series.len() < self.series_max {
            self.series.push(api::SeriesRef {
                device: series.device.to_string(),
                metric: series.metric.to_string(),
                labels: series.labels.pairs().into_iter().collect(),
            });
        }
    }

    fn finish(mut self) -> Finished {
        self.close();
        for (device, read) in &mut self.read {
            read.has_end |= self.ends.of(device).is_some();
        }
        let mut by_node = ByNode::default();
        let mut lines = Vec::new();
        for (name, devices) in self.metrics {
            let count = u32::try_from(devices.len()).unwrap_or(u32::MAX);
            let mut whole: Option<MetricSum> = None;
            for (device, mut metric) in devices {
                metric.hold_until(&name, self.ends.of(&device));
                by_node.insert(&device, &name, metric.of_node());
                match &mut whole {
                    Some(whole) => whole.take(&metric.sum, metric.first, metric.last),
                    none => *none = Some(metric),
                }
            }
            lines.extend(whole.map(|metric| metric.line(name, count)));
        }
        (by_node, lines, self.series, self.read)
    }
}

type Finished = (ByNode, Vec<api::MetricTotal>, Vec<api::SeriesRef>, BTreeMap<String, Read>);

impl MetricSum {
    fn take(&mut self, sum: &SeriesSum, first: i64, last: i64) {
        self.first = self.first.min(first);
        self.last = self.last.max(last);
        self.sum.increase += sum.increase;
        self.sum.grown |= sum.grown;
        self.sum.area += sum.area;
        self.sum.last += sum.last;
        self.sum.samples += sum.samples;
        self.sum.min = [self.sum.min, sum.min].into_iter().flatten().reduce(f64::min);
        self.sum.max = [self.sum.max, sum.max].into_iter().flatten().reduce(f64::max);
    }

    /// Adds the integrals up to the last samples, with the value held after the end of the job's last process,
    /// if known; and single samples before that end.
    fn hold_until(&mut self, metric: &str, end: Option<Timestamp>) {
        let areas = self.last_samples.drain(..).map(|last| last.area_until(end));
        self.sum.area += areas.sum::<f64>();
        for point in self.single_samples.drain(..) {
            if point.value.is_finite() && last_samples::is_of_job(metric, point.at, end) {
                self.sum.last += point.value;
                let max = self.sum.max.map_or(point.value, |max| max.max(point.value));
                self.sum.max = Some(max);
                let min = self.sum.min.map_or(point.value, |min| min.min(point.value));
                self.sum.min = Some(min);
            }
        }
    }

    fn of_node(&self) -> NodeSum {
        let increase = Some(self.sum.increase).filter(|_| self.sum.grown);
        NodeSum { kind: self.kind, increase, max: self.sum.max }
    }

    fn line(self, metric: String, devices: u32) -> api::MetricTotal {
        let (counter, sum) = (self.kind == Kind::Counter, self.sum);
        let seconds = self.last.saturating_sub(self.first) as f64 / 1e6;
        let average = if seconds > 0.0 { sum.area / seconds } else { sum.last };
        api::MetricTotal {
            metric,
            unit: self.unit.to_owned(),
            kind: self.kind.word().to_owned(),
            increase: Some(sum.increase).filter(|_| counter && sum.grown),
            average: Some(average).filter(|_| !counter && sum.max.is_some()),
            integral: Some(sum.area).filter(|_| !counter && seconds > 0.0),
            min: sum.min.filter(|_| !counter),
            max: sum.max.filter(|_| !counter),
            seconds,
            samples: sum.samples,
            devices,
        }
    }
}
