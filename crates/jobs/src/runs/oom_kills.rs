//! Tasks of jobs that the kernel killed for lack of memory, as the agents of their nodes read it in the
//! kernel log.
//!
//! They are stored by job, device and instant. Queries assign them to a run by its allocations. The set
//! of cgroups that form a run may change, an instant does not.

use crate::{AccessLevel, Reader, Registry, RegistryError};
use model::{Allocation, DeviceId, Job, JobEvent, JobKey, OomKill, Timestamp};
use rusqlite::{Connection, params};
use std::collections::HashMap;

/// The table.
pub(crate) const TABLES: &str = "
CREATE TABLE oom_kills (
    cluster TEXT NOT NULL,
    id INTEGER NOT NULL,
    device TEXT NOT NULL,
    at INTEGER NOT NULL,
    pid INTEGER NOT NULL,
    uid INTEGER,
    task TEXT NOT NULL,
    task_bytes INTEGER,
    limit_bytes INTEGER,
    PRIMARY KEY (cluster, id, device, at, pid)
) STRICT, WITHOUT ROWID;
CREATE INDEX oom_kills_device ON oom_kills (device, at);
";

/// Maximum number of stored kills of a job on one device. `cgroup_oom_kills_total` counts all of them.
const KILLS_MAX: i64 = 256;
/// Maximum number of stored kills on one device; beyond it, its oldest are deleted. Otherwise one node could fill the
/// disk with kills of invented jobs.
const KILLS_ON_DEVICE_MAX: i64 = 16_384;
/// Maximum number of kills in a response, and of kills of a job ID that are read for it.
const ANSWER_MAX: usize = 1024;
const READ_MAX: i64 = 65_536;
/// Two kills of one process within this time are the same: 10 s. A restarted agent rereads the log, and
/// dates a kill by clocks that drift apart.
const SAME_US: i64 = 10 * Timestamp::SECOND;
/// How far outside an allocation its kills may be dated: 10 s. Cgroup times and registrations of local
/// jobs come from other clocks.
const SLACK_US: i64 = 10 * Timestamp::SECOND;

/// A kill with its device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceKill {
    /// The device.
    pub device: DeviceId,
    /// The killed task.
    pub kill: OomKill,
}

/// Stores the kills of an event. Returns whether one is new: then the caller must [`cut`] the device's at the end.
pub(crate) fn note(db: &Connection, event: &JobEvent) -> rusqlite::Result<bool> {
    let mut new = 0;
    for kill in &event.oom_kills {
        let bytes = |bytes: Option<u64>| bytes.and_then(|bytes| i64::try_from(bytes).ok());
        new += db
            .prepare_cached(
            "INSERT OR IGNORE INTO oom_kills
             SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9
             WHERE (SELECT count(*) FROM oom_kills WHERE cluster = ?1 AND id = ?2 AND device = ?3) < ?10
             AND NOT EXISTS (SELECT 1 FROM oom_kills WHERE cluster = ?1 AND id = ?2 AND device = ?3
                 AND at BETWEEN ?4 - ?11 AND ?4 + ?11 AND pid = ?5)",
        )?
        .execute(params![
            event.key.cluster.as_str(),
            event.key.id.get(),
            event.device.as_str(),
            kill.at.0,
            kill.pid,
            kill.uid,
            kill.task,
            bytes(kill.task_bytes),
            bytes(kill.limit_bytes),
            KILLS_MAX,
            SAME_US
        ])?;
    }
    Ok(new > 0)
}

/// Deletes the oldest kills of a device beyond the limit.
pub(crate) fn cut(db: &Connection, device: &DeviceId) -> rusqlite::Result<()> {
    db.prepare_cached(
        "DELETE FROM oom_kills WHERE (cluster, id, device, at, pid) IN
             (SELECT cluster, id, device, at, pid FROM oom_kills WHERE device = ?1
              ORDER BY at DESC LIMIT -1 OFFSET ?2)",
    )?
    .execute(params![device.as_str(), KILLS_ON_DEVICE_MAX])?;
    Ok(())
}

/// Returns the kills of a run within its allocations, sorted by device and time.
pub(crate) fn of_run(
    db: &Connection,
    key: &JobKey,
    allocations: &[Allocation],
) -> Result<Vec<DeviceKill>, RegistryError> {
    let mut find = db.prepare_cached(
        "SELECT device, at, pid, uid, task, task_bytes, limit_bytes FROM oom_kills
         WHERE cluster = ?1 AND id = ?2 ORDER BY device, at LIMIT ?3",
    )?;
    let mut of_device: HashMap<&DeviceId, Vec<&Allocation>> = HashMap::new();
    for visit_found in allocations {
        of_device.entry(&visit_found.device).or_default().push(visit_found);
    }
    let mut rows = find.query(params![key.cluster.as_str(), key.id.get(), READ_MAX])?;
    let mut found = Vec::new();
    // Kills of other runs of the ID, or of devices that are not in this run, displace none.
    while found.len() < ANSWER_MAX
        && let Some(row) = rows.next()?
    {
        let device: String = row.get(0)?;
        let device = DeviceId::new(&device).map_err(|_| RegistryError::Damaged(device))?;
        let at = Timestamp(row.get(1)?);
        let bytes = |bytes: Option<i64>| bytes.map(i64::unsigned_abs);
        let is_in = |visit_found: &&Allocation| {
            visit_found.start.plus(-SLACK_US) <= at
                && visit_found.stop.is_none_or(|stop| at <= stop.plus(SLACK_US))
        };
        if of_device.get(&device).is_some_and(|visits_found| visits_found.iter().any(is_in)) {
            let kill = OomKill {
                at,
                pid: row.get(2)?,
                uid: row.get(3)?,
                task: row.get(4)?,
                task_bytes: bytes(row.get(5)?),
                limit_bytes: bytes(row.get(6)?),
            };
            found.push(DeviceKill { device, kill });
        }
    }
    Ok(found)
}

/// Tests whether a job ID has killed tasks.
fn any(db: &Connection, key: &JobKey) -> rusqlite::Result<bool> {
    let mut find = db.prepare_cached("SELECT 1 FROM oom_kills WHERE cluster = ?1 AND id = ?2")?;
    find.exists(params![key.cluster.as_str(), key.id.get()])
}

impl Registry {
    /// Returns the times of the killed tasks of a run on the devices where the reader may read its samples.
    /// `None`: the reader does not have full access to the run.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn oom_kills_seen(
        &self,
        reader_of: Reader,
        job: &Job,
    ) -> Result<Option<Vec<Timestamp>>, RegistryError> {
        if self.sees_run(reader_of, job)? != AccessLevel::All {
            return Ok(None);
        }
        let Some(start) = job.start else { return Ok(Some(Vec::new())) };
        if !any(&self.reader.lock(), &job.key)? {
            return Ok(Some(Vec::new()));
        }
        let granted = self.granted(reader_of, job)?;
        let mut allocations = self.allocations(&job.key, start)?;
        allocations.retain(|allocation| granted.has(&allocation.device));
        let kills = of_run(&self.reader.lock(), &job.key, &allocations)?;
        Ok(Some(kills.into_iter().map(|killed| killed.kill.at).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limits, Users};
    use model::{ClusterId, JobId};

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_seconds(1_700_000_000 + seconds)
    }

    fn kill(seconds: i64, pid: u32) -> OomKill {
        let (task, uid) = ("solve".into(), Some(1000));
        let (task_bytes, limit_bytes) = (Some(9 << 20), Some(8 << 20));
        OomKill { at: at(seconds), pid, uid, task, task_bytes, limit_bytes }
    }

    fn event(device: &str, (start, stop): (i64, Option<i64>), oom_kills: Vec<OomKill>) -> JobEvent {
        JobEvent {
            key: key(),
            display_id: "7".into(),
            device: DeviceId::new(device).unwrap(),
            user: None,
            uid: Some(1000),
            start: at(start),
            stop: stop.map(at),
            monitor: None,
            oom_kills,
        }
    }

    fn key() -> JobKey {
        JobKey { cluster: ClusterId::new("slurm").unwrap(), id: JobId::new(7).unwrap() }
    }

    #[test]
    fn a_kill_is_of_the_run_in_which_it_was_and_is_kept_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("registry.sqlite");
        let registry = Registry::open(&path, Limits::default(), Users::default).unwrap();
        let visit_rows = [
            event("n1", (0, Some(100)), Vec::new()),
            // The agent reads the kill after the end of the visit. A restarted agent reads it again.
            event("n1", (0, None), vec![kill(90, 41), kill(91, 42)]),
            event("n1", (0, None), vec![kill(92, 41)]),
            event("n2", (3, Some(100)), vec![kill(50, 41)]),
            // The scheduler reuses the job ID.
            event("n1", (500, None), vec![kill(600, 41)]),
        ];
        registry.apply(&visit_rows, at(700)).unwrap();
        let of = |by: i64| {
            let whole = registry.whole_seen(&key(), Some(at(by)), Reader::default());
            let whole = whole.unwrap().unwrap();
            let one = |killed: &DeviceKill| (killed.device.to_string(), killed.kill.clone());
            (whole.job.stop, whole.oom_kills.iter().map(one).collect::<Vec<_>>())
        };
        let n1 = |kill| ("n1".to_owned(), kill);
        let first = vec![n1(kill(90, 41)), n1(kill(91, 42)), ("n2".to_owned(), kill(50, 41))];
        assert_eq!(of(200), (Some(at(100)), first), "its end stands");
        assert_eq!(of(700), (None, vec![n1(kill(600, 41))]));
        let counts = |reader: Reader| {
            let count =
                |run: &Job| registry.oom_kills_seen(reader, run).unwrap().map(|kills| kills.len());
            registry.runs(&key()).unwrap().iter().map(count).collect::<Vec<_>>()
        };
        assert_eq!(counts(Reader::Everything), [Some(3), Some(1)], "run by run");
        assert_eq!(counts(Reader::User(1000)), [Some(3), Some(1)], "the nodes name the owner");
        assert_eq!(counts(Reader::User(1001)), [None, None]);
        let many = (0..2 * u32::try_from(KILLS_MAX).unwrap()).map(|pid| kill(650, 1000 + pid));
        registry.apply(&[event("n1", (500, None), many.collect())], at(700)).unwrap();
        assert_eq!(
            i64::try_from(of(700).1.len()),
            Ok(KILLS_MAX - 2),
            "with the two of the run before"
        );
    }

    #[test]
    fn kills_of_one_node_are_bounded_and_displace_no_others() {
        let dir = tempfile::tempdir().unwrap();
        let registry =
            Registry::open(&dir.path().join("registry.sqlite"), Limits::default(), Users::default)
                .unwrap();
        registry.apply(&[event("n2", (0, None), vec![kill(10, 41)])], at(20)).unwrap();
        // n1 reports 64 kills of each of 300 invented jobs, and the most kills that a job may have of this one.
        let kills = |count: u32| (0..count).map(|pid| kill(15, 1000 + pid)).collect::<Vec<_>>();
        let mut flood: Vec<JobEvent> = (100..400)
            .map(|id| {
                let key = JobKey { id: JobId::new(id).unwrap(), ..key() };
                JobEvent { key, ..event("n1", (0, None), kills(64)) }
            })
            .collect();
        flood.extend([event("n1", (0, Some(16)), kills(256))]);
        registry.apply(&flood, at(20)).unwrap();
        let stored = || -> i64 {
            let count = "SELECT count(*) FROM oom_kills";
            registry.writer.lock().query_row(count, [], |row| row.get(0)).unwrap()
        };
        assert_eq!(stored(), KILLS_ON_DEVICE_MAX + 1);
        let run = registry.runs(&key()).unwrap().remove(0);
        let allocations = registry.allocations(&key(), run.start.unwrap()).unwrap();
        let n2: Vec<_> =
            allocations.into_iter().filter(|one| one.device.as_str() == "n2").collect();
        assert_eq!(of_run(&registry.reader.lock(), &key(), &n2).unwrap().len(), 1);
    }
}
