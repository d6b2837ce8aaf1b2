//! Requests of jobs by environment variable (`JOBMETER_MONITOR`), as the agents of their nodes read it.
//!
//! The request is stored with the visit of the reporting node. The first report of a visit counts. A
//! request on one node applies to the whole job: the first process of a job need not run on each of its
//! nodes. If a scheduler reports the job's nodes, only reports from these nodes count. No other node
//! can thus request metrics on them. A visit counts only if it names the job's owner.

use crate::common::sql_parts::key;
use crate::{Registry, RegistryError};
use model::{ClusterId, JobEvent, JobKey, Timestamp};
use rusqlite::{Connection, params};
use std::collections::BTreeMap;

/// Stores the request in an event and returns whether it is new for that visit. The owner of a local
/// job sends requests themselves (`jobmeter promote`).
pub(crate) fn note(db: &Connection, event: &JobEvent) -> rusqlite::Result<bool> {
    let JobEvent { key, device, start, monitor: Some(monitor), .. } = event else {
        return Ok(false);
    };
    if key.cluster == ClusterId::local() {
        return Ok(false);
    }
    // Words are separated by blanks, and clients show the text.
    let monitor = model::printable(monitor);
    let changed = db
        .prepare_cached(
            "UPDATE visits SET monitor = ?5
             WHERE run IN (SELECT run FROM runs WHERE cluster = ?1 AND id = ?2)
             AND device = ?3 AND start = ?4 AND monitor IS NULL",
        )?
        .execute(params![key.cluster.as_str(), key.id.get(), device.as_str(), start.0, monitor])?;
    Ok(changed > 0)
}

/// The requests of each run, by job and start.
pub(crate) type RequestsByRun = BTreeMap<(JobKey, Timestamp), Vec<Box<str>>>;

impl Registry {
    /// Returns the environment requests of running jobs, by run. Each value of a run occurs once. Of a
    /// reused job ID, only the latest run counts: an earlier run without a reported end is over. The number
    /// of values is limited to the registry's row limit.
    ///
    /// # Errors
    /// SQLite fails.
    pub(crate) fn requested_by_environment(&self) -> Result<RequestsByRun, RegistryError> {
        let reader = self.reader.lock();
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
        let mut requested = BTreeMap::<(JobKey, Timestamp), Vec<_>>::new();
        while let Some(row) = rows.next()? {
            let run = (key(row.get(0)?, row.get(1)?)?, Timestamp(row.get(2)?));
            requested.entry(run).or_default().push(row.get(3)?);
        }
        Ok(requested)
    }
}
