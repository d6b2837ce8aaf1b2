//! A site's own view or table with the nodes and times of jobs, as Kwollect has it: `nodetime_by_job` with the columns
//! `job_id`, `start_time`, `stop_time` and `node`. It may read a foreign table.
//!
//! A quiet round is one statement. It lists the jobs that are not over, and those that ended since the last round, with
//! a digest of their rows. A round with changes adds one statement with all rows of up to [`JOBS_MAX`] changed jobs.
//! No statement writes.

mod job_rows;

use crate::database_address::{DatabaseAddress, error_text};
use crate::read_only_database::ReadOnlyDatabase;
use crate::{Changes, Scheduler, SchedulerError};
use async_trait::async_trait;
use job_rows::{JobRow, records};
use jobs::JobRecord;
use model::{ClusterId, JobState, Timestamp};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};

/// Most jobs of a list.
const LIST_ROWS: usize = 20_000;
/// Most lists of a round. Jobs beyond them are skipped and reported.
const LISTS_MAX: usize = 10;
/// Most jobs that a round fetches.
const JOBS_MAX: usize = 1000;
/// Most rows of them.
const PART_ROWS: usize = 65_536;
/// The list includes jobs that ended this long before the last round: other clocks, and late entries.
const OVERLAP: i64 = 600 * Timestamp::SECOND;
/// Most messages about unusable rows of a round.
const REJECTED_MAX: usize = 100;

/// Whether the relation exists, and whether it reads the server's own copy of jobs.
const CHECK: &str = "
    WITH RECURSIVE used (oid) AS (
        SELECT to_regclass($1)::oid WHERE to_regclass($1) IS NOT NULL
        UNION
        SELECT d.refobjid FROM used JOIN pg_rewrite r ON r.ev_class = used.oid
            JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid
                AND d.refclassid = 'pg_class'::regclass)
    SELECT EXISTS (SELECT FROM used),
        EXISTS (SELECT FROM used WHERE oid = to_regclass('jobmeter.allocations')::oid)";

/// The jobs with an ID above $1 that are not over at $3 or ended at $2 or later, at most $4: with a digest of these rows.
const LIST: &str = "
    SELECT job_id::bigint, md5(string_agg(concat_ws(' ', node, extract(epoch FROM start_time), \
               extract(epoch FROM stop_time), start_time > to_timestamp($3), stop_time > to_timestamp($3)), ',' \
               ORDER BY node, start_time, stop_time))
    FROM VIEW WHERE job_id > $1 AND (stop_time IS NULL OR stop_time >= to_timestamp($2))
    GROUP BY job_id ORDER BY job_id LIMIT $4";

/// All rows of the jobs $1, at most $2.
const ROWS: &str = "
    SELECT job_id::bigint, extract(epoch FROM start_time::timestamptz)::float8,
           extract(epoch FROM stop_time::timestamptz)::float8, node::text
    FROM VIEW WHERE job_id = ANY ($1) ORDER BY job_id, start_time LIMIT $2";

/// The name of a relation: `view`, or `schema.view`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewName(String);

/// Why a text is no name of a relation.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is no name of a view; write it as `nodetime_by_job` or `schema.nodetime_by_job`")]
pub struct ViewNameError(String);

impl ViewName {
    /// Checks a name: letters, digits and `_`, with the schema before a dot.
    ///
    /// # Errors
    /// The text has other characters.
    pub fn new(text: &str) -> Result<Self, ViewNameError> {
        let is_name = |part: &str| {
            !part.starts_with(|first: char| first.is_ascii_digit())
                && (1..64).contains(&part.len())
                && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        let parts: Vec<&str> = text.split('.').collect();
        if parts.len() > 2 || !parts.iter().all(|part| is_name(part)) {
            return Err(ViewNameError(text.chars().take(100).collect()));
        }
        Ok(Self(text.to_owned()))
    }

    /// The name as an identifier of SQL, with its letters as they are.
    fn quoted(&self) -> String {
        format!("\"{}\"", self.0.replace('.', "\".\""))
    }
}

impl fmt::Display for ViewName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A view of nodes and times, polled as a scheduler.
#[derive(Debug)]
pub struct Nodetime {
    cluster: ClusterId,
    database: ReadOnlyDatabase,
    view: ViewName,
    /// Open between two rounds; closed after a failed round.
    connection: Option<Client>,
    /// The digests of the jobs in the last list, as they were fetched.
    fetched: BTreeMap<i64, Box<str>>,
    /// The last records of the jobs that are not over.
    open: BTreeMap<i64, JobRecord>,
    /// The next list begins with jobs that ended at this time.
    since: Option<Timestamp>,
}

impl Nodetime {
    /// A view of a database. Opens no connection yet.
    pub fn new(
        cluster: ClusterId,
        address: DatabaseAddress,
        view: ViewName,
        call_time_max: Duration,
    ) -> Self {
        let database = ReadOnlyDatabase::new(&format!("the view {view}"), address, call_time_max);
        let (fetched, open) = (BTreeMap::new(), BTreeMap::new());
        Self { cluster, database, view, connection: None, fetched, open, since: None }
    }

    /// Connects, and checks that the view is the site's own.
    async fn connect(&self) -> Result<Client, SchedulerError> {
        let client = self.database.connect().await?;
        let name = self.view.quoted();
        let rows = self.database.rows(&client, CHECK, &[(&name, Type::TEXT)]).await?;
        let found = rows.first().map(|row| (row.try_get(0), row.try_get(1)));
        let target = || self.database.target().to_owned();
        match found {
            Some((Ok(true), Ok(false))) => Ok(client),
            Some((Ok(true), Ok(true))) => Err(SchedulerError::Unusable {
                target: target(),
                what: "it reads `jobmeter.allocations`, the server's own copy of jobs; remove \
                       `schedulers.nodetime.view`, or name a view of the scheduler's data"
                    .to_owned(),
            }),
            _ => Err(SchedulerError::Unusable {
                target: target(),
                what:
                    "it does not exist; create it with the columns job_id, start_time, stop_time \
                       and node"
                        .to_owned(),
            }),
        }
    }

    /// The jobs that are not over, and those that ended at `since` or later; and the job after which the list is cut.
    async fn list(
        &self,
        client: &Client,
        (since, now): (Timestamp, Timestamp),
        changes: &mut Changes,
    ) -> Result<(BTreeMap<i64, Box<str>>, Option<i64>), SchedulerError> {
        let sql = LIST.replace("VIEW", &self.view.quoted());
        let (since, now, limit) = (since.seconds(), now.seconds(), number(LIST_ROWS));
        let (mut listed, mut after) = (BTreeMap::new(), 0_i64);
        for _ in 0..LISTS_MAX {
            changes.calls += 1;
            let parameters: [(&(dyn ToSql + Sync), Type); 4] = [
                (&after, Type::INT8),
                (&since, Type::FLOAT8),
                (&now, Type::FLOAT8),
                (&limit, Type::INT8),
            ];
            let rows = self.database.rows(client, &sql, &parameters).await?;
            for row in &rows {
                let (id, digest) = listed_job(row)
                    .map_err(|error| self.database.answer_error(error_text(&error)))?;
                listed.insert(id, digest);
                after = id;
            }
            if rows.len() < LIST_ROWS {
                return Ok((listed, None));
            }
        }
        let most = LIST_ROWS * LISTS_MAX;
        changes.rejected.push(format!("more than {most} jobs; jobs after {after} are skipped"));
        Ok((listed, Some(after)))
    }

    /// The rows of jobs, and the jobs whose rows are complete.
    async fn job_rows(
        &self,
        client: &Client,
        mut ids: Vec<i64>,
        changes: &mut Changes,
    ) -> Result<(BTreeMap<i64, Vec<JobRow>>, Vec<i64>), SchedulerError> {
        let sql = ROWS.replace("VIEW", &self.view.quoted());
        let limit = number(PART_ROWS);
        changes.calls += 1;
        let parameters: [(&(dyn ToSql + Sync), Type); 2] =
            [(&ids, Type::INT8_ARRAY), (&limit, Type::INT8)];
        let rows = self.database.rows(client, &sql, &parameters).await?;
        let is_cut = rows.len() >= PART_ROWS;
        let mut of_job: BTreeMap<i64, Vec<JobRow>> = BTreeMap::new();
        for row in &rows {
            let (id, one) =
                job_row(row).map_err(|error| self.database.answer_error(error_text(&error)))?;
            of_job.entry(id).or_default().push(one);
        }
        if is_cut && of_job.len() > 1 {
            // The next round fetches the last one.
            let last = of_job.pop_last().map(|(id, _)| id);
            ids.retain(|id| last.is_none_or(|last| *id < last));
        } else if is_cut {
            let what = format!("a job has more than {PART_ROWS} rows; the rest is skipped");
            reject(&mut changes.rejected, what);
            ids.retain(|id| of_job.contains_key(id));
        }
        Ok((of_job, ids))
    }

    /// One round on an open connection. State changes only after every statement succeeded.
    async fn round(
        &mut self,
        client: &Client,
        (from, now): (Timestamp, Timestamp),
        changes: &mut Changes,
    ) -> Result<(), SchedulerError> {
        let since = self.since.unwrap_or(from);
        let (listed, cut_after) = self.list(client, (since, now), changes).await?;
        let changed = listed.iter().filter(|(id, digest)| self.fetched.get(id) != Some(digest));
        let changed = changed.map(|(id, _)| *id);
        let in_list = |id: &i64| cut_after.is_none_or(|last| *id <= last);
        let gone = self.open.keys().filter(|id| in_list(id) && !listed.contains_key(id)).copied();
        let mut wanted: Vec<i64> = changed.chain(gone).take(JOBS_MAX + 1).collect();
        changes.has_more = wanted.len() > JOBS_MAX;
        wanted.truncate(JOBS_MAX);
        wanted.sort_unstable();
        if !wanted.is_empty() {
            let count = wanted.len();
            let (mut rows, read) = self.job_rows(client, wanted, changes).await?;
            changes.has_more |= read.len() < count;
            for id in read {
                self.add(id, rows.remove(&id).unwrap_or_default(), now, changes);
                match listed.get(&id) {
                    Some(digest) => drop(self.fetched.insert(id, digest.clone())),
                    None => drop(self.fetched.remove(&id)),
                }
            }
        }
        self.fetched.retain(|id, _| listed.contains_key(id) || !in_list(id));
        if !changes.has_more && cut_after.is_none() {
            self.since = Some(now.plus(-OVERLAP).max(from));
        }
        Ok(())
    }

    /// Adds the records of a job. A job that was not over and has no rows any more ended now.
    fn add(&mut self, id: i64, rows: Vec<JobRow>, now: Timestamp, changes: &mut Changes) {
        let before = self.open.remove(&id);
        let mut rejected = Vec::new();
        let mut found = records((&self.cluster, id), rows, (before.as_ref(), now), &mut rejected);
        for what in rejected {
            reject(&mut changes.rejected, what);
        }
        if let Some(open) = found.iter().find(|record| record.state == JobState::Running) {
            self.open.insert(id, open.clone());
        }
        if let Some(before) = before
            && !found.iter().any(|record| record.submit == before.submit)
        {
            found.push(JobRecord { state: JobState::Ended, stop: Some(now), ..before });
        }
        changes.records.append(&mut found);
    }
}

#[async_trait]
impl Scheduler for Nodetime {
    fn cluster(&self) -> &ClusterId {
        &self.cluster
    }

    async fn changes(
        &mut self,
        from: Timestamp,
        now: Timestamp,
    ) -> Result<Changes, SchedulerError> {
        let mut changes = Changes::default();
        // Restored only after success: a failed or cancelled round leaves answers in transit.
        let client = match self.connection.take().filter(|open| !open.is_closed()) {
            Some(client) => client,
            None => {
                changes.calls += 3;
                self.connect().await?
            }
        };
        self.round(&client, (from, now), &mut changes).await?;
        self.connection = Some(client);
        Ok(changes)
    }
}

/// A job and the digest of its rows.
fn listed_job(row: &Row) -> Result<(i64, Box<str>), tokio_postgres::Error> {
    Ok((row.try_get(0)?, row.try_get(1)?))
}

fn job_row(row: &Row) -> Result<(i64, JobRow), tokio_postgres::Error> {
    let one = JobRow { start: row.try_get(1)?, stop: row.try_get(2)?, node: row.try_get(3)? };
    Ok((row.try_get(0)?, one))
}

fn reject(rejected: &mut Vec<String>, what: String) {
    if rejected.len() < REJECTED_MAX {
        rejected.push(what);
    }
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_views() {
        for (name, quoted) in [
            ("nodetime_by_job", "\"nodetime_by_job\""),
            ("Site_1.Nodetime", "\"Site_1\".\"Nodetime\""),
        ] {
            assert_eq!(ViewName::new(name).unwrap().quoted(), quoted);
        }
        for bad in ["", ".", "a.b.c", "a\"b", "a b", "1a", "a;", "é", &"x".repeat(64)] {
            assert!(ViewName::new(bad).is_err(), "{bad}");
        }
    }
}
