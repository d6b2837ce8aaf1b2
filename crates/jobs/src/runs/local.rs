//! Local jobs: those of `jobmeter run`, whose numbers are drawn here.

use crate::common::registry::lock;
use crate::presence::verified_presence;
use crate::runs::store_visits::{count, stop_registered};
use crate::{Registry, RegistryError};
use model::{ClusterId, DeviceId, JobId, JobKey, Timestamp};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};

/// Most local jobs told to a device.
const TOLD_MAX: i64 = 4096;

/// The state word of a local job that was ended with its last sign of life.
pub const SILENT: &str = "NO SIGN OF LIFE";

/// A local job that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenLocal {
    /// Which.
    pub key: JobKey,
    /// When it began.
    pub start: Timestamp,
}

/// A local job that begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Whose it is: the caller's number, never what the caller says it is.
    pub uid: u32,
    /// The login name of that number, where it has one.
    pub user: Option<Box<str>>,
    /// What the user calls it.
    pub name: Option<Box<str>>,
    /// Where it runs.
    pub device: DeviceId,
    /// When it starts.
    pub start: Timestamp,
    /// Whether it is there by more than its user's word; else that follows once the agent there saw its cgroup.
    pub is_proven: bool,
}

impl Registry {
    /// Gives a local job its number, which no job had before. On disk when this returns.
    ///
    /// # Errors
    /// SQLite fails, or the registry is full.
    pub fn register_local(&self, job: &Registration) -> Result<JobKey, RegistryError> {
        let mut writer = lock(&self.writer);
        let change = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if count(&change, "visits")? >= self.limits.visits_max {
            return Err(RegistryError::Full(self.limits.visits_max));
        }
        check_open(&change, job, self.limits.open_local_max)?;
        let id = draw(&change)?;
        let user = job.user.clone().or_else(|| (self.users)().name(job.uid).map(Box::from));
        let run = change
            .prepare_cached(
                "INSERT INTO runs
                 (cluster, id, start, last_start, spelling, user, uid, name, registered)
                 VALUES (?1, ?2, ?3, ?3, ?4, ?5, ?6, ?7, 1)",
            )?
            .insert(params![
                ClusterId::LOCAL,
                id.get(),
                job.start.0,
                id.to_string(),
                user,
                job.uid,
                job.name
            ])?;
        change
            .prepare_cached("INSERT INTO visits (run, device, start) VALUES (?1, ?2, ?3)")?
            .execute(params![run, job.device.as_str(), job.start.0])?;
        if job.is_proven {
            verified_presence::believe(&change, run, job.start)?;
        }
        change.commit()?;
        Ok(JobKey { cluster: ClusterId::local(), id })
    }

    /// Ends a local job, with what its command ended with. An end that a node told before stays; the
    /// exit code that came first stays. Says whether anything changed.
    ///
    /// # Errors
    /// SQLite fails, or no local job of that number was registered.
    pub fn end_local(
        &self,
        id: JobId,
        stop: Timestamp,
        exit_code: Option<i32>,
    ) -> Result<bool, RegistryError> {
        let mut writer = lock(&self.writer);
        let change = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let found: Option<(i64, i64, Option<i64>)> = change
            .prepare_cached(
                // An end without a sign of life is a guess, which gives way to a stated one.
                "SELECT run, start, CASE registered WHEN 1 THEN stop END FROM runs
                 WHERE cluster = ?1 AND id = ?2 AND registered >= 1",
            )?
            .query_row(params![ClusterId::LOCAL, id.get()], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?))
            })
            .optional()?;
        let Some((run, start, stopped)) = found else {
            let key = JobKey { cluster: ClusterId::local(), id };
            return Err(RegistryError::Unknown(key.to_string()));
        };
        if stopped.is_none() {
            stop_registered(&change, run, stop.0.max(start))?;
        }
        let coded = change
            .prepare_cached(
                "UPDATE runs SET exit_code = ?2
                 WHERE run = ?1 AND exit_code IS NULL AND ?2 IS NOT NULL",
            )?
            .execute(params![run, exit_code])?;
        change
            .prepare_cached("UPDATE runs SET registered = 1 WHERE run = ?1 AND registered = 2")?
            .execute(params![run])?;
        change.commit()?;
        Ok(stopped.is_none() || coded > 0)
    }

    /// Ends a local job that has no sign of life any more, with the last one, and marks it ([`SILENT`]). False:
    /// it had ended.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn end_silent(&self, id: JobId, last: Timestamp) -> Result<bool, RegistryError> {
        let mut writer = lock(&self.writer);
        let change = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let found: Option<(i64, i64)> = change
            .prepare_cached(
                "SELECT run, start FROM runs
                 WHERE cluster = ?1 AND id = ?2 AND registered = 1 AND stop IS NULL",
            )?
            .query_row(params![ClusterId::LOCAL, id.get()], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let Some((run, start)) = found else { return Ok(false) };
        stop_registered(&change, run, last.0.max(start))?;
        change
            .prepare_cached("UPDATE runs SET registered = 2 WHERE run = ?1")?
            .execute(params![run])?;
        change.commit()?;
        Ok(true)
    }

    /// Local jobs that have not ended and began before an instant: at most 4096, those that began first.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn open_local(&self, before: Timestamp) -> Result<Vec<OpenLocal>, RegistryError> {
        let reader = lock(&self.reader);
        let mut find = reader.prepare_cached(
            "SELECT id, start FROM runs INDEXED BY runs_open
             WHERE stop IS NULL AND start < ?1 AND registered = 1 ORDER BY start LIMIT ?2",
        )?;
        let mut rows = find.query(params![before.0, TOLD_MAX])?;
        let mut jobs = Vec::new();
        while let Some(row) = rows.next()? {
            let id: i64 = row.get(0)?;
            let id = JobId::new(id).ok_or_else(|| RegistryError::Damaged(id.to_string()))?;
            let key = JobKey { cluster: ClusterId::local(), id };
            jobs.push(OpenLocal { key, start: Timestamp(row.get(1)?) });
        }
        Ok(jobs)
    }

    /// The local jobs registered for a device that have not ended, with the user of each: what an agent
    /// there is told. At most 4096: of each user those that began last, as many of one as of another.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn local_jobs_of(&self, device: &DeviceId) -> Result<Vec<(JobId, u32)>, RegistryError> {
        let reader = lock(&self.reader);
        let mut find = reader.prepare_cached(
            "SELECT id, uid FROM (
                 SELECT r.id, r.uid, row_number() OVER (PARTITION BY r.uid ORDER BY r.id DESC) AS place
                 FROM visits v INDEXED BY visits_open CROSS JOIN runs r ON r.run = v.run
                 WHERE v.device = ?1 AND v.stop IS NULL AND r.registered = 1)
             ORDER BY place, id DESC LIMIT ?2",
        )?;
        let mut rows = find.query(params![device.as_str(), TOLD_MAX])?;
        let mut jobs = Vec::new();
        while let Some(row) = rows.next()? {
            let id: i64 = row.get(0)?;
            let id = JobId::new(id).ok_or_else(|| RegistryError::Damaged(id.to_string()))?;
            jobs.push((id, row.get(1)?));
        }
        jobs.sort_unstable();
        Ok(jobs)
    }
}

impl Registry {
    /// The jobs on a device that nobody said have ended, each with when its cgroup was made there, but for
    /// the registered local ones, which may have no cgroup: what an agent there is asked about. At most
    /// 4096, those that began first.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn open_jobs_of(
        &self,
        device: &DeviceId,
    ) -> Result<Vec<(JobKey, Timestamp)>, RegistryError> {
        let reader = lock(&self.reader);
        let mut find = reader.prepare_cached(
            "SELECT r.cluster, r.id, v.start FROM visits v INDEXED BY visits_open CROSS JOIN runs r ON r.run = v.run
             WHERE v.device = ?1 AND v.stop IS NULL AND r.registered = 0
             ORDER BY v.start LIMIT ?2",
        )?;
        let mut rows = find.query(params![device.as_str(), TOLD_MAX])?;
        let mut jobs = Vec::new();
        while let Some(row) = rows.next()? {
            let (cluster, id): (String, i64) = (row.get(0)?, row.get(1)?);
            let damaged = || RegistryError::Damaged(format!("{cluster}:{id}"));
            let key = JobKey {
                cluster: ClusterId::new(&cluster).map_err(|_| damaged())?,
                id: JobId::new(id).ok_or_else(damaged)?,
            };
            jobs.push((key, Timestamp(row.get(2)?)));
        }
        Ok(jobs)
    }
}

/// Checks that a user may have one more registered job on a device.
fn check_open(db: &Connection, job: &Registration, max: i64) -> Result<(), RegistryError> {
    let mut count = db.prepare_cached(
        "SELECT count(*) FROM visits v INDEXED BY visits_open CROSS JOIN runs r ON r.run = v.run
         WHERE v.device = ?1 AND v.stop IS NULL AND r.registered = 1 AND r.uid = ?2",
    )?;
    let open: i64 = count.query_row(params![job.device.as_str(), job.uid], |row| row.get(0))?;
    if open < max {
        return Ok(());
    }
    Err(RegistryError::OpenLocal { uid: job.uid, device: job.device.clone(), max })
}

/// The next number that no local job has, be it one that a node told of and nobody registered.
fn draw(db: &Connection) -> Result<JobId, RegistryError> {
    let last: i64 = db.query_row(
        "UPDATE counts SET value = value + 1 WHERE name = 'local' RETURNING value",
        [],
        |row| row.get(0),
    )?;
    let mut taken =
        db.prepare_cached("SELECT id FROM runs WHERE cluster = ?1 AND id >= ?2 ORDER BY id")?;
    let mut next = last;
    let mut rows = taken.query(params![ClusterId::LOCAL, last])?;
    while let Some(row) = rows.next()? {
        match row.get::<_, i64>(0)? {
            id if id > next => break,
            id => next = id.saturating_add(1),
        }
    }
    drop(rows);
    db.execute("UPDATE counts SET value = ?1 WHERE name = 'local'", [next])?;
    JobId::new(next).ok_or_else(|| RegistryError::Damaged(next.to_string()))
}
