//! Which jobs changed since they were copied to another database, and what is copied of them.
//!
//! A step copies a bounded number of jobs: those that changed, or the next ones of a *walk* through all jobs. A copy
//! begins with a walk. The registry and the copy both store the number of the last step. If the numbers do not fit, one
//! of the two was replaced or restored, and the copy begins again.

use crate::common::sql_parts::key;
use crate::presence::allocations::allocation_sql;
use crate::queries::job_lookup::{job, select};
use crate::runs::oom_kills;
use crate::{Registry, RegistryError};
use model::{Allocation, Job, JobKey, Timestamp};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};

/// Most jobs of a step.
const JOBS_MAX: usize = 500;
/// After so many allocations a step ends with the present job.
const ALLOCATIONS_MAX: usize = 20_000;

/// The tables. `copied_jobs` has one row while there is a copy: the number of the last step, and the last job of the
/// walk.
pub(crate) const TABLES: &str = "
CREATE TABLE IF NOT EXISTS changed_jobs (
    cluster TEXT NOT NULL,
    id INTEGER NOT NULL,
    change INTEGER NOT NULL,
    PRIMARY KEY (cluster, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS changed_jobs_order ON changed_jobs (change);
CREATE TABLE IF NOT EXISTS copied_jobs (
    is_one INTEGER PRIMARY KEY CHECK (is_one = 1),
    step INTEGER NOT NULL,
    is_walking INTEGER NOT NULL,
    cluster TEXT NOT NULL DEFAULT '',
    id INTEGER NOT NULL DEFAULT 0
) STRICT;
";

/// Each with the table, the event, and the row that names the job. An inserted or deleted visit updates its run, and a
/// share is written with its record.
const TRIGGERS: [(&str, &str, &str); 10] = [
    ("runs", "INSERT", "SELECT NEW.cluster, NEW.id"),
    ("runs", "UPDATE", "SELECT NEW.cluster, NEW.id"),
    ("runs", "DELETE", "SELECT OLD.cluster, OLD.id"),
    ("visits", "UPDATE", "SELECT cluster, id FROM runs WHERE run = NEW.run"),
    ("records", "INSERT", "SELECT NEW.cluster, NEW.id"),
    ("records", "UPDATE", "SELECT NEW.cluster, NEW.id"),
    ("records", "DELETE", "SELECT OLD.cluster, OLD.id"),
    ("oom_kills", "INSERT", "SELECT NEW.cluster, NEW.id"),
    ("oom_kills", "UPDATE", "SELECT NEW.cluster, NEW.id"),
    ("oom_kills", "DELETE", "SELECT OLD.cluster, OLD.id"),
];

/// The jobs that a step replaces in the copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyScope {
    /// These.
    Keys(Vec<JobKey>),
    /// Those after a job, up to a job, in the order of cluster (by bytes) and ID; `None`: without this bound.
    Range(Option<JobKey>, Option<JobKey>),
}

/// A run of a job to copy.
#[derive(Clone, Debug, PartialEq)]
pub struct CopiedRun {
    /// The run.
    pub job: Job,
    /// Its allocations.
    pub allocations: Vec<Allocation>,
    /// Times at which the kernel killed its tasks for lack of memory.
    pub oom_kills: Vec<Timestamp>,
}

/// A step of the copy.
#[derive(Clone, Debug, PartialEq)]
pub struct CopyStep {
    /// Its number.
    pub number: i64,
    /// Whether a copy begins with it.
    pub is_first: bool,
    /// The jobs that it replaces.
    pub scope: CopyScope,
    /// All runs of these jobs. A job without runs is no longer in the registry.
    pub runs: Vec<CopiedRun>,
    changes: Vec<i64>,
}

impl CopyStep {
    /// Whether nothing is to be copied.
    pub fn is_empty(&self) -> bool {
        matches!(&self.scope, CopyScope::Keys(keys) if keys.is_empty())
    }
}

/// The stored state of the copy.
struct CopyState {
    step: i64,
    is_walking: bool,
    after: Option<JobKey>,
}

impl Registry {
    /// Records from now on which jobs change. Without a copy, one begins with the next step.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn record_changes(&self) -> Result<(), RegistryError> {
        let writer = self.writer.lock();
        for (table, event, of_job) in TRIGGERS {
            // Triggers of this connection alone: a server that copies nothing pays nothing.
            writer.execute_batch(&format!(
                "CREATE TEMP TRIGGER IF NOT EXISTS changed_{table}_{event} AFTER {event} ON main.{table} BEGIN
                     INSERT INTO changed_jobs
                         SELECT key.*, (SELECT coalesce(max(change), 0) + 1 FROM changed_jobs)
                         FROM ({of_job}) AS key WHERE true
                         ON CONFLICT (cluster, id) DO UPDATE SET change = excluded.change;
                 END"
            ))?;
        }
        writer.execute("INSERT OR IGNORE INTO copied_jobs VALUES (1, 0, 1, '', 0)", [])?;
        Ok(())
    }

    /// States that no copy follows the changes from now on.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn forget_copy(&self) -> Result<(), RegistryError> {
        let writer = self.writer.lock();
        Ok(writer.execute_batch("DELETE FROM changed_jobs; DELETE FROM copied_jobs")?)
    }

    /// The next step of the copy. It reads one state of the registry.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn copy_step(&self) -> Result<CopyStep, RegistryError> {
        let db = self.reader.lock();
        let db = db.unchecked_transaction()?;
        let state = copy_state(&db)?;
        let mut step = CopyStep {
            number: state.step.saturating_add(1),
            is_first: state.is_walking && state.after.is_none(),
            scope: CopyScope::Keys(Vec::new()),
            runs: Vec::new(),
            changes: Vec::new(),
        };
        let changed = if step.is_first { Vec::new() } else { changed(&db)? };
        if !changed.is_empty() {
            let (keys, changes): (Vec<_>, Vec<_>) = changed.into_iter().unzip();
            let keys = step.read(&db, keys)?;
            step.changes = changes.into_iter().take(keys.len()).collect();
            step.scope = CopyScope::Keys(keys);
        } else if state.is_walking {
            let keys = following(&db, state.after.as_ref())?;
            let found = keys.len();
            let keys = step.read(&db, keys)?;
            let is_end = found < JOBS_MAX && keys.len() == found;
            let last = keys.into_iter().next_back().filter(|_| !is_end);
            step.scope = CopyScope::Range(state.after, last);
        }
        Ok(step)
    }

    /// Records that a step is copied. Jobs that changed since it was read stay recorded as changed.
    ///
    /// # Errors
    /// SQLite fails. The same jobs are copied again.
    pub fn copied(&self, step: &CopyStep) -> Result<(), RegistryError> {
        let mut writer = self.writer.lock();
        let change = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
        match &step.scope {
            CopyScope::Keys(keys) => {
                let mut done = change.prepare_cached(
                    "DELETE FROM changed_jobs WHERE cluster = ?1 AND id = ?2 AND change = ?3",
                )?;
                for (key, number) in keys.iter().zip(&step.changes) {
                    done.execute(params![key.cluster.as_str(), key.id.get(), number])?;
                }
            }
            CopyScope::Range(_, last) => {
                let cluster = last.as_ref().map_or("", |last| last.cluster.as_str());
                let id = last.as_ref().map_or(0, |last| last.id.get());
                change.execute(
                    "UPDATE copied_jobs SET is_walking = ?1, cluster = ?2, id = ?3",
                    params![last.is_some(), cluster, id],
                )?;
            }
        }
        change.execute("UPDATE copied_jobs SET step = ?1", [step.number])?;
        Ok(change.commit()?)
    }

    /// Begins the copy again.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn restart_copy(&self) -> Result<(), RegistryError> {
        let writer = self.writer.lock();
        // A dump of the copy from before has an earlier step.
        let restart =
            "UPDATE copied_jobs SET step = step + 2, is_walking = 1, cluster = '', id = 0";
        writer.execute(restart, [])?;
        Ok(())
    }
}

impl CopyStep {
    /// Reads the runs of jobs up to the limit. Returns the jobs that it read.
    fn read(&mut self, db: &Connection, keys: Vec<JobKey>) -> Result<Vec<JobKey>, RegistryError> {
        let (mut read, mut allocations) = (Vec::with_capacity(keys.len()), 0);
        for key in keys {
            if allocations >= ALLOCATIONS_MAX {
                break;
            }
            let sql = select("WHERE r.cluster = ?1 AND r.id = ?2 ORDER BY r.start");
            let mut find = db.prepare_cached(&sql)?;
            let mut rows = find.query(params![key.cluster.as_str(), key.id.get()])?;
            while let Some(row) = rows.next()? {
                let of_run = allocation_sql(db, &key, row.get(0)?)?;
                allocations += of_run.len();
                let kills = oom_kills::of_run(db, &key, &of_run)?;
                let oom_kills = kills.into_iter().map(|killed| killed.kill.at).collect();
                self.runs.push(CopiedRun { job: job(row)?, allocations: of_run, oom_kills });
            }
            read.push(key);
        }
        Ok(read)
    }
}

fn copy_state(db: &Connection) -> Result<CopyState, RegistryError> {
    let find = "SELECT step, is_walking, cluster, id FROM copied_jobs";
    let found = db
        .query_row(find, [], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get::<_, String>(2)?, row.get(3)?))
        })
        .optional()?;
    let Some((step, is_walking, cluster, id)) = found else {
        return Ok(CopyState { step: 0, is_walking: true, after: None });
    };
    let after = if cluster.is_empty() { None } else { Some(key(cluster, id)?) };
    Ok(CopyState { step, is_walking, after })
}

/// The jobs that changed first, with the numbers of their changes.
fn changed(db: &Connection) -> Result<Vec<(JobKey, i64)>, RegistryError> {
    let sql =
        format!("SELECT cluster, id, change FROM changed_jobs ORDER BY change LIMIT {JOBS_MAX}");
    let mut find = db.prepare_cached(&sql)?;
    let mut rows = find.query([])?;
    let mut changed = Vec::new();
    while let Some(row) = rows.next()? {
        changed.push((key(row.get(0)?, row.get(1)?)?, row.get(2)?));
    }
    Ok(changed)
}

/// The jobs after a job.
fn following(db: &Connection, after: Option<&JobKey>) -> Result<Vec<JobKey>, RegistryError> {
    let sql = format!(
        "SELECT DISTINCT cluster, id FROM runs INDEXED BY runs_key WHERE (cluster, id) > (?1, ?2)
         ORDER BY cluster, id LIMIT {JOBS_MAX}"
    );
    let mut find = db.prepare_cached(&sql)?;
    let mut rows = find.query(after.map_or(("", 0), |key| (key.cluster.as_str(), key.id.get())))?;
    let mut keys = Vec::new();
    while let Some(row) = rows.next()? {
        keys.push(key(row.get(0)?, row.get(1)?)?);
    }
    Ok(keys)
}
