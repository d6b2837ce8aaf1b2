//! `available_metrics`: devices and their metrics that arrive at a time.

use crate::engine::access_filter::{AccessFilter, ListedAs, Visibility};
use crate::lists::listing::by_number;
use crate::{QueryContext, QueryEngine, QueryError};
use jobs::JobName;
use model::{DeviceId, JobId, Series, Timestamp};
use serde_json::Value;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use storage::{Chunk, JobSelector, Selector};

/// Maximum age of a metric's latest sample at an instant, beyond its own period, for the metric to count as available.
const AVAILABLE_WITHIN: i64 = 60 * Timestamp::SECOND;
/// Longest period of a metric that counts as available between two of its samples: 1 d.
const PERIOD_MAX: i64 = 24 * HOUR;
/// Number of the latest distances of samples that determine a period.
const DISTANCES: usize = 5;
const HOUR: i64 = 3600 * Timestamp::SECOND;

/// Devices, also by alias, with the names of their metrics.
type Found = BTreeSet<(DeviceId, Arc<str>)>;

/// What `available_metrics` is restricted to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AvailableFilter {
    /// Only these devices.
    pub devices: Option<Vec<DeviceId>>,
    /// Only the devices of this job.
    pub job: Option<JobName>,
}

impl AvailableFilter {
    /// Parses the parameter `params`: an object with `devices`, `job_id`, both or neither.
    ///
    /// # Errors
    /// It is no object, or `devices` is no list of names.
    pub fn parse(params: &Value) -> Result<Self, QueryError> {
        if !(params.is_object() || params.is_null()) {
            return Err(QueryError::Params("params is a JSON object"));
        }
        let devices = match params.get("devices") {
            None | Some(Value::Null) => None,
            Some(Value::Array(names)) => {
                let name = |name: &Value| name.as_str().and_then(DeviceId::foreign);
                let devices: Option<Vec<DeviceId>> = names.iter().map(name).collect();
                let invalid = QueryError::Params("params->devices contains an invalid device name");
                Some(devices.ok_or(invalid)?)
            }
            Some(_) => {
                let text = "Cannot parse params->devices, should be JSON array";
                return Err(QueryError::Params(text));
            }
        };
        // A job ID with other characters than digits is ignored, as in Kwollect.
        let job = params.get("job_id").and_then(|job| match job {
            Value::Number(number) => number.as_i64(),
            Value::String(text) => text.parse().ok(),
            _ => None,
        });
        Ok(Self { devices, job: job.and_then(JobId::new).map(JobName::number) })
    }
}

impl QueryEngine {
    /// Devices and metrics with samples in the minute before `at`, aliases included. Metrics with a longer period count
    /// until a minute after their next sample is due. The devices are the given ones, or those of the job; for a job,
    /// `at` is at most its end. Kwollect's order: names such as `node-12` first, by name and number.
    ///
    /// # Errors
    /// The job is unknown or owned by another user; a block cannot be read.
    pub fn available_metrics(
        &self,
        at: Timestamp,
        only: &AvailableFilter,
        context: &QueryContext,
    ) -> Result<Vec<(DeviceId, Arc<str>)>, QueryError> {
        let devices = only.devices.as_ref();
        let mut wanted: Option<BTreeSet<DeviceId>> =
            devices.map(|devices| devices.iter().cloned().collect());
        let (mut at, mut select) = (at, Selector::default());
        if let Some(name) = &only.job {
            let key = self.job_on_nodes(name, context)?;
            let extent = self.job_extent(&key, context)?;
            at = at.min(extent.to);
            wanted = Some(wanted.unwrap_or(extent.devices));
            select.job = JobSelector::NoneOrIs(key);
        }
        let names = NamesOf { wanted, found: Arc::default() };
        let found = Arc::new(self.read_last_minute(at, &select, &names, context)?);
        let names = NamesOf { found: Arc::clone(&found), ..names };
        let slow = self.slow_metrics(at, &select, &names, context)?;
        let mut list: Vec<_> = found.iter().cloned().chain(slow).collect();
        list.sort_by(|a, b| by_number(a.0.as_str(), b.0.as_str()).then_with(|| a.1.cmp(&b.1)));
        Ok(list)
    }

    /// Metrics with a sample in the minute before an instant.
    fn read_last_minute(
        &self,
        at: Timestamp,
        select: &Selector,
        names: &NamesOf,
        context: &QueryContext,
    ) -> Result<Found, QueryError> {
        let from = at.plus(-AVAILABLE_WITHIN);
        let access = AccessFilter::new(self, context, (from, at), None);
        let snapshot = access
            .limit(&self.store.snapshot_until(context.cancel.flag()), ListedAs::DeviceAndAlias);
        let mut found = Found::new();
        for chunk in snapshot.scan(select, from, at) {
            context.cancel.check()?;
            let Chunk { series: info, times, .. } = chunk?;
            for name in names.of(&info.series) {
                let when = access.of(&name, info.series.job.as_ref())?;
                if times.iter().any(|at| when.at(*at)) {
                    found.insert((name, Arc::clone(&info.series.metric)));
                }
            }
        }
        Ok(found)
    }

    /// Metrics with a period beyond a minute whose next sample is not due yet. The period is that of the latest samples
    /// within two days: those of the current hour, and the hours before as rollups.
    fn slow_metrics(
        &self,
        at: Timestamp,
        select: &Selector,
        names: &NamesOf,
        context: &QueryContext,
    ) -> Result<Found, QueryError> {
        let hour = Timestamp(at.0.div_euclid(HOUR).saturating_mul(HOUR));
        let from = hour.plus(-2 * PERIOD_MAX - HOUR);
        let access = AccessFilter::new(self, context, (from, at), None);
        let needed = names.clone();
        let snapshot = access.limit_to(
            &*self.store.snapshot_until(context.cancel.flag()),
            ListedAs::DeviceAndAlias,
            move |series| needed.of(series).next().is_some(),
        );
        let mut arrivals: HashMap<(DeviceId, Series), Arrivals> = HashMap::new();
        for windows in snapshot.windows(select, from, hour.plus(-1), HOUR) {
            context.cancel.check()?;
            let windows = windows?;
            let series = &windows.series.series;
            for name in names.of(series) {
                let when = access.of(&name, series.job.as_ref())?;
                let of = arrivals.entry((name, series.clone())).or_default();
                for (start, rollup) in &windows.windows {
                    let (first, last) = (rollup.first.at.0, rollup.last.at.0);
                    if when.joins(first, last) {
                        of.take(first, last, rollup.count);
                    } else if when.touches(first, last) {
                        // The window crosses the edge of a visible time.
                        let end = start.plus(HOUR - 1);
                        for chunk in snapshot.scan(&Selector::of(series), *start, end) {
                            of.take_visible(&chunk?.times, &when);
                        }
                    }
                }
            }
        }
        for chunk in snapshot.scan(select, hour, at) {
            context.cancel.check()?;
            let Chunk { series: info, times, .. } = chunk?;
            let series = &info.series;
            for name in names.of(series) {
                let when = access.of(&name, series.job.as_ref())?;
                arrivals.entry((name, series.clone())).or_default().take_visible(&times, &when);
            }
        }
        let arriving = arrivals.into_iter().filter(|(_, arrivals)| arrivals.arrive(at));
        Ok(arriving.map(|((name, series), _)| (name, series.metric)).collect())
    }
}

/// The names under which a list may have to show a series.
#[derive(Clone, Debug)]
struct NamesOf {
    /// Only these; `None`: all.
    wanted: Option<BTreeSet<DeviceId>>,
    /// The metrics that the list has already.
    found: Arc<Found>,
}

impl NamesOf {
    fn of(&self, series: &Series) -> impl Iterator<Item = DeviceId> {
        ListedAs::DeviceAndAlias.names(series).into_iter().flatten().filter(|name| {
            self.wanted.as_ref().is_none_or(|wanted| wanted.contains(name))
                && !self.found.contains(&(name.clone(), Arc::clone(&series.metric)))
        })
    }
}

/// The latest samples of a series.
#[derive(Debug, Default)]
struct Arrivals {
    /// The latest one, in microseconds since 1970.
    last: Option<i64>,
    /// The latest distances, in microseconds.
    distances: VecDeque<i64>,
}

impl Arrivals {
    /// Adds later samples, as far as they are visible.
    fn take_visible(&mut self, times: &[i64], when: &Visibility) {
        times.iter().filter(|at| when.at(**at)).for_each(|at| self.take(*at, *at, 1));
    }

    /// Adds later samples: the first, the last, and their number.
    fn take(&mut self, first: i64, last: i64, count: u64) {
        let before = self.last.replace(last).map(|before| first.saturating_sub(before));
        let within = i64::try_from(count.saturating_sub(1)).unwrap_or(i64::MAX);
        let mean = last.saturating_sub(first).checked_div(within);
        let copies = usize::try_from(within).unwrap_or(usize::MAX).min(DISTANCES);
        let means = std::iter::repeat_n(mean, copies).flatten();
        self.distances.extend(before.into_iter().chain(means));
        while self.distances.len() > DISTANCES {
            self.distances.pop_front();
        }
    }

    /// Whether the next sample is at most a minute overdue at an instant. The period, the median of the distances, is
    /// beyond a minute.
    fn arrive(&self, at: Timestamp) -> bool {
        let mut distances: Vec<i64> = self.distances.iter().copied().collect();
        distances.sort_unstable();
        let period = distances.get(distances.len().saturating_sub(1) / 2);
        let (Some(last), Some(period)) = (self.last, period) else { return false };
        (AVAILABLE_WITHIN + 1..=PERIOD_MAX).contains(period)
            && at.0.saturating_sub(last) <= period.saturating_add(AVAILABLE_WITHIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_slow_metric_is_available_while_it_arrives() {
        let second = Timestamp::SECOND;
        let of = |times: &[i64]| {
            let mut arrivals = Arrivals::default();
            times.iter().for_each(|at| arrivals.take(at * second, at * second, 1));
            arrivals
        };
        let until = |times: &[i64]| {
            let arrivals = of(times);
            let mut ages = (0..=200_000).step_by(10);
            ages.find(|age| !arrivals.arrive(Timestamp((times[times.len() - 1] + age) * second)))
        };
        assert_eq!(until(&[0, 600, 1200]), Some(670), "a period and a minute");
        assert_eq!(until(&[0, 600]), Some(670));
        assert_eq!(until(&[600]), Some(0), "one sample has no period");
        assert_eq!(until(&[0, 86_400]), Some(86_470));
        assert_eq!(until(&[0, 86_500]), Some(0), "the period is too long");
        // A pause is no period, and a late sample changes none.
        assert_eq!(until(&[0, 5, 10, 20_000]), Some(0));
        assert_eq!(until(&[0, 600, 1200, 2500, 3100]), Some(670));
        let mut rolled = Arrivals::default();
        rolled.take(0, 3000 * second, 6);
        rolled.take(3600 * second, 6600 * second, 6);
        assert!(rolled.arrive(Timestamp(7260 * second)));
        assert!(!rolled.arrive(Timestamp(7261 * second)));
    }

    #[test]
    fn what_available_metrics_is_restricted_to() {
        let parse = |params: Value| AvailableFilter::parse(&params);
        let both = parse(json!({"devices": ["a", "b"], "job_id": "7"})).unwrap();
        assert_eq!(both.devices.unwrap().len(), 2);
        assert_eq!(both.job.unwrap().to_string(), "7");
        let none = parse(json!({"job_id": "7; DROP TABLE"})).unwrap();
        assert_eq!(none, AvailableFilter::default());
        let error = parse(json!({"devices": "a"})).unwrap_err();
        assert_eq!((error.status(), error.code()), (400, "P0001"));
        assert!(error.to_string().contains("should be JSON array"));
        assert!(parse(json!({"devices": [1]})).is_err());
        assert!(parse(json!([null])).is_err() && parse(json!(null)).is_ok());
    }
}
