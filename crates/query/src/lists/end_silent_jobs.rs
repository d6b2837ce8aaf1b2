//! Ends local jobs without a sign of life: their node is unavailable, or their `jobmeter run` was killed.

use crate::common::time::SLACK;
use crate::{QueryEngine, QueryError};
use jobs::OpenLocal;
use model::{JobKey, Timestamp};
use std::collections::BTreeSet;
use std::sync::Arc;
use storage::{JobSelector, Selector};

/// Metrics that count the processes of a job: each sample above 0 is a sign of life. An empty leftover cgroup is
/// not.
const PROCESSES: [&str; 2] = ["cgroup_tasks", "run_processes"];

impl QueryEngine {
    /// Ends the local jobs without a sign of life for `silent_us`. Each ends at its last sign of life and is
    /// marked.
    ///
    /// # Errors
    /// A block cannot be read; the registry fails.
    pub fn end_silent_jobs(
        &self,
        silent_us: i64,
        now: Timestamp,
    ) -> Result<Vec<(JobKey, Timestamp)>, QueryError> {
        let since = now.plus(silent_us.saturating_neg());
        let mut ended = Vec::new();
        for job in self.registry.open_local(since)? {
            let last = self.latest_activity(&job, since, now)?;
            if last < since && self.registry.end_silent(job.key.id, last)? {
                ended.push((job.key, last));
            }
        }
        Ok(ended)
    }

    /// The last sign of life of a job; any instant from `since` on may stand for a later one.
    fn latest_activity(
        &self,
        job: &OpenLocal,
        since: Timestamp,
        now: Timestamp,
    ) -> Result<Timestamp, QueryError> {
        let mut select = Selector { job: JobSelector::Is(job.key.clone()), ..Selector::default() };
        let snapshot = self.store.snapshot();
        let newest = snapshot.last(&select);
        let counts = |metric: &str| PROCESSES.contains(&metric);
        let is_counted = newest.iter().any(|last| counts(&last.series.series.metric));
        let alive = newest.iter().any(|last| {
            let of_processes = counts(&last.series.series.metric) && last.value > 0.0;
            last.at >= since && (of_processes || !is_counted)
        });
        if alive {
            return Ok(now);
        }
        let from = job.start.plus(-SLACK);
        let mut found = job.start;
        for processes in [true, false] {
            let metrics: BTreeSet<Arc<str>> = PROCESSES.into_iter().map(Arc::from).collect();
            select.metrics = processes.then_some(metrics);
            let mut any = false;
            for chunk in snapshot.scan(&select, from, now) {
                for (at, value, _) in chunk?.rows() {
                    any = true;
                    if !processes || value > 0.0 {
                        found = found.max(at);
                    }
                }
            }
            if any {
                break;
            }
        }
        Ok(found.min(now))
    }
}
