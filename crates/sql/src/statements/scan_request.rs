//! Store queries for the conditions of a statement.

use crate::statements::scan_filter::ScanFilter;
use crate::statements::worker::scan::Scope;
use jobs::Window;
use model::{ClusterId, JobId, JobKey};
use query::{QueryError, RowQuery, View};
use std::collections::BTreeSet;
use storage::{JobSelector, Selector};

/// Returns the query for a table of samples, or `None` if its conditions exclude each other.
pub(crate) fn query(
    view: View,
    summary: bool,
    narrow: &ScanFilter,
    scope: &Scope,
) -> Result<Option<RowQuery>, QueryError> {
    if narrow.nothing {
        return Ok(None);
    }
    Ok(Some(RowQuery {
        view,
        devices: narrow.devices.clone(),
        metrics: narrow.metrics.clone(),
        job: jobs(view, narrow, scope)?,
        from: narrow.from,
        to: narrow.to,
        summary,
    }))
}

/// Returns the jobs that the job IDs and clusters select.
fn jobs(view: View, narrow: &ScanFilter, scope: &Scope) -> Result<JobSelector, QueryError> {
    let keys: BTreeSet<JobKey> = match (&narrow.ids, &narrow.clusters) {
        (None, None) => {
            return Ok(match narrow.of_a_job {
                None => JobSelector::Any,
                Some(true) => JobSelector::Some,
                Some(false) => JobSelector::None,
            });
        }
        (Some(ids), Some(clusters)) => pairs(ids, clusters),
        // Rows of this table are attributed to jobs in the registry.
        (Some(ids), None) if view == View::ByJob => {
            let mut keys = BTreeSet::new();
            for id in ids {
                keys.extend(scope.engine.registry().keys_of(*id)?);
            }
            keys
        }
        _ if view == View::ByJob => {
            let (from, to) = (Some(narrow.from), Some(narrow.to));
            let window = Window { from, to, ..Window::default() };
            let allocations = scope.engine.node_times(&window, &scope.context)?;
            allocations
                .into_iter()
                .map(|allocation| allocation.key)
                .filter(|key| is_meant(narrow, key))
                .collect()
        }
        _ => named_by_series(narrow, scope)?,
    };
    Ok(JobSelector::OneOf(keys))
}

fn pairs(ids: &BTreeSet<JobId>, clusters: &BTreeSet<ClusterId>) -> BTreeSet<JobKey> {
    let of = |cluster: &ClusterId| {
        let key = |id: &JobId| JobKey { cluster: cluster.clone(), id: *id };
        ids.iter().map(key).collect::<Vec<_>>()
    };
    clusters.iter().flat_map(of).collect()
}

/// Resolves a job ID or a cluster alone. The series also know jobs that the registry does not.
fn named_by_series(narrow: &ScanFilter, scope: &Scope) -> Result<BTreeSet<JobKey>, QueryError> {
    scope.context.cancel.check()?;
    let (metrics, job) = (narrow.metrics.clone(), JobSelector::Some);
    let select = Selector { metrics, job, ..Selector::default() };
    let snapshot = scope.engine.store().snapshot();
    let series = snapshot.series(&select, narrow.from, narrow.to)?;
    let keys = series.iter().filter_map(|info| info.series.job.as_ref());
    Ok(keys.filter(|key| is_meant(narrow, key)).cloned().collect())
}

fn is_meant(narrow: &ScanFilter, key: &JobKey) -> bool {
    narrow.ids.as_ref().is_none_or(|ids| ids.contains(&key.id))
        && narrow.clusters.as_ref().is_none_or(|clusters| clusters.contains(&key.cluster))
}
