//! Allocations of jobs: devices and times.
//!
//! Node reports come first. For devices without an agent, such as power meters, the record of the run
//! states the allocation. Queries read the record each time, so that late corrections apply to all
//! earlier samples.

use crate::common::sql_parts::{Clauses, device, key};
use crate::people::job_access;
use crate::presence::granted::Owner;
use crate::{AccessLevel, Reader, Registry, RegistryError};
use model::{Allocation, ClusterId, DeviceId, JobKey, Timestamp};
use rusqlite::types::Value;
use rusqlite::{Connection, Row, params_from_iter};

/// Selects devices of a record on which no agent observed the run.
const UNSEEN: &str = "t.start IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM visits v WHERE v.run = r.run AND v.device = t.device)";

/// End of an allocation that only the record states. If the record has no end, the end of the run in
/// the nodes' reports counts.
pub(crate) const STOP: &str = "coalesce(t.stop, max(r.stop, t.start))";

/// Selects allocations. The default selects all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// The reader. Selects jobs with full access only.
    pub reader: Reader,
    /// Selects this job.
    pub job: Option<JobKey>,
    /// Selects jobs of this user.
    pub uid: Option<u32>,
    /// Selects this device.
    pub device: Option<DeviceId>,
    /// Selects allocations that had not ended before.
    pub from: Option<Timestamp>,
    /// Selects allocations that had started by then.
    pub to: Option<Timestamp>,
    /// Whether to read the run's share of each device too.
    pub shares: bool,
}

/// The share of a device that a run has, if its record states it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Number of cores.
    pub cpus: Option<u32>,
    /// Number of accelerators.
    pub gpus: Option<u32>,
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
}

/// An allocation of a device to a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interval {
    /// The job.
    pub key: JobKey,
    /// The user ID.
    pub uid: Option<u32>,
    /// Start of the run, which identifies it.
    pub run_start: Timestamp,
    /// The device.
    pub device: DeviceId,
    /// Start of the allocation.
    pub start: Timestamp,
    /// End of the allocation; `None` while it lasts.
    pub stop: Option<Timestamp>,
    /// The share of the device; empty unless the window requests it.
    pub share: Share,
}

impl Registry {
    /// Returns the allocations of a run, sorted by device and start.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn allocations(
        &self,
        key: &JobKey,
        run_start: Timestamp,
    ) -> Result<Vec<Allocation>, RegistryError> {
        let reader = self.reader.lock();
        let mut find = reader.prepare_cached(
            "SELECT run FROM runs WHERE cluster = ?1 AND id = ?2 AND start = ?3 AND started = 1",
        )?;
        let place = (key.cluster.as_str(), key.id.get(), run_start.0);
        let mut rows = find.query(place)?;
        let Some(row) = rows.next()? else { return Ok(Vec::new()) };
        allocation_sql(&reader, key, row.get(0)?)
    }

    /// Returns the allocations within a window, sorted by device, start and job.
    ///
    /// # Errors
    /// SQLite fails, or the number exceeds the registry's row limit.
    pub fn intervals(&self, window: &Window) -> Result<Vec<Interval>, RegistryError> {
        let (limit, mut intervals) = (self.limits.rows_max, Vec::new());
        // Those of one job are few.
        let db = if window.job.is_some() { &self.quick_reader } else { &self.reader };
        let db = db.lock();
        each_allocation(&db, (window, self.owner_of(&db, window)?), limit, |allocation| {
            intervals.push(allocation);
            Ok(())
        })?;
        if intervals.len() > limit { Err(RegistryError::TooMany(limit)) } else { Ok(intervals) }
    }

    /// Returns those of these devices that jobs of schedulers have or had. Jobs of `jobmeter run` do not count,
    /// because their users may name any device.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn allocated<'a>(
        &self,
        devices: impl IntoIterator<Item = &'a DeviceId>,
    ) -> Result<Vec<DeviceId>, RegistryError> {
        let reader = self.reader.lock();
        let mut find = reader.prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM visits v JOIN runs r ON r.run = v.run
                            WHERE v.device = ?1 AND r.cluster <> ?2)
                 OR EXISTS (SELECT 1 FROM shares WHERE device = ?1)",
        )?;
        let mut allocated = Vec::new();
        for device in devices {
            let parameters = (device.as_str(), ClusterId::LOCAL);
            if find.query_row(parameters, |row| row.get(0))? {
                allocated.push(device.clone());
            }
        }
        Ok(allocated)
    }
}

impl Registry {
    /// Returns the owner whose jobs the window is limited to, if any.
    pub(crate) fn owner_of(
        &self,
        db: &Connection,
        window: &Window,
    ) -> rusqlite::Result<Option<Owner>> {
        let uid = window.reader.uid().or(window.uid);
        uid.map(|uid| Owner::new(self, db, uid)).transpose()
    }
}

/// Visits the allocations within a window, sorted by device, start and job. If there are more than `limit`, visits any
/// `limit` + 1 of them.
pub(crate) fn each_allocation(
    db: &Connection,
    (window, owner): (&Window, Option<Owner>),
    limit: usize,
    mut show: impl FnMut(Interval) -> Result<(), RegistryError>,
) -> Result<(), RegistryError> {
    let owner = owner.as_ref();
    let (seen, unseen) = (within(window, &VISITS, owner), within(window, &SHARES, owner));
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let (of_seen, of_unseen) = if window.shares {
        ("s.cpus, s.gpus, s.memory_bytes", "t.cpus, t.gpus, t.memory_bytes")
    } else {
        ("NULL, NULL, NULL", "NULL, NULL, NULL")
    };
    // The search stops at the limit: everyone may read allocations of all jobs, if the settings permit it.
    let sql = format!(
        "SELECT * FROM (
             SELECT r.cluster, r.id, r.uid, r.start, t.device, t.start, t.stop, {of_seen}{}
             UNION ALL
             SELECT r.cluster, r.id, r.uid, r.start, t.device, t.start, {STOP}, {of_unseen}{} AND {UNSEEN}
             LIMIT {})
         ORDER BY 5, 6, 1, 2",
        seen.text,
        unseen.text,
        limit.saturating_add(1)
    );
    let mut find = db.prepare_cached(&sql)?;
    let mut rows = find.query(params_from_iter(seen.values.into_iter().chain(unseen.values)))?;
    while let Some(row) = rows.next()? {
        show(interval(row)?)?;
    }
    Ok(())
}

/// The SQL parts for a table `t` of allocations.
struct AllocationSql {
    name: &'static str,
    /// Join condition to the run, and how to find it.
    of_run: &'static str,
    runs: &'static str,
    by_device: &'static str,
    by_time: &'static str,
    /// Expression for the end of an allocation.
    stop: &'static str,
    /// Join that adds the run's share of the device as `s`.
    share: &'static str,
}

const VISITS: AllocationSql = AllocationSql {
    name: "visits",
    of_run: "t.run = r.run",
    runs: "runs r",
    by_device: "visits_device",
    by_time: "visits_time",
    stop: "t.stop",
    share: " LEFT JOIN shares s ON s.record = r.record AND s.device = t.device",
};

const SHARES: AllocationSql = AllocationSql {
    name: "shares",
    of_run: "t.record = r.record",
    runs: "runs r INDEXED BY runs_record",
    by_device: "shares_device",
    by_time: "shares_time",
    stop: STOP,
    share: "",
};

/// Builds the `FROM` and `WHERE` clauses for a window. It starts from the job, the device, the runs of
/// the reader or user, or all allocations of that time.
fn within(window: &Window, sql: &AllocationSql, owner: Option<&Owner>) -> Clauses {
    let AllocationSql { name, of_run, runs, by_device, by_time, stop, share } = sql;
    let (from, to) = (window.from, window.to.map_or(i64::MAX, |to| to.0));
    let between = (from.map_or(i64::MIN, |from| from.0), to);
    let is_of_one = window.job.is_some() || window.device.is_some();
    let by_run = !is_of_one && (!window.reader.sees_every_job() || window.uid.is_some());
    let mut clauses = Clauses::default();
    let mut values = Vec::new();
    if by_run && window.reader.sees_every_job() {
        window.uid.iter().for_each(|uid| job_access::begin_with_own(&mut clauses, *uid, between));
    } else if by_run {
        job_access::begin(&mut clauses, window.reader, between);
    } else {
        job_access::narrow(&mut clauses, window.reader, AccessLevel::All);
    }
    let tables = if window.job.is_some() {
        format!("runs r INDEXED BY runs_key CROSS JOIN {name} t ON {of_run}")
    } else if by_run {
        // Look the runs up by row ID.
        format!("runs r NOT INDEXED CROSS JOIN {name} t ON {of_run}")
    } else {
        let (index, on) = match &window.device {
            Some(device) => {
                values.push(Value::Text(device.to_string()));
                (by_device, "t.device = ? AND ")
            }
            None => (by_time, ""),
        };
        values.extend([Value::Integer(between.0), Value::Integer(to)]);
        format!(
            "spans c CROSS JOIN {name} t INDEXED BY {index}
             ON {on}t.class = c.class AND t.start BETWEEN ? - c.reach AND ?
             CROSS JOIN {runs} ON {of_run}"
        )
    };
    if let Some(key) = &window.job {
        clauses.and("r.cluster = ?", Value::Text(key.cluster.to_string()));
        clauses.and("r.id = ?", Value::Integer(key.id.get()));
    }
    if let Some(uid) = window.uid {
        clauses.and("r.uid = ?", Value::Integer(uid.into()));
    }
    if let Some(owner) = owner {
        let (clause, values) = owner.narrow(*name == VISITS.name);
        clauses.and_all(&clause, values);
    }
    if let Some(device) = &window.device {
        clauses.and("t.device = ?", Value::Text(device.to_string()));
    }
    if let Some(from) = from {
        // The first condition needs no look-up of the run.
        clauses.and("(t.stop IS NULL OR t.stop >= ?)", Value::Integer(from.0));
        clauses.and(&format!("({stop} IS NULL OR {stop} >= ?)"), Value::Integer(from.0));
    }
    // This condition is always present, so that callers can append more with `AND`.
    clauses.and("t.start <= ?", Value::Integer(to));
    values.extend(clauses.values);
    let share = if window.shares { *share } else { "" };
    Clauses { text: format!(" FROM {tables}{share}{}", clauses.text), values }
}

/// Returns the allocations of a run, sorted by device and start.
pub(crate) fn allocation_sql(
    db: &Connection,
    key: &JobKey,
    run: i64,
) -> Result<Vec<Allocation>, RegistryError> {
    let sql = format!(
        "SELECT device, start, stop FROM visits WHERE run = ?1
         UNION ALL
         SELECT t.device, t.start, {STOP} FROM runs r JOIN shares t ON t.record = r.record
         WHERE r.run = ?1 AND {UNSEEN}
         ORDER BY 1, 2"
    );
    let mut find = db.prepare_cached(&sql)?;
    let mut rows = find.query([run])?;
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

fn interval(row: &Row<'_>) -> Result<Interval, RegistryError> {
    Ok(Interval {
        key: key(row.get(0)?, row.get(1)?)?,
        uid: row.get(2)?,
        run_start: Timestamp(row.get(3)?),
        device: device(row.get(4)?)?,
        start: Timestamp(row.get(5)?),
        stop: row.get::<_, Option<i64>>(6)?.map(Timestamp),
        share: Share {
            cpus: row.get(7)?,
            gpus: row.get(8)?,
            memory_bytes: row.get::<_, Option<i64>>(9)?.map(i64::unsigned_abs),
        },
    })
}
