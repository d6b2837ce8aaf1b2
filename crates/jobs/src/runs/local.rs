//! Local jobs, created by `jobmeter run`. The registry assigns their IDs.

use crate::common::registry::count;
use crate::presence::verified_presence;
use crate::runs::store_visits::stop_registered;
use crate::runs::visit_shares;
use crate::{Registry, RegistryError};
use model::{ClusterId, DeviceId, JobId, JobKey, Timestamp};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};

/// Maximum number of local jobs in a response to a device's agent.
const LISTED_MAX: i64 = 4096;

/// State word of a local job that ended because its heartbeats stopped.
pub const SILENT: &str = "NO SIGN OF LIFE";

/// A local job that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenLocal {
    /// The job.
    pub key: JobKey,
    /// Start of the job.
    pub start: Timestamp,
}

/// A new local job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// User ID of the owner. It is the caller's verified user ID, never a value from the request.
    pub uid: u32,
    /// The login name of the user ID, if it has one.
    pub user: Option<Box<str>>,
    /// The job name that the user chose.
    pub name: Option<Box<str>>,
    /// The device.
    pub device: DeviceId,
    /// Time of the start.
    pub start: Timestamp,
    /// Whether the registering caller verified the job's device: an administrator, or a process on the
    /// server's own machine. Otherwise verification follows when the agent there observes the job's
    /// cgroup.
    pub is_verified: bool,
}

impl Registry {
    /// Registers a local job with a new ID that no job had before. On disk when this returns.
    ///
    /// # Errors
    /// SQLite fails, the registry is full, or the user has too many open local jobs on the device.
    pub fn register_local(&self, job: &Registration) -> Result<JobKey, RegistryError> {
        let mut writer = self.writer.lock();
        let change = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
        visit_shares::check_user(&change, &self.limits, job.uid)?;
        check_open(&change, job, self.limits.open_local_max)?;
        let id = draw(&change)?;
        let user = job.user.clone().or_else(|| (self.users)().name(job.uid).map(Box::from));
        let run = change
            .prepare_cached(
                "INSERT INTO runs
                 (cluster, id, start, last_start, display_id, user, uid, name, registered)
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
        if job.is_verified {
            verified_presence::accept_as_verified(&change, run, job.start)?;
        }
        change.commit()?;
        Ok(JobKey { cluster: ClusterId::local(), id })
    }

    /// Returns the last number that a local job was given; 0: none was.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn last_local(&self) -> Result<i64, RegistryError> {
        let last = count(&self.quick_reader.lock(), "local")?;
        Ok(i64::try_from(last).unwrap_or(i64::MAX))
    }

    /// Gives later local jobs greater numbers than this one. Returns whether it changed anything.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn pass_local(&self, id: JobId) -> Result<bool, RegistryError> {
        let pass = "UPDATE counts SET value = ?1 WHERE name = 'local' AND value < ?1";
        Ok(self.writer.lock().execute(pass, [id.get()])? > 0)
    }

    /// Ends a local job with its exit code. An end that a node reported earlier stays, as does the first
    /// exit code. Returns whether anything changed.
    ///
    /// # Errors
    /// SQLite fails, or no local job with that ID was registered.
    pub fn end_local(
        &self,
        id: JobId,
        stop: Timestamp,
        exit_code: Option<i32>,
    ) -> Result<bool, RegistryError> {
        let mut writer = self.writer.lock();
        let change = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let found: Option<(i64, i64, Option<i64>)> = change
            .prepare_cached(
                // An end from missing heartbeats is a guess and gives way to a reported one.
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

    /// Ends a local job whose heartbeats stopped, at its last heartbeat, and marks it ([`SILENT`]). Returns
    /// false if it had already ended.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn end_silent(&self, id: JobId, last: Timestamp) -> Result<bool, RegistryError> {
        let mut writer = self.writer.lock();
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

    /// Returns open local jobs that began before an instant: at most 4096, oldest first.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn open_local(&self, before: Timestamp) -> Result<Vec<OpenLocal>, RegistryError> {
        let reader = self.reader.lock();
        let mut find = reader.prepare_cached(
            "SELECT id, start FROM runs INDEXED BY runs_open
             WHERE stop IS NULL AND start < ?1 AND registered = 1 ORDER BY start LIMIT ?2",
        )?;
        let mut rows = find.query(params![before.0, LISTED_MAX])?;
        let mut jobs = Vec::new();
        while let Some(row) = rows.next()? {
            let id: i64 = row.get(0)?;
            let id = JobId::new(id).ok_or_else(|| RegistryError::Damaged(id.to_string()))?;
            let key = JobKey { cluster: ClusterId::local(), id };
            jobs.push(OpenLocal { key, start: Timestamp(row.get(1)?) });
        }
        Ok(jobs)
    }

    /// Returns the open local jobs registered for a device, each with its user ID. The server sends them to
    /// the agent there. The limit is 4096 jobs. Each user contributes their latest jobs, in equal shares.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn local_jobs_of(&self, device: &DeviceId) -> Result<Vec<(JobId, u32)>, RegistryError> {
        let reader = self.quick_reader.lock();
        let mut find = reader.prepare_cached(
            "SELECT id, uid FROM (
                 SELECT r.id, r.uid, row_number() OVER (PARTITION BY r.uid ORDER BY r.id DESC) AS place
                 FROM visits v INDEXED BY visits_open CROSS JOIN runs r ON r.run = v.run
                 WHERE v.device = ?1 AND v.stop IS NULL AND r.registered = 1)
             ORDER BY place, id DESC LIMIT ?2",
        )?;
        let mut rows = find.query(params![device.as_str(), LISTED_MAX])?;
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
    /// Returns the jobs on a device without a reported end, each with the creation time of its cgroup. The
    /// server asks the agent there whether they still exist. Registered local jobs are excluded, since they
    /// may have no cgroup. The limit is 4096 jobs, oldest first.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn open_jobs_of(
        &self,
        device: &DeviceId,
    ) -> Result<Vec<(JobKey, Timestamp)>, RegistryError> {
        let reader = self.quick_reader.lock();
        let mut find = reader.prepare_cached(
            "SELECT r.cluster, r.id, v.start FROM visits v INDEXED BY visits_open CROSS JOIN runs r ON r.run = v.run
             WHERE v.device = ?1 AND v.stop IS NULL AND r.registered = 0
             ORDER BY v.start LIMIT ?2",
        )?;
        let mut rows = find.query(params![device.as_str(), LISTED_MAX])?;
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

/// Checks that the user may have one more open registered job on the device.
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

/// Returns the next free local job ID. It skips IDs that a node reported without a registration.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limits, Users, Window};
    use std::sync::mpsc::sync_channel;
    use std::time::Duration;

    #[test]
    fn a_long_query_delays_no_acknowledgement_and_no_registration() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("registry.sqlite");
        let registry = Registry::open(&path, Limits::default(), Users::default).unwrap();
        let (done, waiting) = sync_channel(4);
        std::thread::scope(|scope| {
            // A query holds this connection until it ends.
            let query = registry.reader.lock();
            scope.spawn(|| {
                let device = DeviceId::new("n1").unwrap();
                registry.local_jobs_of(&device).unwrap();
                registry.open_jobs_of(&device).unwrap();
                registry.local_since(1000, Timestamp(0), 1).unwrap();
                let job = JobKey { cluster: ClusterId::local(), id: JobId::new(1).unwrap() };
                registry.intervals(&Window { job: Some(job), ..Window::default() }).unwrap();
                done.send(()).unwrap();
            });
            let answered = waiting.recv_timeout(Duration::from_secs(60));
            drop(query);
            answered.unwrap();
        });
    }
}
