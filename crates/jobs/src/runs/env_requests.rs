//! What jobs ask for by their environment, as the agents of their nodes read it (`JOBMETER_MONITOR`).
//!
//! It stands beside the visit of the node that told it, and what was told first of a visit counts. The wish of one
//! node is the whole job's: the first process of a job need not be on each of its nodes. Where a scheduler says on
//! which nodes a job is, only these nodes' word counts, so that no other can ask for anything on them. A visit counts that names the job's owner.

use crate::common::registry::lock;
use crate::common::sql_parts::key;
use crate::{Registry, RegistryError};
use model::{ClusterId, JobEvent, JobKey, Timestamp};
use rusqlite::{Connection, params};
use std::collections::BTreeMap;

/// Version 5: what the environment of a job asked for on a device; `NULL`: nobody read of any.
pub(crate) const COLUMN: &str = "
ALTER TABLE visits ADD COLUMN monitor TEXT;
CREATE INDEX visits_monitor ON visits (run, monitor) WHERE monitor IS NOT NULL;
";

/// Notes what an event says of its job's environment; whether that is more than was known of that visit. Whoever runs
/// a local job asks for himself (`jobmeter promote`).
pub(crate) fn note(db: &Connection, event: &JobEvent) -> rusqlite::Result<bool> {
    let JobEvent { key, device, start, monitor: Some(monitor), .. } = event else {
        return Ok(false);
    };
    if key.cluster == ClusterId::local() {
        return Ok(false);
    }
    let changed = db
        .prepare_cached(
            "UPDATE visits SET monitor = ?5
             WHERE run IN (SELECT run FROM runs WHERE cluster = ?1 AND id = ?2)
             AND device = ?3 AND start = ?4 AND monitor IS NULL",
        )?
        .execute(params![key.cluster.as_str(), key.id.get(), device.as_str(), start.0, monitor])?;
    Ok(changed > 0)
}

/// The requests of a run, by job and start.
pub(crate) type RequestsByRun = BTreeMap<(JobKey, Timestamp), Vec<Box<str>>>;

impl Registry {
    /// What the jobs that run ask for by their environment, by run: each value of a run once; of an ID that was used
    /// again what its newest run asks for, as an earlier one whose end nobody told is over. So many values at most as a list
    /// may have rows.
    ///
    /// # Errors
    /// SQLite fails.
    pub(crate) fn asked_by_environment(&self) -> Result<RequestsByRun, RegistryError> {
        let reader = lock(&self.reader);
        let mut find = reader.prepare_cached(
            "SELECT DISTINCT r.cluster, r.id, r.start, v.monitor FROM runs r INDEXED BY runs_open
             CROSS JOIN visits v INDEXED BY visits_monitor ON v.run = r.run AND v.monitor IS NOT NULL
             WHERE r.stop IS NULL
             AND NOT EXISTS (SELECT 1 FROM runs n
                 WHERE n.cluster = r.cluster AND n.id = r.id AND n.start > r.start)
             AND CASE WHEN r.uid IS NOT NULL AND v.uid IS NOT NULL THEN r.uid = v.uid
                 WHEN r.user IS NOT NULL AND v.user IS NOT NULL THEN r.user = v.user
                 ELSE r.uid IS NULL AND r.user IS NULL END
             AND (
                 NOT EXISTS (SELECT 1 FROM shares s WHERE s.record = r.record)
                 OR EXISTS (SELECT 1 FROM shares s WHERE s.record = r.record AND s.device = v.device))
             ORDER BY r.cluster, r.id, r.start, v.monitor LIMIT ?1",
        )?;
        let mut rows = find.query([i64::try_from(self.limits.rows_max).unwrap_or(i64::MAX)])?;
        let mut asked = BTreeMap::<(JobKey, Timestamp), Vec<_>>::new();
        while let Some(row) = rows.next()? {
            let run = (key(row.get(0)?, row.get(1)?)?, Timestamp(row.get(2)?));
            asked.entry(run).or_default().push(row.get(3)?);
        }
        Ok(asked)
    }
}
