//! Queries that find jobs by name and return their facts.

use crate::common::sql_parts::{Clauses, key};
use crate::matching::join::{Span, within};
use crate::people::job_access;
use crate::presence::allocations::allocation_sql;
use crate::presence::granted::Grants;
use crate::records::store_records::{fact_columns, facts, shares, state, steps};
use crate::runs::local::SILENT;
use crate::runs::oom_kills;
use crate::{
    AccessLevel, DeviceKill, JobName, NodeShare, Reader, Registry, RegistryError, RunsSeen, Step,
};
use model::{Allocation, ClusterId, Job, JobId, JobKey, JobState, Timestamp};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};
use std::sync::LazyLock;

/// A query of runs, for [`job`]. A run copies some facts of its record, or has them without one.
pub(crate) fn select(rest: &str) -> String {
    static FACTS: LazyLock<String> = LazyLock::new(|| {
        fact_columns(|name| match name {
            "user" | "uid" | "account" | "name" | "exit_code" => format!("r.{name}"),
            "state_word" => {
                format!("coalesce(o.state_word, CASE r.registered WHEN 2 THEN '{SILENT}' END)")
            }
            _ => format!("o.{name}"),
        })
    });
    let facts = &*FACTS;
    format!(
        "SELECT r.run, r.record, r.visits > 0, r.record_state, r.cluster, r.id, r.started, r.start, r.stop,
             r.display_id, o.submit, {facts}
         FROM runs r LEFT JOIN records o ON o.record = r.record {rest}"
    )
}

/// A run with all known facts.
#[derive(Clone, Debug, PartialEq)]
pub struct RunFacts {
    /// The run.
    pub job: Job,
    /// Allocations, sorted by device and start. Node reports come first. For devices without an agent, the
    /// record states them.
    pub allocations: Vec<Allocation>,
    /// The record's shares of devices.
    pub nodes: Vec<NodeShare>,
    /// The steps.
    pub steps: Vec<Step>,
    /// Tasks of the run that the kernel killed for lack of memory, from the nodes' kernel logs.
    pub oom_kills: Vec<DeviceKill>,
}

impl Registry {
    /// Returns the job that a name identifies. An ID that exists in several clusters is an error: the
    /// caller may be about to end the job.
    ///
    /// # Errors
    /// No job has the name, the name is that of an array or heterogeneous job, or several clusters have it.
    /// Or SQLite fails.
    pub fn resolve(&self, name: &JobName) -> Result<JobKey, RegistryError> {
        self.resolve_seen(name, Reader::Everything)
    }

    /// Returns the job that a name identifies among the jobs visible to a reader. Other users' jobs are
    /// unknown to the reader and make no name ambiguous.
    ///
    /// # Errors
    /// As [`Self::resolve`].
    pub fn resolve_seen(&self, name: &JobName, reader_of: Reader) -> Result<JobKey, RegistryError> {
        let mut found = self.keys_seen(name, reader_of)?;
        if let Some(cluster) = &name.cluster {
            found.retain(|key| key.cluster == *cluster);
        }
        match found.as_slice() {
            [] if is_whole(&self.reader.lock(), name, reader_of)? => {
                let number = name.id().map_or(0, JobId::get);
                Err(RegistryError::Parts { name: name.to_string(), number })
            }
            [] => Err(RegistryError::Unknown(name.to_string())),
            [key] => Ok(key.clone()),
            several => Err(RegistryError::Ambiguous {
                display_id: name.display_id.to_string(),
                clusters: several.iter().map(|key| key.cluster.clone()).collect(),
            }),
        }
    }

    /// Returns the jobs with an ID that are visible to a reader; if there are none, those with this
    /// notation. A record's notation has precedence over a node's. A node thus cannot make the name of a
    /// recorded job ambiguous.
    fn keys_seen(&self, name: &JobName, reader_of: Reader) -> Result<Vec<JobKey>, RegistryError> {
        let by_id = name.id().map(|id| ("id = ?1", Value::Integer(id.get())));
        let by_display_id = ("display_id = ?1", Value::Text(name.display_id.to_string()));
        for (clause, value) in by_id.into_iter().chain([by_display_id]) {
            let mut found = Vec::new();
            let keys = keys(&self.reader.lock(), clause, &value)?;
            for key in keys {
                if self.sees_any(reader_of, &key)? != AccessLevel::Nothing {
                    found.push(key);
                }
            }
            if found.len() > 1 && matches!(value, Value::Text(_)) {
                prefer_recorded(&self.reader.lock(), name, &mut found)?;
            }
            if !found.is_empty() {
                return Ok(found);
            }
        }
        Ok(Vec::new())
    }

    /// Returns the latest run of a job.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn job(&self, key: &JobKey) -> Result<Option<Job>, RegistryError> {
        Ok(self.runs(key)?.pop())
    }

    /// Returns the user ID of the job's owner, if known.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn owner(&self, key: &JobKey) -> Result<Option<u32>, RegistryError> {
        let reader = self.reader.lock();
        let mut find = reader.prepare_cached(
            "SELECT uid FROM runs WHERE cluster = ?1 AND id = ?2 ORDER BY start DESC LIMIT 1",
        )?;
        let mut rows = find.query(params![key.cluster.as_str(), key.id.get()])?;
        Ok(rows.next()?.map(|row| row.get(0)).transpose()?.flatten())
    }

    /// Returns a reader's access to the latest run of a job.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn sees(&self, reader: Reader, key: &JobKey) -> Result<AccessLevel, RegistryError> {
        let Some(job) = self.job(key)? else {
            return Ok(if reader.sees_every_job() {
                AccessLevel::All
            } else {
                AccessLevel::Nothing
            });
        };
        self.sees_run(reader, &job)
    }

    /// Returns a reader's highest access to any run of a job. A reused job ID has several runs.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn sees_any(&self, reader: Reader, key: &JobKey) -> Result<AccessLevel, RegistryError> {
        let mut most = self.sees(reader, key)?;
        if most == AccessLevel::All {
            return Ok(most);
        }
        for run in self.runs(key)? {
            most = most.max(self.sees_run(reader, &run)?);
        }
        Ok(most)
    }

    /// Returns a reader's access to a run.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn sees_run(&self, reader: Reader, job: &Job) -> Result<AccessLevel, RegistryError> {
        let owner = (job.facts.uid, job.facts.account.as_deref());
        job_access::sees(&self.reader.lock(), reader, &job.key.cluster, owner)
    }

    /// Returns the time ranges in which a reader may read the samples of a job ID.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn runs_seen(&self, reader: Reader, key: &JobKey) -> Result<RunsSeen, RegistryError> {
        let mut seen = RunsSeen { every: true, ..RunsSeen::default() };
        for run in self.runs(key)? {
            if self.sees_run(reader, &run)? == AccessLevel::All {
                // A job that has not started had no allocation.
                let span = run.start.map(|start| self.within_record(&run, start)).transpose()?;
                seen.runs.push((span, self.granted(reader, &run)?));
            } else {
                seen.every = false;
            }
        }
        Ok(seen)
    }

    /// Returns the time range in which a run may be read: see [`within`].
    fn within_record(&self, run: &Job, start: Timestamp) -> Result<crate::Span, RegistryError> {
        let span = Span { start, stop: run.stop };
        let reader = self.reader.lock();
        let mut find = reader.prepare_cached(
            "SELECT o.start, o.stop, r.clock_us FROM runs r JOIN records o ON o.record = r.record
             WHERE r.cluster = ?1 AND r.id = ?2 AND r.start = ?3 AND o.start IS NOT NULL",
        )?;
        let place = params![run.key.cluster.as_str(), run.key.id.get(), start.0];
        let recorded = find
            .query_row(place, |row| {
                let stop = row.get::<_, Option<i64>>(1)?.map(Timestamp);
                let record = Span { start: Timestamp(row.get(0)?), stop };
                // If the record's end is displayed, the nodes reported a later end or none.
                let span = Span { stop: span.stop.filter(|_| span.stop != stop), ..span };
                Ok(within(span, record, row.get(2)?))
            })
            .optional()?;
        let Span { start, stop } = recorded.unwrap_or(span);
        Ok((start, stop))
    }

    /// Returns all runs of a job, oldest first.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn runs(&self, key: &JobKey) -> Result<Vec<Job>, RegistryError> {
        let reader = self.reader.lock();
        let sql = select("WHERE r.cluster = ?1 AND r.id = ?2 ORDER BY r.start");
        let mut find = reader.prepare_cached(&sql)?;
        let mut rows = find.query(params![key.cluster.as_str(), key.id.get()])?;
        let mut jobs = Vec::new();
        while let Some(row) = rows.next()? {
            jobs.push(job(row)?);
        }
        Ok(jobs)
    }

    /// Returns the latest run of a job with all known facts.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn whole(&self, key: &JobKey) -> Result<Option<RunFacts>, RegistryError> {
        self.whole_seen(key, None, Reader::Everything)
    }

    /// Returns the latest run of a job to which a reader has full access, with all known facts. With `by`,
    /// the run must have started, or been submitted, by then.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn whole_seen(
        &self,
        key: &JobKey,
        by: Option<Timestamp>,
        reader_of: Reader,
    ) -> Result<Option<RunFacts>, RegistryError> {
        let reader = self.reader.lock();
        let sql =
            select("WHERE r.cluster = ?1 AND r.id = ?2 AND r.start <= ?3 ORDER BY r.start DESC");
        let by = by.map_or(i64::MAX, |by| by.0);
        let mut find = reader.prepare_cached(&sql)?;
        let mut rows = find.query(params![key.cluster.as_str(), key.id.get(), by])?;
        let (row, job) = loop {
            let Some(row) = rows.next()? else { return Ok(None) };
            let job = job(row)?;
            let owner = (job.facts.uid, job.facts.account.as_deref());
            if job_access::sees(&reader, reader_of, &key.cluster, owner)? == AccessLevel::All {
                break (row, job);
            }
        };
        let mut allocations = allocation_sql(&reader, key, row.get(0)?)?;
        let granted = Grants::new(self, &reader, reader_of).of(row.get(0)?)?;
        allocations.retain(|allocation| granted.has(&allocation.device));
        let (mut nodes, mut done) = (Vec::new(), Vec::new());
        if let Some(record) = row.get(1)? {
            (nodes, done) = (shares(&reader, record)?, steps(&reader, record)?);
        }
        let oom_kills = oom_kills::of_run(&reader, key, &allocations)?;
        if let Some(stop) = job.stop {
            end_open(&mut allocations, stop);
        }
        Ok(Some(RunFacts { job, allocations, nodes, steps: done, oom_kills }))
    }

    /// Returns the jobs with an ID in all clusters, sorted.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn keys_of(&self, id: JobId) -> Result<Vec<JobKey>, RegistryError> {
        keys(&self.reader.lock(), "id = ?1", &Value::Integer(id.get()))
    }

    /// Counts the local jobs of a user that run, or ended at `from` or later; counts up to `most`.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn local_since(
        &self,
        uid: u32,
        from: Timestamp,
        most: usize,
    ) -> Result<usize, RegistryError> {
        let reader = self.quick_reader.lock();
        let mut count = reader.prepare_cached(
            "SELECT count(*) FROM (SELECT 1 FROM runs WHERE uid = ?1 AND cluster = ?2
             AND (stop IS NULL OR stop >= ?3) ORDER BY start DESC LIMIT ?4)",
        )?;
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let values = params![uid, ClusterId::LOCAL, from.0, most];
        let count: i64 = count.query_row(values, |row| row.get(0))?;
        Ok(usize::try_from(count).unwrap_or(usize::MAX))
    }

    /// Returns the number of running jobs.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn running(&self) -> Result<u64, RegistryError> {
        let reader = self.reader.lock();
        let mut count = reader.prepare_cached(
            "SELECT count(*) FROM runs WHERE stop IS NULL AND (visits > 0 OR record_state = 'running')",
        )?;
        let count: i64 = count.query_row([], |row| row.get(0))?;
        Ok(count.unsigned_abs())
    }
}

/// Ends the open allocations of a job that is over. Their node is silent, or the cgroup still exists.
fn end_open(allocations: &mut [Allocation], stop: Timestamp) {
    for open in allocations.iter_mut().filter(|allocation| allocation.stop.is_none()) {
        open.stop = Some(stop.max(open.start));
    }
}

fn keys(db: &Connection, clause: &str, value: &Value) -> Result<Vec<JobKey>, RegistryError> {
    let sql = format!("SELECT DISTINCT cluster, id FROM runs WHERE {clause} ORDER BY cluster, id");
    let mut find = db.prepare_cached(&sql)?;
    let mut rows = find.query([value])?;
    let mut keys = Vec::new();
    while let Some(row) = rows.next()? {
        keys.push(key(row.get(0)?, row.get(1)?)?);
    }
    Ok(keys)
}

/// Keeps only the jobs whose record has this notation, if any has it. A cluster in the name limits the
/// records to that cluster.
fn prefer_recorded(
    db: &Connection,
    name: &JobName,
    found: &mut Vec<JobKey>,
) -> rusqlite::Result<()> {
    if let Some(cluster) = &name.cluster {
        found.retain(|key| key.cluster == *cluster);
    }
    let mut find = db.prepare_cached(
        "SELECT 1 FROM records WHERE cluster = ?1 AND id = ?2 AND display_id = ?3",
    )?;
    let mut recorded = Vec::new();
    for key in found.iter() {
        if find.exists(params![key.cluster.as_str(), key.id.get(), &*name.display_id])? {
            recorded.push(key.clone());
        }
    }
    if !recorded.is_empty() {
        *found = recorded;
    }
    Ok(())
}

/// Tests whether a name's ID is the ID of an array or heterogeneous job with a part that is visible to
/// the reader.
fn is_whole(db: &Connection, name: &JobName, reader: Reader) -> rusqlite::Result<bool> {
    let Some(id) = name.id() else { return Ok(false) };
    let mut clauses = Clauses::default();
    clauses.and("o.part_of = ?", Value::Integer(id.get()));
    if let Some(cluster) = &name.cluster {
        clauses.and("o.cluster = ?", Value::Text(cluster.to_string()));
    }
    job_access::narrow(&mut clauses, reader, AccessLevel::Listed);
    let sql = format!(
        "SELECT 1 FROM records o INDEXED BY records_part_of JOIN runs r ON r.record = o.record{} LIMIT 1",
        clauses.text
    );
    db.prepare_cached(&sql)?.exists(params_from_iter(clauses.values))
}

pub(crate) fn job(row: &Row<'_>) -> Result<Job, RegistryError> {
    let time = |at: usize| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(at)?.map(Timestamp));
    let (seen, recorded): (bool, Option<String>) = (row.get(2)?, row.get(3)?);
    let recorded = recorded.map(|word| state(&word)).transpose()?;
    let start = row.get::<_, bool>(6)?.then_some(()).and(time(7)?);
    let (stop, mut facts) = (time(8)?, facts(row, 11)?);
    facts.user = facts.user.or_else(|| facts.uid.map(|uid| uid.to_string().into()));
    let failed = facts.exit_code.unwrap_or(0) != 0 || recorded == Some(JobState::Failed);
    // The same rule as `list::STATE`.
    let state = match (recorded, stop) {
        (Some(recorded), _) if !seen => recorded,
        (_, None) => JobState::Running,
        (_, Some(_)) if failed => JobState::Failed,
        _ => JobState::Ended,
    };
    Ok(Job {
        key: key(row.get(4)?, row.get(5)?)?,
        display_id: row.get(9)?,
        state,
        submit: time(10)?,
        start,
        stop,
        facts,
    })
}
