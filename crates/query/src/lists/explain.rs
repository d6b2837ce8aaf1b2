//! Explains a series: its agent and source, the distance of its samples, its gaps and errors.

use crate::engine::access_filter::{AccessFilter, ListedAs, Visibility};
use crate::lists::gap_samples::GapSamples;
use crate::lists::listing::{described, gap};
use crate::lists::nodes::usual_distance;
use crate::{QueryContext, QueryEngine, QueryError};
use jobs::Window;
use model::{Cause, ClusterId, DeviceId, Gap, JobKey, Point, Series, Timestamp, increase};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use storage::{Chunk, JobSelector, Selector, SeriesInfo};

/// Maximum series in one explanation.
const SERIES_MAX: usize = 100;
/// Maximum gaps listed per series, the newest ones.
const GAPS_MAX: usize = 20;
/// Number of the latest instants that determine the distance of samples: ten distances.
const LATEST: usize = 11;
/// Metric that counts failed readings, with one series per source of a node.
const ERRORS: &str = "agent_source_errors_total";
const SOURCE: &str = "source";

/// The visible samples of a series in the interval.
#[derive(Default)]
struct VisibleSamples {
    samples: u64,
    /// The latest instants, ascending.
    times: Vec<i64>,
    value: f64,
    start: Option<Timestamp>,
    /// Gaps of all that a poller reads of the device by one protocol.
    of_protocols: Vec<Gap>,
    /// Those of them in which the series has samples: another target returns it.
    other_targets: Vec<Gap>,
    /// The samples around each gap of the device, by its first and last instant.
    around: BTreeMap<(i64, i64), GapSamples>,
}

/// Number of failed readings in the interval, per device and source.
type Failures = BTreeMap<DeviceId, BTreeMap<Arc<str>, f64>>;

/// The explained interval.
struct Interval {
    from: Timestamp,
    to: Timestamp,
    failures: Failures,
    /// Polls of the devices.
    polls: Vec<api::Device>,
}

impl QueryEngine {
    /// Explains the selected series that have samples in the interval (bounds included); of more than 100, the
    /// first ones. The explanation uses only data visible to the reader. `last_error` is `None`, because the
    /// store does not have the agents' error texts.
    ///
    /// # Errors
    /// A block cannot be read; the registry fails; the query was cancelled.
    pub fn explain(
        &self,
        select: &Selector,
        (from, to): (Timestamp, Timestamp),
        context: &QueryContext,
    ) -> Result<Vec<api::Explanation>, QueryError> {
        // The senders are the current ones.
        let until = to.max(context.now);
        let access = AccessFilter::new(self, context, (from, until), select.devices.as_ref());
        let snapshot =
            access.limit(&self.store.snapshot_until(context.cancel.flag()), ListedAs::Device);
        let mut series: BTreeMap<_, (Arc<SeriesInfo>, VisibleSamples)> = BTreeMap::new();
        for chunk in snapshot.scan(select, from, to) {
            context.cancel.check()?;
            let chunk = chunk?;
            let of = &chunk.series.series;
            let seen = access.of(&of.device, of.job.as_ref())?;
            if !chunk.times.iter().any(|at| seen.at(*at)) {
                continue;
            }
            let key = of.clone();
            // Chunks of one series are contiguous.
            if series.len() >= SERIES_MAX && !series.contains_key(&key) {
                break;
            }
            let info = Arc::clone(&chunk.series);
            let (_, visible) = series.entry(key).or_insert_with(|| {
                (info, VisibleSamples::beside(self.store.gaps(from, to, Some(&of.device))))
            });
            visible.take(&chunk, &seen);
        }
        let devices: BTreeSet<DeviceId> =
            series.keys().map(|series| series.device.clone()).collect();
        let polls = self.polled(devices.clone(), context)?;
        let failures = self.failures(devices, (from, to), context, &access)?;
        let interval = Interval { from, to, failures, polls };
        let help: BTreeMap<Arc<str>, Box<str>> = self
            .store
            .catalogue()
            .into_iter()
            .map(|it| (it.name.clone().into(), it.help.clone().into()))
            .collect();
        let explained = series.into_values().map(|(info, visible)| {
            let help = help.get(&info.series.metric).map_or("", |help| help);
            self.explained(&info, &visible, &interval, help, context, &access)
        });
        explained.collect()
    }

    fn explained(
        &self,
        info: &SeriesInfo,
        visible: &VisibleSamples,
        interval: &Interval,
        help: &str,
        context: &QueryContext,
        access: &AccessFilter,
    ) -> Result<api::Explanation, QueryError> {
        let device = &info.series.device;
        let metric = &*info.series.metric;
        let source = source_of(metric, interval.failures.get(device));
        let reporter = reporter_of(metric);
        let is_own = |poll: &&api::Device| poll.device == device.as_str();
        let polls = interval.polls.iter().filter(is_own).cloned();
        let is_of_agent = source.is_some() || reporter.is_some();
        let missing = self.gaps_during(&info.series, interval, context)?;
        // A gap of a `jobmeter run` explains only the series of its own job.
        let local = |id| Some(JobKey { cluster: ClusterId::local(), id });
        let of_it = missing.iter().filter(|gap| {
            gap.origin.as_run().is_none_or(|(_, id)| info.series.job == local(id))
                && (gap.source.is_empty()
                    || source.as_ref().is_none_or(|(name, _)| *gap.source == **name))
                && (!gap.origin.is_poller_group()
                    || !self.store.declares(metric)
                        && concerns(gap, metric)
                        && !visible.is_of_other_target(gap))
                && visible.misses(gap)
        });
        let of_it: Vec<api::Gap> = of_it.map(gap).collect();
        let newest = of_it.len().saturating_sub(GAPS_MAX);
        Ok(api::Explanation {
            series: described(info),
            help: help.to_owned(),
            source: source
                .as_ref()
                .map(|(name, _)| name.to_string())
                .or_else(|| reporter.map(str::to_owned)),
            source_errors: source.map(|(_, errors)| errors),
            last_error: None,
            senders: self.senders(device, context, access)?,
            polls: if is_of_agent { Vec::new() } else { polls.collect() },
            period_seconds: usual_distance(&visible.times),
            samples: visible.samples,
            time: visible.times.last().map(|at| Timestamp(*at).seconds()),
            value: Some(visible.value).filter(|value| value.is_finite()),
            counter_start: visible.start.map(Timestamp::seconds),
            gaps_count: u64::try_from(of_it.len()).unwrap_or(u64::MAX),
            gaps: of_it.into_iter().skip(newest).collect(),
        })
    }

    /// The gaps of a series' device in the interval. Of a series of a job: those during the job's runs there.
    fn gaps_during(
        &self,
        series: &Series,
        interval: &Interval,
        context: &QueryContext,
    ) -> Result<Vec<Gap>, QueryError> {
        let (from, to) = (interval.from, interval.to);
        let mut gaps = self.gaps((from, to), Some(&series.device), context)?;
        if series.job.is_some() && !gaps.is_empty() {
            let (job, device) = (series.job.clone(), Some(series.device.clone()));
            let window =
                Window { job, device, from: Some(from), to: Some(to), ..Window::default() };
            let runs = self.allocations(&window, context)?;
            gaps.retain(|gap| {
                let is_during = |run: &jobs::Interval| {
                    gap.to >= run.start && run.stop.is_none_or(|stop| gap.from <= stop)
                };
                // Without a known run, any gap may explain the series.
                runs.is_empty() || runs.iter().any(is_during)
            });
        }
        Ok(gaps)
    }

    /// The senders for a device. The reader must now be permitted to see the node, or the job of a `jobmeter
    /// run`. A user who inserts rows may do so for a job that others do not see, so only that user and readers of every
    /// job see this sender.
    fn senders(
        &self,
        device: &DeviceId,
        context: &QueryContext,
        access: &AccessFilter,
    ) -> Result<Vec<api::Sender>, QueryError> {
        let mut senders = Vec::new();
        for origin in self.store.origins() {
            let user = origin.origin.as_user_push();
            let is_hidden = user.is_some() && !context.reader.knows_of(user);
            if is_hidden || !origin.devices.contains(device) {
                continue;
            }
            let seen = match origin.origin.as_run() {
                Some((_, id)) => {
                    access.of_job(device, &JobKey { cluster: ClusterId::local(), id })?
                }
                None => access.of_node(device)?,
            };
            if seen.at(context.now.0) {
                senders.push(api::Sender {
                    origin: origin.origin.to_string(),
                    last_seen: origin.received.seconds(),
                    samples_rejected: origin.samples_rejected,
                });
            }
        }
        Ok(senders)
    }

    /// Failed readings of each source of these devices.
    fn failures(
        &self,
        devices: BTreeSet<DeviceId>,
        (from, to): (Timestamp, Timestamp),
        context: &QueryContext,
        access: &AccessFilter,
    ) -> Result<Failures, QueryError> {
        let select = Selector {
            devices: Some(devices),
            metrics: Some(BTreeSet::from([Arc::from(ERRORS)])),
            job: JobSelector::None,
            labels: Vec::new(),
        };
        let (mut failures, mut last) = (Failures::new(), None::<(Series, Point)>);
        let snapshot =
            access.limit(&self.store.snapshot_until(context.cancel.flag()), ListedAs::Device);
        for chunk in snapshot.scan(&select, from, to) {
            context.cancel.check()?;
            let chunk = chunk?;
            let series = &chunk.series.series;
            let Some(source) = series.labels.get(SOURCE) else { continue };
            let seen = access.of_node(&series.device)?;
            if !chunk.times.iter().any(|at| seen.at(*at)) {
                continue;
            }
            let of_device = failures.entry(series.device.clone()).or_default();
            let count = of_device.entry(Arc::from(&*source)).or_default();
            if !matches!(&last, Some((before, _)) if *before == *series) {
                last = None;
            }
            for (at, value, start) in chunk.rows().filter(|(at, ..)| seen.at(at.0)) {
                let point = Point { at, value, start };
                if let Some((_, before)) = last
                    && seen.joins(before.at.0, at.0)
                {
                    *count += increase(before, point).amount;
                }
                last = Some((series.clone(), point));
            }
        }
        Ok(failures)
    }
}

impl VisibleSamples {
    /// No samples, of a device with these gaps.
    fn beside(mut gaps: Vec<Gap>) -> Self {
        let around = gaps.iter().map(|gap| ((gap.from.0, gap.to.0), GapSamples::default()));
        let around = around.collect();
        gaps.retain(is_of_protocol);
        Self { of_protocols: gaps, around, ..Self::default() }
    }

    /// Whether a sample is missing in a gap. A gap that is cut to its visible part is shown.
    fn misses(&self, gap: &Gap) -> bool {
        let of_gap = (gap.from.0, gap.to.0);
        self.around.get(&of_gap).is_none_or(|samples| samples.is_missing(of_gap, 0))
    }

    /// Whether the series has samples in this gap of a protocol.
    fn is_of_other_target(&self, gap: &Gap) -> bool {
        let contains = |other: &Gap| {
            other.source == gap.source && other.from <= gap.from && gap.to <= other.to
        };
        self.other_targets.iter().any(contains)
    }

    /// Adds the visible samples of a chunk.
    fn take(&mut self, chunk: &Chunk, seen: &Visibility) {
        let previous = self.times.last().copied();
        for (gap, samples) in &mut self.around {
            samples.take(*gap, &chunk.times, previous);
        }
        for (at, value, start) in chunk.rows().filter(|(at, ..)| seen.at(at.0)) {
            self.samples = self.samples.saturating_add(1);
            self.times.push(at.0);
            (self.value, self.start) = (value, start);
        }
        let times = &chunk.times;
        let is_outside = |gap: &mut Gap| {
            let next = times.partition_point(|at| *at <= gap.from.0);
            times.get(next).is_none_or(|at| *at >= gap.to.0)
        };
        self.other_targets.extend(self.of_protocols.extract_if(.., |gap| !is_outside(gap)));
        self.times.drain(..self.times.len().saturating_sub(LATEST));
    }
}

/// The source of a metric and its number of failures: the longest source name of the node that is a prefix of
/// the metric's name.
fn source_of(metric: &str, sources: Option<&BTreeMap<Arc<str>, f64>>) -> Option<(Arc<str>, f64)> {
    let of_it = sources?.iter().filter(|(source, _)| begins_with_word(metric, source));
    let longest = of_it.max_by_key(|(source, _)| source.len());
    longest.map(|(source, errors)| (Arc::clone(source), *errors))
}

/// Whether a gap concerns more than one value of a device: it names the protocol, or the first word of the metrics whose
/// samples the server rejected.
fn is_of_protocol(gap: &Gap) -> bool {
    gap.origin.is_poller_group() && !gap.source.is_empty() && !gap.source.contains('/')
}

/// Whether a gap that a poller reports, or that the server reports of it, is one of the metric. The gap of a single value
/// names its entry; exporters' values have other names. The limits of an exporter concern any of its metrics.
fn concerns(gap: &Gap, metric: &str) -> bool {
    const EXPORTERS: &str = "prometheus";
    match gap.source.split_once('/') {
        Some((protocol, entry)) => protocol == EXPORTERS || entry == metric,
        None if gap.cause == Cause::SeriesRejected => {
            gap.source.is_empty()
                || &*gap.source == EXPORTERS
                || begins_with_word(metric, &gap.source)
        }
        None => true,
    }
}

fn begins_with_word(metric: &str, word: &str) -> bool {
    metric.strip_prefix(word).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
}

/// The program that reports a metric about itself. Its source has no failures.
fn reporter_of(metric: &str) -> Option<&'static str> {
    let reporters = [("agent_", "agent"), ("run_report_", "run")];
    reporters.iter().find(|(prefix, _)| metric.starts_with(prefix)).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_of_the_source_that_its_name_begins_with() {
        let sources: BTreeMap<Arc<str>, f64> =
            [("cpu", 0.0), ("cpufreq", 2.0), ("nfs", 1.0)].map(|(name, n)| (name.into(), n)).into();
        let of = |metric| source_of(metric, Some(&sources)).map(|(name, _)| name.to_string());
        assert_eq!(of("cpu_user_seconds_total").as_deref(), Some("cpu"));
        assert_eq!(of("cpufreq_frequency_hertz").as_deref(), Some("cpufreq"));
        assert_eq!(of("nfsd_calls_total"), None);
        assert_eq!(source_of("cpu_online", None), None);
        assert_eq!(reporter_of("agent_dropped_samples_total"), Some("agent"));
        assert_eq!(reporter_of("agents"), None);
    }

    #[test]
    fn a_gap_concerns_the_metrics_that_it_names() {
        let gap = |source: &str, cause| Gap {
            origin: model::Origin::new("poller-p:0").unwrap(),
            device: DeviceId::new("d").unwrap(),
            source: source.into(),
            from: Timestamp(0),
            to: Timestamp(1),
            cause,
            detail: "".into(),
        };
        for (source, metric, is_rejected, want) in [
            ("snmp", "power", false, true),
            ("snmp/power", "power", false, true),
            ("snmp/power", "mtu", false, false),
            ("prometheus/all", "prom_up", false, true),
            ("decl", "decl_u", true, true),
            ("decl", "okm_watt", true, false),
            ("prometheus", "prom_up", true, true),
        ] {
            let cause = if is_rejected { Cause::SeriesRejected } else { Cause::SourceBroken };
            assert_eq!(concerns(&gap(source, cause), metric), want, "{source} {metric}");
        }
    }
}
