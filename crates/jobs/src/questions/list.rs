//! Lists of jobs: the newest first, a page at a time.
//!
//! A list is made of *ways*: an index in the order of the list, with a key that its rows must have, such as a
//! user. Several ways, none of whose rows are another's, are merged: a reader's own jobs and those of each
//! account that is shown to him. What else is asked for is looked up row by row until the page is full.
//!
//! Of those that were there between two times, the ones that began within come first; they are followed by
//! those that had begun before, which are found by [`crate::common::paths`].

use crate::common::paths::FAILED;
use crate::common::registry::lock;
use crate::common::sql_parts::{Clauses, device};
use crate::matching::visits::TOGETHER;
use crate::people::accounts;
use crate::presence::granted::Grants;
use crate::questions::ask::{COLUMNS, RUNS, job};
use crate::{Reader, Registry, RegistryError, Sees};
use model::{ClusterId, DeviceId, Job, JobId, JobKey, JobState, Timestamp};
use rusqlite::types::Value;
use rusqlite::{Connection, params, params_from_iter};

/// The state of a run: a node that saw it knows best whether it is over.
const STATE: &str = "CASE WHEN r.visits = 0 THEN r.told WHEN r.stop IS NULL THEN 'running'
    WHEN coalesce(r.exit_code, 0) <> 0 OR r.told IS 'failed' THEN 'failed' ELSE 'ended' END";

/// Whether a run is or was on a device.
const ON: &str = "(EXISTS (SELECT 1 FROM visits v WHERE v.run = r.run AND v.device = ?)
    OR EXISTS (SELECT 1 FROM shares s WHERE s.record = r.record AND s.device = ?))";

/// The runs with a stay on a device that was not over at a time, and those that have it told and never came.
const STAYED: &str = "r.run IN (
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

/// Whether a run is of a part of an array, or of a heterogeneous job.
const PARTS: &str = "r.record IN (SELECT record FROM records WHERE part_of = ?)";

/// Accounts whose jobs are merged; who sees more of them sees so many jobs that the newest are looked through.
const ACCOUNTS_MERGED: usize = 32;

/// How far back the jobs of a device are looked for at first, in microseconds: an hour. Then four times as far
/// each time, in nine steps for seven years; then from the beginning.
const BACK: i64 = 3600 * Timestamp::SECOND;
const STEPS_BACK: u32 = 9;

/// Which jobs a list shows. The default shows all, the newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// For whom: jobs that he may know of.
    pub reader: Reader,
    /// In this state.
    pub state: Option<JobState>,
    /// Of this number, in whatever cluster.
    pub id: Option<JobId>,
    /// Of this cluster.
    pub cluster: Option<ClusterId>,
    /// That are parts of this array, or of this heterogeneous job.
    pub part_of: Option<i64>,
    /// Of the user of this login name, or number.
    pub user: Option<String>,
    /// Of the user of this number.
    pub uid: Option<u32>,
    /// On this account.
    pub account: Option<String>,
    /// Of this project.
    pub project: Option<String>,
    /// Of this queue.
    pub queue: Option<String>,
    /// Of this name.
    pub name: Option<String>,
    /// That are or were on this device.
    pub device: Option<DeviceId>,
    /// That had not ended before.
    pub from: Option<Timestamp>,
    /// That had started by then.
    pub to: Option<Timestamp>,
    /// That are listed after this place: the next page.
    pub after: Option<ListPosition>,
    /// So many at most; `None`: as many as the registry's limit.
    pub limit: Option<usize>,
}

/// Where a run is in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListPosition {
    /// When it started; of one that has not, when it was submitted.
    pub start: Timestamp,
    /// Which job it is of.
    pub key: JobKey,
}

/// A run of a job, with the devices it has or had.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed {
    /// The run.
    pub job: Job,
    /// Its devices, in order.
    pub devices: Vec<DeviceId>,
}

impl Registry {
    /// Jobs that pass the filter, the newest first.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn list(&self, filter: &Filter) -> Result<Vec<Listed>, RegistryError> {
        let reader = lock(&self.reader);
        // One state of the registry for all that is asked: a run that is worked out anew has another number.
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

    /// The runs that pass a filter, the newest first: all of them, whatever the filter's limit.
    ///
    /// # Errors
    /// SQLite fails, or there are more than the registry's limit of rows.
    pub fn every_run(&self, filter: &Filter) -> Result<Vec<Job>, RegistryError> {
        let reader = lock(&self.reader);
        let reader = reader.unchecked_transaction()?;
        let limit = self.limits.rows_max;
        let runs = found(&reader, filter, limit.saturating_add(1))?;
        if runs.len() > limit {
            return Err(RegistryError::TooMany(limit));
        }
        runs.into_iter().map(|run| Ok(run_of(&reader, run)?.0)).collect()
    }
}

/// A run, and the number of its record.
fn run_of(db: &Connection, run: i64) -> Result<(Job, Option<i64>), RegistryError> {
    let mut find = db.prepare_cached(&format!("SELECT {COLUMNS} FROM {RUNS} WHERE r.run = ?1"))?;
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

/// A way to runs.
struct Way {
    /// The index in the order of the list.
    index: &'static str,
    /// The one of what was there at a time; `None`: the first finds few.
    by_time: Option<&'static str>,
    /// Which of its rows.
    of: Clauses,
}

impl Way {
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

/// The numbers of the runs that pass, in the order of the list.
fn found(db: &Connection, filter: &Filter, limit: usize) -> Result<Vec<i64>, RegistryError> {
    let most = [filter.to, filter.after.as_ref().map(|place| place.start)];
    let to = most.into_iter().flatten().min().map_or(i64::MAX, |to| to.0);
    let from = filter.from.map_or(i64::MIN, |from| from.0);
    let is_open = matches!(filter.state, Some(JobState::Waiting | JobState::Running));
    let shown = match (filter.reader, filter.reader.uid()) {
        (Reader::Everything, _) => None,
        (_, None) => return Ok(Vec::new()),
        (_, Some(uid)) if is_open => Some((uid, Vec::new())),
        (_, Some(uid)) => Some((uid, accounts::shown(db, uid, Sees::Listed, ACCOUNTS_MERGED + 1)?)),
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

/// Those of a number.
fn numbered(filter: &Filter) -> Way {
    let id = filter.id.map_or(Value::Null, |id| Value::Integer(id.get()));
    let mut way = Way::few("runs_id").of("r.id = ?", [id]);
    accounts::narrow(&mut way.of, filter.reader, Sees::Listed);
    way
}

/// The parts of one.
fn parts(filter: &Filter) -> Way {
    let whole = filter.part_of.map_or(Value::Null, Value::Integer);
    let mut way = Way::few("runs_record").of(PARTS, [whole]);
    accounts::narrow(&mut way.of, filter.reader, Sees::Listed);
    way
}

/// All that are not over.
fn open(reader: Reader) -> Way {
    let mut way = Way::few("runs_open").of("r.stop IS NULL", []);
    accounts::narrow(&mut way.of, reader, Sees::Listed);
    way
}

/// All of them.
fn any(reader: Reader) -> Way {
    let mut way = Way::new("runs_newest", "runs_time");
    accounts::narrow(&mut way.of, reader, Sees::Listed);
    way
}

/// A user's own, and those of each account that is shown to him.
fn seen(uid: u32, accounts: Vec<(String, String)>) -> Vec<Way> {
    let uid = Value::Integer(uid.into());
    let own = Way::new("runs_uid", "runs_uid_time").of("r.uid = ?", [uid.clone()]);
    let shown = accounts.into_iter().map(|(cluster, account)| {
        let values = [account.into(), cluster.into(), uid.clone()];
        Way::new("runs_account", "runs_account_time")
            .of("r.account = ? AND r.cluster = ? AND r.uid IS NOT ?", values)
    });
    std::iter::once(own).chain(shown).collect()
}

/// By what is asked for that the fewest have, as a rule.
fn keyed(filter: &Filter) -> Vec<Way> {
    if let Some(uid) = filter.uid {
        return seen(uid, Vec::new());
    }
    if let Some(user) = &filter.user {
        let text = Value::Text(user.clone());
        let mut ways = vec![Way::new("runs_user", "runs_time").of("r.user = ?", [text.clone()])];
        ways.extend(number(user).map(|uid| {
            let values = [Value::Integer(uid.into()), text];
            Way::new("runs_uid", "runs_uid_time").of("r.uid = ? AND r.user IS NOT ?", values)
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
            return vec![Way::new(index, "runs_time").of(clause, [Value::Text(key.clone())])];
        }
    }
    if filter.state == Some(JobState::Failed) {
        return vec![Way::new("runs_failed", "runs_time").of(FAILED, [])];
    }
    if let Some(cluster) = &filter.cluster {
        let values = [Value::Text(cluster.to_string())];
        return vec![Way::new("runs_cluster", "runs_time").of("r.cluster = ?", values)];
    }
    vec![any(Reader::Everything)]
}

/// A user's number, as it is written.
fn number(user: &str) -> Option<u32> {
    user.parse().ok().filter(|uid: &u32| uid.to_string() == user)
}

/// Everything that is asked for, but for times and the reader.
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

/// Of these ways, what began between the times; of one that finds few, what was there.
fn began(
    db: &Connection,
    ways: &[Way],
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
    ask(db, &text, values, limit)
}

/// What had begun before and was there at the first of the times.
fn began_before(
    db: &Connection,
    ways: &[Way],
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
    if text.is_empty() { Ok(Vec::new()) } else { ask(db, &text, values, limit) }
}

const SELECT: &str = "SELECT r.run, r.start, r.cluster, r.id";

fn ask(
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

/// What began between the times and is or was on a device: of the last hour before the later one, and farther
/// back until there are enough. A run that began within it was there afterwards; as far as its record tells,
/// it may have left as long before as a scheduler's and a node's clock are apart.
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
        // The first two marks have numbers, as they are used again; those that follow go on from there.
        let mut clauses = Clauses::default();
        let stayed = since.saturating_sub(TOGETHER);
        clauses.and_all(STAYED, [Value::Text(device.to_string()), Value::Integer(stayed)]);
        clauses.and_all("r.start BETWEEN ? AND ?", [since.into(), to.into()]);
        clauses.and_these(rest.clone());
        // By number alone: not through all that began meanwhile.
        let text = format!("{SELECT} FROM runs r NOT INDEXED{}", clauses.text);
        let runs = ask(db, &text, clauses.values, limit)?;
        if runs.len() >= limit || since == from {
            return Ok(runs);
        }
    }
    Ok(Vec::new())
}
