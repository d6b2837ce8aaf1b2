//! Lists: series, latest values, jobs, metric catalogue, gaps, available metrics.

use crate::common::print::ALIAS;
use crate::engine::access_filter::{AccessFilter, ListedAs, Visibility};
use crate::lists::available::AvailableFilter;
use crate::{QueryContext, QueryEngine, QueryError};
use jobs::Filter;
use model::{DeviceId, Gap, Timestamp};
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;
use storage::{Chunk, JobSelector, Selector, SeriesInfo};

/// Maximum age of a metric's latest sample at an instant for the metric to count as available.
const AVAILABLE_WITHIN: i64 = 60 * Timestamp::SECOND;

impl QueryEngine {
    /// The selected series of an interval, at most [`crate::Settings::series_max`]. The list comes from indexes,
    /// so it may include a series without a sample in the interval. For readers with time limits it is exact.
    ///
    /// # Errors
    /// There are more; a block cannot be read; the registry fails.
    pub fn series(
        &self,
        select: &Selector,
        from: Timestamp,
        to: Timestamp,
        context: &QueryContext,
    ) -> Result<Vec<api::SeriesInfo>, QueryError> {
        self.first_series(select, (from, to), usize::MAX, context)
    }

    /// The first `most` of these series; the others are omitted, regardless of their number.
    ///
    /// # Errors
    /// The matches exceed both `most` and [`crate::Settings::series_max`]; a block cannot be read; the registry
    /// fails.
    pub fn first_series(
        &self,
        select: &Selector,
        (from, to): (Timestamp, Timestamp),
        most: usize,
        context: &QueryContext,
    ) -> Result<Vec<api::SeriesInfo>, QueryError> {
        let access = AccessFilter::new(self, context, (from, to), select.devices.as_ref());
        let snapshot = access.limit(&self.store.snapshot(), ListedAs::Device);
        let mut series = Vec::new();
        for info in snapshot.series(select, from, to)? {
            let seen = access.of(&info.series.device, info.series.job.as_ref())?;
            let meaning_shown = match &seen {
                Visibility::Never => false,
                Visibility::Always => true,
                // The index also lists series with samples at other times.
                Visibility::During(_) => self.meaning_shown(&info, &seen, (from, to), context)?,
            };
            if series.len() >= most {
                break;
            }
            if meaning_shown {
                self.check_series(series.len())?;
                series.push(described(&info));
            }
        }
        Ok(series)
    }

    /// Whether a series has a visible sample in an interval.
    fn meaning_shown(
        &self,
        info: &SeriesInfo,
        seen: &Visibility,
        (from, to): (Timestamp, Timestamp),
        context: &QueryContext,
    ) -> Result<bool, QueryError> {
        if !seen.touches(from.0, to.0) {
            return Ok(false);
        }
        for chunk in self.store.snapshot().scan(&Selector::of(&info.series), from, to) {
            context.cancel.check()?;
            if chunk?.times.iter().any(|at| seen.at(*at)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The latest value of each active series of a selection. What a device measures for a node belongs to the node, too.
    ///
    /// # Errors
    /// There are more than [`crate::Settings::series_max`]; the registry fails.
    pub fn last(
        &self,
        select: &Selector,
        context: &QueryContext,
    ) -> Result<Vec<api::Last>, QueryError> {
        let newest = self.store.snapshot().last(select);
        // A reader with time limits may have had many jobs: only those at these instants are read.
        let times = || newest.iter().map(|last| last.at);
        let Some(span) = times().min().zip(times().max()) else { return Ok(Vec::new()) };
        // Of all nodes: the selected devices may feed any.
        let access = AccessFilter::new(self, context, span, None);
        let mut values = Vec::new();
        for last in newest {
            let series = &last.series.series;
            if access.sees(series, last.at)? {
                self.check_series(values.len())?;
                let value = Some(last.value).filter(|value| value.is_finite());
                let (series, time) = (described(&last.series), last.at.seconds());
                values.push(api::Last { series, time, value });
            }
        }
        Ok(values)
    }

    fn check_series(&self, have: usize) -> Result<(), QueryError> {
        let max = self.settings.series_max;
        if have < max {
            return Ok(());
        }
        let text = format!("more than {max} series match; choose fewer devices or metrics");
        Err(QueryError::TooMuch(text))
    }

    /// Jobs that pass a filter and are visible to this reader, newest first.
    ///
    /// # Errors
    /// The registry fails.
    pub fn jobs(
        &self,
        filter: &Filter,
        context: &QueryContext,
    ) -> Result<Vec<api::Job>, QueryError> {
        let jobs = self.listed(filter, context)?.into_iter();
        Ok(jobs.map(|listed| api::Job::new(listed.job, listed.devices)).collect())
    }

    /// Every known metric, by name.
    pub fn catalogue(&self) -> Vec<api::MetricInfo> {
        let info = |metric: Arc<model::Metric>| api::MetricInfo {
            name: metric.name.to_string(),
            unit: metric.unit.word().to_owned(),
            kind: metric.kind.word().to_owned(),
            help: metric.help.to_string(),
        };
        self.store.catalogue().into_iter().map(info).collect()
    }

    /// Devices and metrics with samples in the minute before `at`, aliases included. The devices are the given
    /// ones, or those of the job; for a job, `at` is at most its end. Kwollect's order: names such as `node-12`
    /// first, by name and number.
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
            let key = self.job_seen(name, context)?;
            let extent = self.job_extent(&key, context)?;
            at = at.min(extent.to);
            wanted = Some(wanted.unwrap_or(extent.devices));
            select.job = JobSelector::NoneOrIs(key);
        }
        let from = at.plus(-AVAILABLE_WITHIN);
        let access = AccessFilter::new(self, context, (from, at), None);
        let snapshot = access.limit(&self.store.snapshot(), ListedAs::DeviceAndAlias);
        let mut seen = BTreeSet::new();
        for chunk in snapshot.scan(&select, from, at) {
            context.cancel.check()?;
            let Chunk { series: info, times, .. } = chunk?;
            let alias = info.series.labels.get(ALIAS).and_then(|name| DeviceId::new(&name).ok());
            for device in [Some(info.series.device.clone()), alias].into_iter().flatten() {
                if wanted.as_ref().is_some_and(|wanted| !wanted.contains(&device)) {
                    continue;
                }
                let when = access.of(&device, info.series.job.as_ref())?;
                if times.iter().any(|at| when.at(*at)) {
                    seen.insert((device, Arc::clone(&info.series.metric)));
                }
            }
        }
        let mut list: Vec<_> = seen.into_iter().collect();
        list.sort_by(|a, b| by_number(a.0.as_str(), b.0.as_str()).then_with(|| a.1.cmp(&b.1)));
        Ok(list)
    }
}

/// Sorts `node-2` before `node-10`, and both before names without a number.
fn by_number(a: &str, b: &str) -> Ordering {
    let parts = |name: &str| {
        let (host, number) = name.rsplit_once('-')?;
        let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| Some((host.to_owned(), number.parse::<u64>().ok()?))).flatten()
    };
    match (parts(a), parts(b)) {
        (Some(one), Some(other)) => one.cmp(&other).then_with(|| a.cmp(b)),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.cmp(b),
    }
}

/// A series in the format of `/api/v1`.
pub(crate) fn described(info: &SeriesInfo) -> api::SeriesInfo {
    let series = &info.series;
    api::SeriesInfo {
        device: series.device.to_string(),
        metric: series.metric.to_string(),
        cluster: series.job.as_ref().map(|job| job.cluster.to_string()),
        job: series.job.as_ref().map(|job| job.id.get()),
        labels: series.labels.pairs().into_iter().collect(),
        unit: info.unit.word().to_owned(),
        kind: info.kind.word().to_owned(),
    }
}

/// A gap in the format of `/api/v1`.
pub fn gap(gap: &Gap) -> api::Gap {
    api::Gap {
        origin: gap.origin.to_string(),
        device: gap.device.to_string(),
        source: gap.source.to_string(),
        from: gap.from.seconds(),
        to: gap.to.seconds(),
        cause: gap.cause.words().to_owned(),
        detail: gap.detail.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbered_names_come_first_and_by_number() {
        let mut names = ["switch", "b-10", "b-9", "a-100", "b-x", "b-09"];
        names.sort_by(|a, b| by_number(a, b));
        assert_eq!(names, ["a-100", "b-09", "b-9", "b-10", "b-x", "switch"]);
    }
}
