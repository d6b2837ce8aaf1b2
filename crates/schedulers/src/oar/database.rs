//! Polls OAR through its PostgreSQL database.
//!
//! A quiet round is one statement. It lists the jobs that are not over by the index on `jobs.state`, and the
//! jobs submitted since by the primary key.
//! A round with changes adds four statements, each for up to [`JOBS_MAX`] jobs: the jobs, their types, their
//! resources, their requests.
//! Jobs that ended before the start are searched once, [`PAST_IDS`] IDs at a time, because OAR has no index on times.
//! No statement writes. Each has the time limit that jobmeter sets for a call.

mod rows;

use super::track::{Listed, ListedState, Track};
use crate::database_address::{DatabaseAddress, error_text};
use crate::read_only_database::ReadOnlyDatabase;
use crate::{Changes, Scheduler, SchedulerError};
use async_trait::async_trait;
use jobs::JobRecord;
use model::{ClusterId, Timestamp};
use rows::{Columns, DETAILS, LIST, NewJobs, REQUESTED, TYPES, resources_sql};
use std::time::Duration;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};

/// Most jobs that a round fetches.
const JOBS_MAX: usize = 1000;
/// Most rows of a list.
const LIST_ROWS: usize = 20_000;
/// Most lists of a round. Open jobs beyond them are skipped and reported.
const LISTS_MAX: usize = 10;
/// Most jobs submitted since the previous round that one round accepts.
const NEW_ROWS: usize = 5000;
/// Job IDs searched at a time for jobs that ended before the start.
const PAST_IDS: i64 = 200_000;
/// Most of those jobs found at a time.
const PAST_ROWS: usize = 2000;
/// Most rows of types, of requests, and of nodes of jobs.
const PART_ROWS: usize = 65_536;

/// OAR, polled through its database.
#[derive(Debug)]
pub struct OarDatabase {
    cluster: ClusterId,
    database: ReadOnlyDatabase,
    /// Open between two rounds; closed after a failed round.
    connection: Option<Connection>,
    track: Track,
    past: PastSearch,
    /// The greatest known job ID; 0 before the first job.
    newest: i64,
}

/// Progress of the search for jobs that ended before the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PastSearch {
    /// Not begun.
    New,
    /// The search covers IDs up to `until`; IDs up to `done` are finished.
    Looking { done: i64, until: i64, from: i64 },
    /// Finished.
    Over,
}

/// One step of that search.
struct Step {
    found: Vec<i64>,
    past: PastSearch,
    /// The greatest job ID at the beginning of the search.
    until: i64,
}

#[derive(Debug)]
struct Connection {
    client: Client,
    /// The statement for resources, by the columns that this site has.
    resources: String,
}

impl OarDatabase {
    /// OAR's database. Opens no connection yet.
    pub fn new(cluster: ClusterId, address: DatabaseAddress, call_time_max: Duration) -> Self {
        let database = ReadOnlyDatabase::new("OAR's database", address, call_time_max);
        let (track, past) = (Track::default(), PastSearch::New);
        Self { cluster, database, connection: None, track, past, newest: 0 }
    }

    async fn connect(&self) -> Result<Connection, SchedulerError> {
        let client = self.database.connect().await?;
        let columns = Columns::of(&self.database.rows(&client, rows::COLUMNS, &[]).await?);
        Ok(Connection { resources: resources_sql(columns), client })
    }

    /// Drops all state: the database is another one, or was emptied.
    fn reset(&mut self) {
        (self.track, self.past, self.newest) = (Track::default(), PastSearch::New, 0);
    }

    /// One round on an open connection. State changes only after every statement succeeded.
    async fn round(
        &mut self,
        connection: &Connection,
        from: Timestamp,
        now: Timestamp,
        changes: &mut Changes,
    ) -> Result<(), SchedulerError> {
        let mut queries =
            RoundQueries { oar: self, client: &connection.client, calls: changes.calls };
        let (listed, news) = queries.list().await?;
        let past = queries.past(from).await?;
        changes.calls = queries.calls;
        if self.newest > 0 && !news.has_newest {
            log::info!("{}: its job IDs restarted", self.database.target());
            self.reset();
            changes.has_more = true;
            return Ok(());
        }
        if let Some(last) = listed.cut_after {
            changes.rejected.push(format!(
                "more than {} jobs are not over; jobs after {last} are skipped",
                LIST_ROWS * LISTS_MAX
            ));
        }
        let new_over = news.over.len();
        self.track.queue(news.over);
        self.newest = self.newest.max(news.newest);
        if let Some(Step { found, past, until }) = past {
            self.track.queue(found);
            // Later jobs count as newly submitted.
            (self.past, self.newest) = (past, self.newest.max(until));
        }
        let (wanted, more) = self.track.wanted(&listed, now, JOBS_MAX);
        let looking = self.past != PastSearch::Over;
        changes.has_more = more || looking || new_over >= NEW_ROWS;
        if wanted.is_empty() {
            return Ok(());
        }
        let mut queries =
            RoundQueries { oar: self, client: &connection.client, calls: changes.calls };
        let fetched =
            queries.details(&connection.resources, &wanted, &mut changes.rejected).await?;
        changes.calls = queries.calls;
        changes.has_more |= fetched.queried.len() < wanted.len();
        let over = |record: &&JobRecord| record.stop.is_some();
        let over: Vec<i64> =
            fetched.records.iter().filter(over).map(|record| record.key.id.get()).collect();
        self.track.record_queried(&fetched.queried, &listed, &over, now);
        changes.records = fetched.records;
        Ok(())
    }
}

#[async_trait]
impl Scheduler for OarDatabase {
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
        let connection = match self.connection.take().filter(|open| !open.client.is_closed()) {
            Some(connection) => connection,
            None => {
                changes.calls += 3;
                self.connect().await?
            }
        };
        self.round(&connection, from, now, &mut changes).await?;
        self.connection = Some(connection);
        Ok(changes)
    }
}

/// The statements of a round.
struct RoundQueries<'a> {
    oar: &'a OarDatabase,
    client: &'a Client,
    calls: u32,
}

/// Jobs fetched by ID.
struct Fetched {
    records: Vec<JobRecord>,
    /// The queried IDs, including those of jobs that no longer exist.
    queried: Vec<i64>,
}

impl RoundQueries<'_> {
    async fn rows(
        &mut self,
        sql: &str,
        parameters: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<Row>, SchedulerError> {
        self.calls = self.calls.saturating_add(1);
        self.oar.database.rows(self.client, sql, parameters).await
    }

    /// Lists the jobs that are not over, and those submitted since the last round that are over already.
    async fn list(&mut self) -> Result<(Listed, NewJobs), SchedulerError> {
        let (mut listed, mut news) = (Listed::default(), NewJobs::default());
        let (limit, new_limit) = (number(LIST_ROWS), number(NEW_ROWS));
        let mut after = 0_i64;
        for part in 1..=LISTS_MAX {
            // The first part includes the newly submitted jobs, once the search of the past has begun.
            let with_news = part == 1 && self.oar.past != PastSearch::New;
            let since = if with_news { self.oar.newest } else { i64::MAX };
            let parameters: [(&(dyn ToSql + Sync), Type); 4] = [
                (&after, Type::INT8),
                (&limit, Type::INT8),
                (&since, Type::INT8),
                (&new_limit, Type::INT8),
            ];
            let rows = self.rows(LIST, &parameters).await?;
            let open = rows::list(&rows, since, &mut listed, &mut news)
                .map_err(|what| self.oar.database.answer_error(what))?;
            let last = listed.open.last_key_value().map_or(after, |(id, _)| *id);
            if open < LIST_ROWS {
                return Ok((listed, news));
            }
            after = last;
        }
        listed.cut_after = Some(after);
        Ok((listed, news))
    }

    /// The next step of the search for jobs that ended before the start, and its progress.
    async fn past(&mut self, from: Timestamp) -> Result<Option<Step>, SchedulerError> {
        let (done, until, from) = match self.oar.past {
            PastSearch::Over => return Ok(None),
            PastSearch::New => {
                let rows = self.rows(rows::NEWEST, &[]).await?;
                let until = rows.first().and_then(|row| row.try_get(0).ok()).unwrap_or(0_i64);
                (0, until, from.0.div_euclid(Timestamp::SECOND))
            }
            PastSearch::Looking { done, until, from } => (done, until, from),
        };
        if self.oar.track.waiting() > PAST_ROWS {
            return Ok(None);
        }
        let to = done.saturating_add(PAST_IDS).min(until);
        let limit = number(PAST_ROWS);
        let parameters: [(&(dyn ToSql + Sync), Type); 4] =
            [(&done, Type::INT8), (&to, Type::INT8), (&from, Type::INT8), (&limit, Type::INT8)];
        let rows = self.rows(rows::PAST, &parameters).await?;
        let ids = rows.iter().map(|row| row.try_get(0)).collect::<Result<Vec<i64>, _>>();
        let ids = ids.map_err(|error| self.oar.database.answer_error(error_text(&error)))?;
        let done = if ids.len() < PAST_ROWS { to } else { ids.last().copied().unwrap_or(to) };
        let past =
            if done < until { PastSearch::Looking { done, until, from } } else { PastSearch::Over };
        Ok(Some(Step { found: ids, past, until }))
    }

    /// Everything about these jobs.
    async fn details(
        &mut self,
        resources: &str,
        ids: &[i64],
        rejected: &mut Vec<String>,
    ) -> Result<Fetched, SchedulerError> {
        let limit = number(PART_ROWS);
        let jobs = self.rows(DETAILS, &[(&ids, Type::INT8_ARRAY)]).await?;
        let mut jobs = rows::jobs(&jobs, rejected);
        let moldables: Vec<i64> = jobs.iter().map(|job| job.moldable).collect();
        let of_moldables: [(&(dyn ToSql + Sync), Type); 2] =
            [(&moldables, Type::INT8_ARRAY), (&limit, Type::INT8)];
        let types = self.rows(TYPES, &[(&ids, Type::INT8_ARRAY), (&limit, Type::INT8)]).await?;
        rows::add_types(&types, &mut jobs, rejected);
        let requested = self.rows(REQUESTED, &of_moldables).await?;
        rows::add_requested(&requested, &mut jobs, rejected);
        let nodes = self.rows(resources, &of_moldables).await?;
        let whole = rows::add_nodes(&nodes, &mut jobs, PART_ROWS, rejected);
        let mut fetched = Fetched { records: Vec::new(), queried: ids.to_vec() };
        for job in jobs {
            // The row limit cut off this job's nodes; the next round fetches it.
            if whole.is_some_and(|last| job.moldable >= last) {
                fetched.queried.retain(|id| *id != job.job.id);
                continue;
            }
            match job.job.record(&self.oar.cluster) {
                Ok(record) => fetched.records.push(record),
                Err(what) => rows::reject(rejected, what),
            }
        }
        Ok(fetched)
    }
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
