//! Caches the lines of series.

use crate::common::print::{Added, labels};
use crate::engine::access_filter::{AccessFilter, Visibility};
use crate::rows::slices::address;
use crate::{Line, QueryEngine, QueryError};
use model::{ClusterId, DeviceId, JobKey};
use std::collections::HashMap;
use std::sync::Arc;
use storage::SeriesInfo;

/// Maximum cached lines; beyond it, the cache is cleared.
const KEPT_MAX: usize = 100_000;

/// A series, its visibility, and its line unless the series is never visible.
type CachedSeries = (Arc<SeriesInfo>, Visibility, Option<Arc<Line>>);

/// Creates the lines of series for a reader.
#[derive(Debug)]
pub(crate) struct LineCache {
    access: AccessFilter,
    default_cluster: ClusterId,
    without_alias: bool,
    /// Lines by address of the series. The cache holds the series, so that its address is not reused.
    kept: HashMap<usize, CachedSeries>,
}

impl LineCache {
    pub(crate) fn new(engine: &QueryEngine, access: AccessFilter, without_alias: bool) -> Self {
        Self {
            access,
            default_cluster: engine.settings.default_cluster.clone(),
            without_alias,
            kept: HashMap::new(),
        }
    }

    /// The line of a series' own samples; `None` if they are never visible to the reader.
    pub(crate) fn own(&mut self, info: &Arc<SeriesInfo>) -> Result<Option<Arc<Line>>, QueryError> {
        Ok(self.kept(info)?.1)
    }

    /// When the reader sees a series' own samples.
    pub(crate) fn seen(&mut self, info: &Arc<SeriesInfo>) -> Result<Visibility, QueryError> {
        Ok(self.kept(info)?.0)
    }

    fn kept(
        &mut self,
        info: &Arc<SeriesInfo>,
    ) -> Result<(Visibility, Option<Arc<Line>>), QueryError> {
        if let Some((_, seen, line)) = self.kept.get(&address(info)) {
            return Ok((seen.clone(), line.clone()));
        }
        let seen = self.access.of(&info.series.device, info.series.job.as_ref())?;
        let line = (seen != Visibility::Never).then(|| {
            let added = Added { without_alias: self.without_alias, ..Added::default() };
            Arc::new(self.line(info, &info.series.device, added))
        });
        if self.kept.len() >= KEPT_MAX {
            self.kept.clear();
        }
        self.kept.insert(address(info), (Arc::clone(info), seen.clone(), line.clone()));
        Ok((seen, line))
    }

    /// The line of samples that `origins` measured for an alias.
    pub(crate) fn alias(
        &self,
        info: &SeriesInfo,
        alias: &DeviceId,
        origins: &[DeviceId],
    ) -> Arc<Line> {
        let added = Added { without_alias: true, origins, ..Added::default() };
        Arc::new(self.line(info, alias, added))
    }

    /// When the reader sees the samples that a series measured for an alias.
    pub(crate) fn seen_as(
        &self,
        info: &SeriesInfo,
        alias: &DeviceId,
    ) -> Result<Visibility, QueryError> {
        self.access.of(alias, info.series.job.as_ref())
    }

    fn line(&self, info: &SeriesInfo, device: &DeviceId, added: Added<'_>) -> Line {
        let series = &info.series;
        let job = series.job.as_ref();
        let cluster = job.is_some_and(|job: &JobKey| job.cluster != self.default_cluster);
        Line {
            device: device.clone(),
            metric: Arc::clone(&series.metric),
            kind: info.kind,
            labels: labels(&series.labels, &Added { job, cluster, ..added }).into(),
            job: series.job.clone(),
            allocation: None,
        }
    }
}
