//! Lists of jobs: latest first, a page at a time.
//!
//! A list query uses *ways*. A way is an index in the order of the list, with a key such as a user.
//! Several ways with disjoint rows are merged: the reader's own jobs and those of each account shared
//! with them. Further conditions are tested row by row until the page is full.
//!
//! A list of jobs within a time range starts with the jobs that began in that range. Jobs that had
//! begun before follow; [`crate::common::indexes`] finds them.

use crate::common::indexes::FAILED;
use crate::common::sql_parts::{Clauses, device, key};
use crate::matching::visits::TOGETHER;
use crate::people::job_access;
use crate::presence::granted::Grants;
use crate::queries::job_lookup::{job, select};
use crate::{AccessLevel, Reader, Registry, RegistryError};
use model::{ClusterId, DeviceId, Job, JobId, JobKey, JobState, Timestamp};
use rusqlite::types::Value;
use rusqlite::{Connection, params, params_from_iter};
use std::collections::HashSet;

/// The state of a run. A node with a visit is the authority on whether the run is over.
const STATE: &str = "CASE WHEN r.visits = 0 THEN r.record_state WHEN r.stop IS NULL THEN 'running'
    WHEN coalesce(r.exit_code, 0) <> 0 OR r.record_state IS 'failed' THEN 'failed' ELSE 'ended' END";

/// Tests whether a run has or had a device.
const ON: &str = "(EXISTS (SELECT 1 FROM visits v WHERE v.run = r.run AND v.device = ?)
    OR EXISTS (SELECT 1 FROM shares s WHERE s.record = r.record AND s.device = ?))";

/// Selects runs with an allocation of a device that was open, or ended at a time or later. It
/// includes runs whose record assigns the device but has no start.
const STILL_ALLOCATED: &str = "r.run IN (
    SELECT v.run FROM spans c CROSS JOIN visits v INDEXED BY visits_device
        ON v.device = ?1 AND v.class = c.class AND v.start >= ?2 - c.reach
        WHERE v.stop IS NULL OR v.stop >= ?2
    UNION ALL SELECT x.run FROM spans c CROSS JOIN shares s INDEXED BY shares_device
        ON s.device = ?1 AND s.class = c.class AND s.start >= ?2 - c.reach
        CROSS JOIN runs x ON x.record = s.record
        WHERE s.stop IS NULL OR s.stop >= ?2
    UNION ALL SELECT x.run FROM shares s INDEXED BY shares_device
        CROSS JOIN runs x ON x.record = s.record
        WHERE s.device = ?1 AND s.class = 10 AND s.start IS NULL)";

/// Selects runs of parts of an array or heterogeneous job.
const PARTS: &str = "r.record IN (SELECT record FROM records WHERE part_of = ?)";

/// Maximum number of accounts whose jobs are merged. A reader of more accounts has access to so many
/// jobs that the query scans all jobs, latest first, instead.
const ACCOUNTS_MERGED: usize = 32;

/// First search distance for the jobs of a device, in microseconds: 1 h. The search takes 9 steps,
/// each 4 times as far as the one before, up to 7 years. The last search starts from the beginning.
const BACK: i64 = 3600 * Timestamp::SECOND;
const STEPS_BACK: u32 = 9;

/// A filter of jobs. The default selects all, latest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// The reader. Selects jobs that are visible to them.
    pub reader: Reader,
    /// Selects this state.
    pub state: Option<JobState>,
    /// Selects this job ID in any cluster.
    pub id: Option<JobId>,
    /// Selects this cluster.
    pub cluster: Option<ClusterId>,
    /// Selects parts of this array or heterogeneous job.
    pub part_of: Option<i64>,
    /// Selects the user with this login name or user ID.
    pub user: Option<String>,
    /// Selects the user with this user ID.
    pub uid: Option<u32>,
    /// Selects this account.
    pub account: Option<String>,
    /// Selects this project.
    pub project: Option<String>,
    /// Selects this queue.
    pub queue: Option<String>,
    /// Selects this job name.
    pub name: Option<String>,
    /// Selects jobs that have or had this device.
    pub device: Option<DeviceId>,
    /// Selects jobs that had not ended before.
    pub from: Option<Timestamp>,
    /// Selects jobs that had started by then.
    pub to: Option<Timestamp>,
    /// Continues after this position: the next page.
    pub after: Option<ListPosition>,
    /// Maximum number of jobs; `None`: the registry's limit.
    pub limit: Option<usize>,
}

/// The position of a run in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListPosition {
    /// Start of the run, or time of submission if it has not started.
    pub start: Timestamp,
    /// The job.
    pub key: JobKey,
}

/// A run of a job with its current and past devices.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed {
    /// The run.
    pub job: Job,
    /// The devices, sorted.
    pub devices: Vec<DeviceId>,
}

impl Registry {
    /// Returns the jobs that match a filter, latest first.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn list(&self, filter: &Filter) -> Result<Vec<Listed>, RegistryError> {
        let reader = self.reader.lock();
        // One transaction for all queries: a rebuilt run gets a new row ID.
        let reader = reader.unchecked_transaction()?;
        let limit = filter.limit.unwrap_or(usize::MAX).min(self.limits.rows_max);
        let mut listed = Vec::new();
        let mut grants = Grants::new(self, &reader, filter.reader);
        for run in found(&reader, filter, limit)? {
            let (job, record) = run_of(&reader, run)?;
            let mut devices = devices(&reader, run, record)?;
            let granted = grants.of(run)?;
            devices.retain(|device| granted.has(device));
            listed.push(Listed { job, devices });
        }
        Ok(listed)
    }

    /// Returns all runs that match a filter, latest first, regardless of the filter's `limit`.
    ///
    /// # Errors
    /// SQLite fails, or the number exceeds the registry's row limit.
    pub fn every_run(&self, filter: &Filter) -> Result<Vec<Job>, RegistryError> {
        let reader = self.reader.lock();
        let reader = reader.unchecked_transaction()?;
        let limit = self.limits.rows_max;
        let runs = found(&reader, filter, limit.saturating_add(1))?;
        if runs.len() > limit {
            return Err(RegistryError::TooMany(limit));
        }
        runs.into_iter().map(|run| Ok(run_of(&reader, run)?.0)).collect()
    }

    /// Returns the jobs with a run that a reader's list has; `None` if there are more than `limit` runs.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn keys_visible(
        &self,
        reader_of: Reader,
        limit: usize,
    ) -> Result<Option<HashSet<JobKey>>, RegistryError> {
        let db = self.reader.lock();
        let db = db.unchecked_transaction()?;
        let filter = Filter { reader: reader_of, ..Filter::default() };
        let runs = found(&db, &filter, limit.saturating_add(1))?;
        if runs.len() > limit {
            return Ok(None);
        }
        let mut find = db.prepare_cached("SELECT cluster, id FROM runs WHERE run = ?1")?;
        let mut keys = HashSet::new();
        for run in runs {
            let mut rows = find.query([run])?;
            if let Some(row) = rows.next()? {
                keys.insert(key(row.get(0)?, row.get(1)?)?);
            }
        }
        Ok(Some(keys))
    }
}

/// Returns a run and the row ID of its record.
fn run_of(db: &Connection, run: i64) -> Result<(Job, Option<i64>), RegistryError> {
    let mut find = db.prepare_cached(&select("WHERE r.run = ?1"))?;
    let mut rows = find.query([run])?;
    let Some(row) = rows.next()? else {
        return Err(rusqlite::Error::QueryReturnedNoRows.into());
    };
    Ok((job(row)?, row.get(1)?))
}

fn devices(db: &Connection, run: i64, record: Option<i64>) -> Result<Vec<DeviceId>, RegistryError> {
    let mut find = db.prepare_cached(
        "SELECT device FROM visits WHERE run = ?1
         UNION SELECT device FROM shares WHERE record = ?2 ORDER BY device",
    )?;
    let mut rows = find.query(params![run, record])?;
    let mut devices = Vec::new();
    while let Some(row) = rows.next()? {
        devices.push(device(row.get(0)?)?);
    }
    Ok(devices)
}

/// A way to find runs.
struct RunSearch {
    /// Index in the order of the list.
    index: &'static str,
    /// Index for runs that cover a time; `None`: the first index finds few rows.
    by_time: Option<&'static str>,
    /// Conditions on its rows.
    of: Clauses,
}

impl RunSearch {
    fn new(index: &'static str, by_time: &'static str) -> Self {
        Self { index, by_time: Some(by_time), of: Clauses::default() }
    }

    const fn few(index: &'static str) -> Self {
        Self { index, by_time: None, of: Clauses { text: String::new(), values: Vec::new() } }
    }

    fn of(mut self, clause: &str, values: impl IntoIterator<Item = Value>) -> Self {
        self.of.and_all(clause, values);
        self
    }
}

/// Returns the row IDs of the matching runs in list order.
fn found(db: &Connection, filter: &Filter, limit: usize) -> Result<Vec<i64>, RegistryError> {
    let most = [filter.to, filter.after.as_ref().map(|place| place.start)];
    let to = most.into_iter().flatten().min().map_or(i64::MAX, |to| to.0);
    let from = filter.from.map_or(i64::MIN, |from| from.0);
    let is_open = matches!(filter.state, Some(JobState::Waiting | JobState::Running));
    let shown = match (filter.reader, filter.reader.uid()) {
        (Reader::Everything, _) => None,
        (_, None) => return Ok(Vec::new()),
        (_, Some(uid)) if is_open => Some((uid, Vec::new())),
        (_, Some(uid)) => {
            Some((uid, job_access::shown(db, uid, AccessLevel::Listed, ACCOUNTS_MERGED + 1)?))
        }
    };
    let ways = match (shown, &filter.device) {
        _ if filter.id.is_some() => vec![numbered(filter)],
        _ if filter.part_of.is_some() => vec![parts(filter)],
        _ if is_open => vec![open(filter.reader)],
        (Some((_, accounts)), _) if accounts.len() > ACCOUNTS_MERGED => vec![any(filter.reader)],
        (Some((uid, accounts)), _) => seen(uid, accounts),
        (None, Some(device)) => {
            let mut runs = on_device(db, device, filter, (from, to), limit)?;
            let left = limit.saturating_sub(runs.len());
            runs.extend(began_before(db, &[any(filter.reader)], filter, (from, to), left)?);
            return Ok(runs);
        }
        (None, None) => keyed(filter),
    };
    let mut runs = began(db, &ways, filter, (from, to), limit)?;
    let left = limit.saturating_sub(runs.len());
    runs.extend(began_before(db, &ways, filter, (from, to), left)?);
    Ok(runs)
}

/// Runs with this job ID.
fn numbered(filter: &Filter) -> RunSearch {
    let id = filter.id.map_or(Value::Null, |id| Value::Integer(id.get()));
    let mut way = RunSearch::few("runs_id").of("r.id = ?", [id]);
    job_access::narrow(&mut way.of, filter.reader, AccessLevel::Listed);
    way
}

/// Runs of the parts of an array or heterogeneous job.
fn parts(filter: &Filter) -> RunSearch {
    let whole = filter.part_of.map_or(Value::Null, Value::Integer);
    let mut way = RunSearch::few("runs_record").of(PARTS, [whole]);
    job_access::narrow(&mut way.of, filter.reader, AccessLevel::Listed);
    way
}

/// Runs that are not over.
fn open(reader: Reader) -> RunSearch {
    let mut way = RunSearch::few("runs_open").of("r.stop IS NULL", []);
    job_access::narrow(&mut way.of, reader, AccessLevel::Listed);
    way
}

/// All runs.
fn any(reader: Reader) -> RunSearch {
    let mut way = RunSearch::new("runs_newest", "runs_time");
    job_access::narrow(&mut way.of, reader, AccessLevel::Listed);
    way
}

/// A user's own runs and those of each account shared with them.
fn seen(uid: u32, accounts: Vec<(String, String)>) -> Vec<RunSearch> {
    let uid = Value::Integer(uid.into());
    let own = RunSearch::new("runs_uid", "runs_uid_time").of("r.uid = ?", [uid.clone()]);
    let shown = accounts.into_iter().map(|(cluster, account)| {
        let values = [account.into(), cluster.into(), uid.clone()];
        RunSearch::new("runs_account", "runs_account_time")
            .of("r.account = ? AND r.cluster = ? AND r.uid IS NOT ?", values)
    });
    std::iter::once(own).chain(shown).collect()
}

/// Chooses the condition that usually matches the fewest runs.
fn keyed(filter: &Filter) -> Vec<RunSearch> {
    if let Some(uid) = filter.uid {
        return seen(uid, Vec::new());
    }
    if let Some(user) = &filter.user {
        let text = Value::Text(user.clone());
        let mut ways =
            vec![RunSearch::new("runs_user", "runs_time").of("r.user = ?", [text.clone()])];
        ways.extend(number(user).map(|uid| {
            let values = [Value::Integer(uid.into()), text];
            RunSearch::new("runs_uid", "runs_uid_time").of("r.uid = ? AND r.user IS NOT ?", values)
        }));
        return ways;
    }
    let keys = [
        ("runs_name", "r.name = ?", &filter.name),
        ("runs_project", "r.project = ?", &filter.project),
        ("runs_account", "r.account = ?", &filter.account),
        ("runs_queue", "r.queue = ?", &filter.queue),
    ];
    for (index, clause, key) in keys {
        if let Some(key) = key {
            return vec![RunSearch::new(index, "runs_time").of(clause, [Value::Text(key.clone())])];
        }
    }
    if filter.state == Some(JobState::Failed) {
        return vec![RunSearch::new("runs_failed", "runs_time").of(FAILED, [])];
    }
    if let Some(cluster) = &filter.cluster {
        let values = [Value::Text(cluster.to_string())];
        return vec![RunSearch::new("runs_cluster", "runs_time").of("r.cluster = ?", values)];
    }
    vec![any(Reader::Everything)]
}

/// Parses a user ID in canonical form.
fn number(user: &str) -> Option<u32> {
    user.parse().ok().filter(|uid: &u32| uid.to_string() == user)
}

/// All conditions except times and reader.
fn passes(filter: &Filter) -> Clauses {
    let mut clauses = Clauses::default();
    if let Some(state) = filter.state {
        clauses.and(&format!("{STATE} = ?"), Value::Text(state.word().to_owned()));
    }
    if let Some(user) = &filter.user {
        clauses.and("? IN (r.user, CAST(r.uid AS TEXT))", Value::Text(user.clone()));
    }
    if let Some(uid) = filter.uid {
        clauses.and("r.uid = ?", Value::Integer(uid.into()));
    }
    if let Some(whole) = filter.part_of {
        clauses.and(PARTS, Value::Integer(whole));
    }
    let texts = [
        ("r.cluster = ?", filter.cluster.as_ref().map(ClusterId::as_str)),
        ("r.account = ?", filter.account.as_deref()),
        ("r.project = ?", filter.project.as_deref()),
        ("r.queue = ?", filter.queue.as_deref()),
        ("r.name = ?", filter.name.as_deref()),
    ];
    for (clause, text) in texts {
        if let Some(text) = text {
            clauses.and(clause, Value::Text(text.to_owned()));
        }
    }
    if let Some(device) = &filter.device {
        let device = Value::Text(device.to_string());
        clauses.and_all(ON, [device.clone(), device]);
    }
    if let Some(ListPosition { start, key }) = &filter.after {
        let (start, cluster) = (Value::Integer(start.0), Value::Text(key.cluster.to_string()));
        let clause =
            "(r.start < ? OR (r.start = ? AND (r.cluster > ? OR (r.cluster = ? AND r.id > ?))))";
        let id = Value::Integer(key.id.get());
        clauses.and_all(clause, [start.clone(), start, cluster.clone(), cluster, id]);
    }
    clauses
}

/// Finds runs that began in the time range. For a way with few rows, it finds runs that overlap the
/// range.
fn began(
    db: &Connection,
    ways: &[RunSearch],
    filter: &Filter,
    (from, to): (i64, i64),
    limit: usize,
) -> Result<Vec<i64>, RegistryError> {
    let (mut text, mut values) = (String::new(), Vec::new());
    for way in ways {
        let mut clauses = way.of.clone();
        if from > i64::MIN {
            let began = "r.start >= ?";
            let there = "(r.stop IS NULL OR r.stop >= ?)";
            let clause = if way.by_time.is_some() { began } else { there };
            clauses.and(clause, Value::Integer(from));
        }
        if to < i64::MAX {
            clauses.and("r.start <= ?", Value::Integer(to));
        }
        clauses.and_these(passes(filter));
        let and = if text.is_empty() { "" } else { " UNION ALL " };
        text.push_str(&format!(
            "{and}{SELECT} FROM runs r INDEXED BY {}{}",
            way.index, clauses.text
        ));
        values.extend(clauses.values);
    }
    filter_by(db, &text, values, limit)
}

/// Finds runs that began before the time range and were open at its start.
fn began_before(
    db: &Connection,
    ways: &[RunSearch],
    filter: &Filter,
    (from, to): (i64, i64),
    limit: usize,
) -> Result<Vec<i64>, RegistryError> {
    if from == i64::MIN {
        return Ok(Vec::new());
    }
    let (mut text, mut values) = (String::new(), Vec::new());
    for way in ways {
        let Some(index) = way.by_time else { continue };
        let mut clauses = way.of.clone();
        clauses.and("(r.stop IS NULL OR r.stop >= ?)", Value::Integer(from));
        clauses.and_these(passes(filter));
        let and = if text.is_empty() { "" } else { " UNION ALL " };
        text.push_str(&format!(
            "{and}{SELECT} FROM spans c CROSS JOIN runs r INDEXED BY {index}
             ON r.class = c.class AND r.start BETWEEN ? - c.reach AND ?{}",
            clauses.text
        ));
        values.extend([Value::Integer(from), Value::Integer(to.min(from - 1))]);
        values.extend(clauses.values);
    }
    if text.is_empty() { Ok(Vec::new()) } else { filter_by(db, &text, values, limit) }
}

const SELECT: &str = "SELECT r.run, r.start, r.cluster, r.id";

fn filter_by(
    db: &Connection,
    text: &str,
    values: Vec<Value>,
    limit: usize,
) -> Result<Vec<i64>, RegistryError> {
    if limit == 0 {
        return Ok(Vec::new());
    }
    let mut find = db.prepare_cached(&format!("{text} ORDER BY 2 DESC, 3, 4 LIMIT {limit}"))?;
    let runs = find.query_map(params_from_iter(values), |row| row.get(0))?;
    Ok(runs.collect::<Result<_, _>>()?)
}

/// Finds runs that began in the time range and have or had a device. The search starts with the last
/// hour of the range and goes back until the page is full. A run that began in the searched part was on
/// the device after that part's start. By its record alone, it may have left earlier by the distance
/// between the scheduler's and the node's clock.
fn on_device(
    db: &Connection,
    device: &DeviceId,
    filter: &Filter,
    (from, to): (i64, i64),
    limit: usize,
) -> Result<Vec<i64>, RegistryError> {
    let mut newest = db.prepare_cached("SELECT max(start) FROM runs")?;
    let newest: Option<i64> = newest.query_row([], |row| row.get(0))?;
    let Some(end) = newest.map(|newest| newest.min(to)) else { return Ok(Vec::new()) };
    let rest = passes(filter);
    for step in 0..=STEPS_BACK {
        let since = if step == STEPS_BACK {
            from
        } else {
            from.max(end.saturating_sub(BACK << (2 * step)))
        };
        // The first 2 placeholders are numbered because they are used twice. The following ones continue from
        // there.
        let mut clauses = Clauses::default();
        let allocated = since.saturating_sub(TOGETHER);
        clauses
            .and_all(STILL_ALLOCATED, [Value::Text(device.to_string()), Value::Integer(allocated)]);
        clauses.and_all("r.start BETWEEN ? AND ?", [since.into(), to.into()]);
        clauses.and_these(rest.clone());
        // Use the row ID only, not a scan of all runs that began meanwhile.
        let text = format!("{SELECT} FROM runs r NOT INDEXED{}", clauses.text);
        let runs = filter_by(db, &text, clauses.values, limit)?;
        if runs.len() >= limit || since == from {
            return Ok(runs);
        }
    }
    Ok(Vec::new())
}
