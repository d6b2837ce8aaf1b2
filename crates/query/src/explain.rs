//! Where a series comes from: which agent and source, how often, what is missing and what went wrong.

use crate::lists::{described, gap};
use crate::nodes::usual_distance;
use crate::sight::Sight;
use crate::{Asker, QueryError, Questions};
use model::{DeviceId, Point, Timestamp, increase};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use store::{JobSelector, Selector, SeriesInfo};

/// What is looked at: the last day.
const LOOKED_AT: i64 = 24 * 3600 * Timestamp::SECOND;
/// Most series that are explained at once.
const SERIES_MAX: usize = 100;
/// Most gaps told of a series, the newest.
const GAPS_MAX: usize = 20;
/// So many of its last instants tell a series' period.
const PERIOD_OF: usize = 64;
/// Counts the failed readings of each of a node's sources, and so names them.
const ERRORS: &str = "agent_source_errors_total";
const SOURCE: &str = "source";

/// What the last day has of a series.
#[derive(Default)]
struct Seen {
    samples: u64,
    /// The last instants, ascending.
    times: Vec<i64>,
    value: f64,
    start: Option<Timestamp>,
}

/// How often each source of a device failed in the last day.
type Failures = BTreeMap<DeviceId, BTreeMap<Arc<str>, f64>>;

impl Questions {
    /// Where the series of a selection come from, of those that were told of in the last day; of more than
    /// a hundred the first ones.
    ///
    /// # Errors
    /// A block cannot be read; the registry fails; it was cancelled.
    pub fn explain(
        &self,
        select: &Selector,
        asker: &Asker,
    ) -> Result<Vec<api::Explanation>, QueryError> {
        let from = asker.now.plus(-LOOKED_AT);
        let mut sight = Sight::new(&self.registry, asker.reader);
        let mut series: BTreeMap<_, (Arc<SeriesInfo>, Seen)> = BTreeMap::new();
        for chunk in self.store.snapshot().scan(select, from, asker.now) {
            asker.cancel.check()?;
            let chunk = chunk?;
            if !sight.sees(chunk.series.series.job.as_ref())? {
                continue;
            }
            let key = chunk.series.series.clone();
            if series.len() >= SERIES_MAX && !series.contains_key(&key) {
                continue;
            }
            let info = Arc::clone(&chunk.series);
            let (_, seen) = series.entry(key).or_insert_with(|| (info, Seen::default()));
            seen.samples = seen.samples.saturating_add(chunk.times.len() as u64);
            let newest = chunk.times.iter().skip(chunk.times.len().saturating_sub(PERIOD_OF));
            seen.times.extend(newest);
            seen.times.drain(..seen.times.len().saturating_sub(PERIOD_OF));
            if let Some((_, value, start)) = chunk.rows().last() {
                (seen.value, seen.start) = (value, start);
            }
        }
        let devices = series.keys().map(|series| series.device.clone()).collect();
        let failures = self.failures(devices, from, asker)?;
        let help: BTreeMap<Arc<str>, Box<str>> = self
            .store
            .catalogue()
            .into_iter()
            .map(|it| (it.name.clone().into(), it.help.clone().into()))
            .collect();
        let explained = series.into_values().map(|(info, seen)| {
            let help = help.get(&info.series.metric).map_or("", |help| help);
            self.explained(&info, &seen, &failures, help, asker.now)
        });
        Ok(explained.collect())
    }

    fn explained(
        &self,
        info: &SeriesInfo,
        seen: &Seen,
        failures: &Failures,
        help: &str,
        now: Timestamp,
    ) -> api::Explanation {
        let device = &info.series.device;
        let source = source_of(&info.series.metric, failures.get(device));
        let senders = self.store.origins().into_iter();
        let senders = senders.filter(|origin| origin.devices.contains(device));
        let missing = self.store.gaps(now.plus(-LOOKED_AT), now, Some(device));
        let of_it = missing.iter().filter(|gap| {
            gap.source.is_empty() || source.as_ref().is_none_or(|(name, _)| *gap.source == **name)
        });
        let of_it: Vec<api::Gap> = of_it.map(gap).collect();
        let newest = of_it.len().saturating_sub(GAPS_MAX);
        api::Explanation {
            series: described(info),
            help: help.to_owned(),
            source: source.as_ref().map(|(name, _)| name.to_string()),
            source_errors: source.map(|(_, errors)| errors),
            senders: senders
                .map(|origin| api::Sender {
                    origin: origin.origin.to_string(),
                    last_seen: origin.received.seconds(),
                })
                .collect(),
            period_seconds: usual_distance(&seen.times),
            samples: seen.samples,
            time: seen.times.last().map(|at| Timestamp(*at).seconds()),
            value: Some(seen.value).filter(|value| value.is_finite()),
            counted_from: seen.start.map(Timestamp::seconds),
            gaps_count: u64::try_from(of_it.len()).unwrap_or(u64::MAX),
            gaps: of_it.into_iter().skip(newest).collect(),
        }
    }

    /// How often each source of these devices failed.
    fn failures(
        &self,
        devices: BTreeSet<DeviceId>,
        from: Timestamp,
        asker: &Asker,
    ) -> Result<Failures, QueryError> {
        let select = Selector {
            devices: Some(devices),
            metrics: Some(BTreeSet::from([Arc::from(ERRORS)])),
            job: JobSelector::None,
            labels: Vec::new(),
        };
        let (mut failures, mut last) = (Failures::new(), None);
        for chunk in self.store.snapshot().scan(&select, from, asker.now) {
            asker.cancel.check()?;
            let chunk = chunk?;
            let series = &chunk.series.series;
            let Some(source) = series.labels.get(SOURCE) else { continue };
            let of_device = failures.entry(series.device.clone()).or_default();
            let count = of_device.entry(Arc::from(&*source)).or_default();
            if !matches!(&last, Some((before, _)) if *before == *series) {
                last = None;
            }
            for (at, value, start) in chunk.rows() {
                let point = Point { at, value, start };
                if let Some((_, before)) = last {
                    *count += increase(before, point).amount;
                }
                last = Some((series.clone(), point));
            }
        }
        Ok(failures)
    }
}

/// The source that a metric is of, by its name: the longest of the node's sources that it begins with, and how
/// often that failed.
fn source_of(metric: &str, sources: Option<&BTreeMap<Arc<str>, f64>>) -> Option<(Arc<str>, f64)> {
    let begins = |source: &str| {
        metric.strip_prefix(source).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
    };
    let of_it = sources?.iter().filter(|(source, _)| begins(source));
    let longest = of_it.max_by_key(|(source, _)| source.len());
    longest.map(|(source, errors)| (Arc::clone(source), *errors))
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
    }
}
