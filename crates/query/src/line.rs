//! Lines of series, made once.

use crate::print::{Added, labels};
use crate::sight::Sight;
use crate::slices::address;
use crate::{Line, QueryError, Questions};
use jobs::Reader;
use model::{ClusterId, DeviceId, JobKey};
use std::collections::HashMap;
use std::sync::Arc;
use store::SeriesInfo;

/// Lines kept; then they are forgotten and made anew.
const KEPT_MAX: usize = 100_000;

/// A series and its line, if its reader may see it.
type Kept = (Arc<SeriesInfo>, Option<Arc<Line>>);

/// Makes lines of series, for a reader.
#[derive(Debug)]
pub(crate) struct Lines {
    sight: Sight,
    default_cluster: ClusterId,
    without_alias: bool,
    /// By address: the series is held, so that no other gets it.
    kept: HashMap<usize, Kept>,
}

impl Lines {
    pub(crate) fn new(questions: &Questions, reader: Reader, without_alias: bool) -> Self {
        Self {
            sight: Sight::new(&questions.registry, reader),
            default_cluster: questions.settings.default_cluster.clone(),
            without_alias,
            kept: HashMap::new(),
        }
    }

    /// The line of a series' own samples; `None` where the reader may not see them.
    pub(crate) fn own(&mut self, info: &Arc<SeriesInfo>) -> Result<Option<Arc<Line>>, QueryError> {
        if let Some((_, line)) = self.kept.get(&address(info)) {
            return Ok(line.clone());
        }
        let line = if self.sees(info)? {
            let added = Added { without_alias: self.without_alias, ..Added::default() };
            Some(Arc::new(self.line(info, &info.series.device, added)))
        } else {
            None
        };
        if self.kept.len() >= KEPT_MAX {
            self.kept.clear();
        }
        self.kept.insert(address(info), (Arc::clone(info), line.clone()));
        Ok(line)
    }

    /// The line of what was measured for an alias by `origins`.
    pub(crate) fn alias(
        &self,
        info: &SeriesInfo,
        alias: &DeviceId,
        origins: &[DeviceId],
    ) -> Arc<Line> {
        let added = Added { without_alias: true, origins, ..Added::default() };
        Arc::new(self.line(info, alias, added))
    }

    /// Whether the reader may see the series.
    pub(crate) fn sees(&mut self, info: &SeriesInfo) -> Result<bool, QueryError> {
        self.sight.sees(info.series.job.as_ref())
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
            stay: None,
        }
    }
}
