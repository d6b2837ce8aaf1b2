//! Questions to the registry.

use crate::registry::lock;
use crate::{JobName, Registry, RegistryError};
use model::{Allocation, ClusterId, DeviceId, Job, JobId, JobKey, JobState, Timestamp};
use rusqlite::types::Value;
use rusqlite::{Connection, Row, params, params_from_iter};

const COLUMNS: &str = "r.run, r.cluster, r.id, r.start, r.stop, r.spelling, r.user, r.uid,
    r.account, r.name, r.exit_code";

/// Which jobs a list shows. The default shows all, the newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// In this state.
    pub state: Option<JobState>,
    /// Of this cluster.
    pub cluster: Option<ClusterId>,
    /// Of the user of this login name, or number.
    pub user: Option<String>,
    /// Of the user of this number.
    pub uid: Option<u32>,
    /// That are or were on this device.
    pub device: Option<DeviceId>,
    /// That had not ended before.
    pub from: Option<Timestamp>,
    /// That had started by then.
    pub to: Option<Timestamp>,
    /// So many at most; `None`: as many as the registry's limit.
    pub limit: Option<usize>,
}

/// A run of a job, with the devices it has or had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The run.
    pub job: Job,
    /// Its devices, in order.
    pub devices: Vec<DeviceId>,
}

/// Which stays on devices are asked for. The default asks for all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Only of this job.
    pub job: Option<JobKey>,
    /// Only of jobs of this user.
    pub uid: Option<u32>,
    /// Only on this device.
    pub device: Option<DeviceId>,
    /// That had not ended before.
    pub from: Option<Timestamp>,
    /// That had started by then.
    pub to: Option<Timestamp>,
}

/// A job's stay on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interval {
    /// Which job.
    pub key: JobKey,
    /// The user's number.
    pub uid: Option<u32>,
    /// Which of its runs, by start.
    pub run_start: Timestamp,
    /// Where.
    pub device: DeviceId,
    /// From when.
    pub start: Timestamp,
    /// Until when; `None` while it lasts.
    pub stop: Option<Timestamp>,
}

impl Registry {
    /// The job that a person means. A number that several clusters have is the scheduler's before it is
    /// "local"; several schedulers' is refused.
    ///
    /// # Errors
    /// No job has the name, or jobs of several clusters have; or SQLite fails.
    pub fn resolve(&self, name: &JobName) -> Result<JobKey, RegistryError> {
        let reader = lock(&self.reader);
        let mut found = match name.id() {
            Some(id) => keys(&reader, "id = ?1", &Value::Integer(id.get()))?,
            None => Vec::new(),
        };
        if found.is_empty() {
            found = keys(&reader, "spelling = ?1", &Value::Text(name.spelling.to_string()))?;
        }
        if let Some(cluster) = &name.cluster {
            found.retain(|key| key.cluster == *cluster);
        } else if found.iter().any(|key| key.cluster != ClusterId::local()) {
            found.retain(|key| key.cluster != ClusterId::local());
        }
        match found.as_slice() {
            [] => Err(RegistryError::Unknown(name.to_string())),
            [key] => Ok(key.clone()),
            several => Err(RegistryError::Ambiguous {
                spelling: name.spelling.to_string(),
                clusters: several.iter().map(|key| key.cluster.clone()).collect(),
            }),
        }
    }

    /// The newest run of a job.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn job(&self, key: &JobKey) -> Result<Option<Job>, RegistryError> {
        Ok(self.runs(key)?.pop())
    }

    /// The number of the user whose job it is, where it is known.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn owner(&self, key: &JobKey) -> Result<Option<u32>, RegistryError> {
        let reader = lock(&self.reader);
        let mut find = reader.prepare_cached(
            "SELECT uid FROM runs WHERE cluster = ?1 AND id = ?2 ORDER BY start DESC LIMIT 1",
        )?;
        let mut rows = find.query(params![key.cluster.as_str(), key.id.get()])?;
        Ok(rows.next()?.map(|row| row.get(0)).transpose()?.flatten())
    }

    /// Every run of a job, the oldest first.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn runs(&self, key: &JobKey) -> Result<Vec<Job>, RegistryError> {
        let reader = lock(&self.reader);
        let sql = format!(
            "SELECT {COLUMNS} FROM runs r WHERE r.cluster = ?1 AND r.id = ?2 ORDER BY r.start"
        );
        let mut find = reader.prepare_cached(&sql)?;
        let mut rows = find.query(params![key.cluster.as_str(), key.id.get()])?;
        let mut jobs = Vec::new();
        while let Some(row) = rows.next()? {
            jobs.push(job(row)?);
        }
        Ok(jobs)
    }

    /// Where a run of a job was, by device and start.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn allocations(
        &self,
        key: &JobKey,
        run_start: Timestamp,
    ) -> Result<Vec<Allocation>, RegistryError> {
        let reader = lock(&self.reader);
        let mut find = reader.prepare_cached(
            "SELECT v.device, v.start, v.stop FROM runs r JOIN visits v ON v.run = r.run
             WHERE r.cluster = ?1 AND r.id = ?2 AND r.start = ?3 ORDER BY v.device, v.start",
        )?;
        let mut rows = find.query(params![key.cluster.as_str(), key.id.get(), run_start.0])?;
        let mut allocations = Vec::new();
        while let Some(row) = rows.next()? {
            allocations.push(Allocation {
                job: key.clone(),
                device: device(row.get(0)?)?,
                start: Timestamp(row.get(1)?),
                stop: row.get::<_, Option<i64>>(2)?.map(Timestamp),
            });
        }
        Ok(allocations)
    }

    /// Jobs that pass the filter, the newest first.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn list(&self, filter: &Filter) -> Result<Vec<Listed>, RegistryError> {
        let reader = lock(&self.reader);
        let (clauses, values) = clauses(filter);
        let limit = filter.limit.unwrap_or(usize::MAX).min(self.limits.rows_max);
        let sql = format!(
            "SELECT {COLUMNS} FROM runs r{clauses} ORDER BY r.start DESC, r.cluster, r.id LIMIT {limit}"
        );
        let mut find = reader.prepare_cached(&sql)?;
        let mut rows = find.query(params_from_iter(values))?;
        let mut listed = Vec::new();
        while let Some(row) = rows.next()? {
            let devices = devices(&reader, row.get(0)?)?;
            listed.push(Listed { job: job(row)?, devices });
        }
        Ok(listed)
    }

    /// The runs that pass a filter, the newest first: all of them, whatever the filter's limit.
    ///
    /// # Errors
    /// SQLite fails, or there are more than the registry's limit of rows.
    pub fn every_run(&self, filter: &Filter) -> Result<Vec<Job>, RegistryError> {
        let reader = lock(&self.reader);
        let (clauses, values) = clauses(filter);
        let limit = self.limits.rows_max;
        let sql = format!(
            "SELECT {COLUMNS} FROM runs r{clauses} ORDER BY r.start DESC, r.cluster, r.id LIMIT {}",
            limit.saturating_add(1)
        );
        let mut find = reader.prepare_cached(&sql)?;
        let mut rows = find.query(params_from_iter(values))?;
        let mut jobs = Vec::new();
        while let Some(row) = rows.next()? {
            jobs.push(job(row)?);
        }
        if jobs.len() > limit { Err(RegistryError::TooMany(limit)) } else { Ok(jobs) }
    }

    /// The jobs of a number, of whatever cluster, in order.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn keys_of(&self, id: JobId) -> Result<Vec<JobKey>, RegistryError> {
        keys(&lock(&self.reader), "id = ?1", &Value::Integer(id.get()))
    }

    /// How many jobs run now.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn running(&self) -> Result<u64, RegistryError> {
        let reader = lock(&self.reader);
        let mut count = reader.prepare_cached("SELECT count(*) FROM runs WHERE stop IS NULL")?;
        let count: i64 = count.query_row([], |row| row.get(0))?;
        Ok(count.unsigned_abs())
    }

    /// The stays of jobs on devices within a window, ordered by device, start and job.
    ///
    /// # Errors
    /// SQLite fails, or there are more than the registry's limit of rows.
    pub fn intervals(&self, window: &Window) -> Result<Vec<Interval>, RegistryError> {
        let reader = lock(&self.reader);
        let mut clauses = Clauses::default();
        if let Some(key) = &window.job {
            clauses.and("r.cluster = ?", Value::Text(key.cluster.to_string()));
            clauses.and("r.id = ?", Value::Integer(key.id.get()));
        }
        if let Some(uid) = window.uid {
            clauses.and("r.uid = ?", Value::Integer(uid.into()));
        }
        if let Some(device) = &window.device {
            clauses.and("v.device = ?", Value::Text(device.to_string()));
        }
        if let Some(from) = window.from {
            clauses.and("(v.stop IS NULL OR v.stop >= ?)", Value::Integer(from.0));
        }
        if let Some(to) = window.to {
            clauses.and("v.start <= ?", Value::Integer(to.0));
        }
        let limit = self.limits.rows_max;
        let sql = format!(
            "SELECT r.cluster, r.id, r.uid, r.start, v.device, v.start, v.stop
             FROM visits v JOIN runs r ON r.run = v.run{}
             ORDER BY v.device, v.start, r.cluster, r.id LIMIT {}",
            clauses.text,
            limit.saturating_add(1)
        );
        let mut find = reader.prepare_cached(&sql)?;
        let mut rows = find.query(params_from_iter(clauses.values))?;
        let mut intervals = Vec::new();
        while let Some(row) = rows.next()? {
            intervals.push(interval(row)?);
        }
        if intervals.len() > limit {
            return Err(RegistryError::TooMany(limit));
        }
        Ok(intervals)
    }
}

/// A `WHERE` clause whose values are bound.
#[derive(Default)]
struct Clauses {
    text: String,
    values: Vec<Value>,
}

impl Clauses {
    fn and(&mut self, clause: &str, value: Value) {
        self.text.push_str(if self.text.is_empty() { " WHERE " } else { " AND " });
        self.text.push_str(clause);
        self.values.push(value);
    }
}

fn clauses(filter: &Filter) -> (String, Vec<Value>) {
    let mut clauses = Clauses::default();
    if let Some(state) = filter.state {
        // One value is bound in each clause; these compare it with what the state is worked out from.
        let clause = "CASE WHEN r.stop IS NULL THEN 'running'
            WHEN coalesce(r.exit_code, 0) <> 0 THEN 'failed' ELSE 'ended' END = ?";
        if state == JobState::Running {
            clauses.and("r.stop IS ?", Value::Null);
        } else {
            clauses.and(clause, Value::Text(state.word().to_owned()));
        }
    }
    if let Some(cluster) = &filter.cluster {
        clauses.and("r.cluster = ?", Value::Text(cluster.to_string()));
    }
    if let Some(user) = &filter.user {
        clauses.and("? IN (r.user, CAST(r.uid AS TEXT))", Value::Text(user.clone()));
    }
    if let Some(uid) = filter.uid {
        clauses.and("r.uid = ?", Value::Integer(uid.into()));
    }
    if let Some(device) = &filter.device {
        let clause = "r.run IN (SELECT run FROM visits WHERE device = ?)";
        clauses.and(clause, Value::Text(device.to_string()));
    }
    if let Some(from) = filter.from {
        clauses.and("(r.stop IS NULL OR r.stop >= ?)", Value::Integer(from.0));
    }
    if let Some(to) = filter.to {
        clauses.and("r.start <= ?", Value::Integer(to.0));
    }
    (clauses.text, clauses.values)
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

fn devices(db: &Connection, run: i64) -> Result<Vec<DeviceId>, RegistryError> {
    let mut find =
        db.prepare_cached("SELECT DISTINCT device FROM visits WHERE run = ?1 ORDER BY device")?;
    let mut rows = find.query([run])?;
    let mut devices = Vec::new();
    while let Some(row) = rows.next()? {
        devices.push(device(row.get(0)?)?);
    }
    Ok(devices)
}

fn job(row: &Row<'_>) -> Result<Job, RegistryError> {
    let stop = row.get::<_, Option<i64>>(4)?.map(Timestamp);
    let uid: Option<u32> = row.get(7)?;
    let user = row.get::<_, Option<Box<str>>>(6)?;
    let exit_code: Option<i32> = row.get(10)?;
    let state = match (stop, exit_code) {
        (None, _) => JobState::Running,
        (Some(_), None | Some(0)) => JobState::Ended,
        (Some(_), Some(_)) => JobState::Failed,
    };
    Ok(Job {
        key: key(row.get(1)?, row.get(2)?)?,
        spelling: row.get(5)?,
        user: user.or_else(|| uid.map(|uid| uid.to_string().into())),
        uid,
        account: row.get(8)?,
        name: row.get(9)?,
        state,
        start: Timestamp(row.get(3)?),
        stop,
        exit_code,
    })
}

fn interval(row: &Row<'_>) -> Result<Interval, RegistryError> {
    Ok(Interval {
        key: key(row.get(0)?, row.get(1)?)?,
        uid: row.get(2)?,
        run_start: Timestamp(row.get(3)?),
        device: device(row.get(4)?)?,
        start: Timestamp(row.get(5)?),
        stop: row.get::<_, Option<i64>>(6)?.map(Timestamp),
    })
}

fn key(cluster: String, id: i64) -> Result<JobKey, RegistryError> {
    let Some(number) = JobId::new(id) else { return Err(RegistryError::Damaged(id.to_string())) };
    let cluster = ClusterId::new(&cluster).map_err(|_| RegistryError::Damaged(cluster))?;
    Ok(JobKey { cluster, id: number })
}

fn device(name: String) -> Result<DeviceId, RegistryError> {
    DeviceId::new(&name).map_err(|_| RegistryError::Damaged(name))
}
