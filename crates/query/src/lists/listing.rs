//! Lists: series, latest values, jobs, metric catalogue, gaps.

use crate::engine::access_filter::{AccessFilter, ListedAs, Visibility};
use crate::{QueryContext, QueryEngine, QueryError};
use jobs::Filter;
use model::{Gap, Timestamp};
use std::cmp::Ordering;
use std::sync::Arc;
use storage::{Selector, SeriesInfo};

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
}

/// Sorts `node-2` before `node-10`, and both before names without a number.
pub(crate) fn by_number(a: &str, b: &str) -> Ordering {
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
