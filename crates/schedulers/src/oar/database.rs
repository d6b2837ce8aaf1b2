//! OAR by its PostgreSQL database.
//!
//! A quiet round is one statement: it lists what is not over, by the index on `jobs.state`, and what was
//! submitted since, by the primary key. A round with news asks four more, each for up to [`JOBS_MAX`] jobs:
//! the jobs, their types, their resources, what they had asked for. What ended before the start is looked
//! for once, some [`PAST_IDS`] numbers at a time, as OAR has no index on times. No statement writes, and
//! none takes longer than the server is told to allow it.

mod rows;

use super::track::{Listed, Sign, Track};
use crate::{Changes, Scheduler, SchedulerError};
use async_trait::async_trait;
use jobs::Record;
use model::{ClusterId, Timestamp};
use rows::{Columns, DETAILS, LIST, News, REQUESTED, TYPES, resources_sql};
use std::time::Duration;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config, NoTls, Row};

/// Most jobs that a round asks for.
const JOBS_MAX: usize = 1000;
/// Most rows of a list.
const LIST_ROWS: usize = 20_000;
/// Most lists of a round: what is beyond these of jobs that are not over is passed over, and said.
const LISTS_MAX: usize = 10;
/// Most jobs that were submitted since the round before and are taken in one.
const NEW_ROWS: usize = 5000;
/// How many numbers of jobs are looked through at a time for what ended before the start.
const PAST_IDS: i64 = 200_000;
/// Most of them that are found at a time.
const PAST_ROWS: usize = 2000;
/// Most rows of types, of what was asked for, and of nodes of jobs.
const PART_ROWS: usize = 65_536;

/// Why the parameters of a database are none.
#[derive(Debug, thiserror::Error)]
pub enum ParametersError {
    /// They cannot be read.
    #[error("{0}; such as `host=/run/postgresql user=oar_ro dbname=oar`")]
    Malformed(String),
    /// They ask for TLS.
    #[error(
        "TLS is not spoken to the database; ask it by a socket of this machine, or over a network that is \
         the cluster's own"
    )]
    Tls,
    /// They tell what must stand in a file.
    #[error("the password stands in a file of its own")]
    Password,
}

/// OAR, asked by its database.
#[derive(Debug)]
pub struct OarDatabase {
    cluster: ClusterId,
    config: Config,
    whom: String,
    call_time_max: Duration,
    /// Open between two rounds, and gone after one that failed.
    connection: Option<Connection>,
    track: Track,
    past: Past,
    /// The greatest number of a job that is known; 0 before there is one.
    newest: i64,
}

/// How far the looking for what ended before the start has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Past {
    /// It has not begun.
    New,
    /// What has numbers up to `until` is looked for, and those up to `done` were.
    Looking { done: i64, until: i64, from: i64 },
    /// It is done.
    Over,
}

/// A step of that.
struct Step {
    found: Vec<i64>,
    past: Past,
    /// The greatest number of a job when it began.
    until: i64,
}

#[derive(Debug)]
struct Connection {
    client: Client,
    /// The statement for resources, by the columns that this site has.
    resources: String,
}

impl OarDatabase {
    /// OAR's database by parameters as libpq takes them, with a password that stands elsewhere. Nothing is
    /// asked yet.
    ///
    /// # Errors
    /// The parameters are none, ask for TLS, or hold a password.
    pub fn new(
        cluster: ClusterId,
        parameters: &str,
        password: Option<&str>,
        call_time_max: Duration,
    ) -> Result<Self, ParametersError> {
        let mut config: Config = parameters
            .parse()
            .map_err(|error: tokio_postgres::Error| ParametersError::Malformed(words(&error)))?;
        if config.get_ssl_mode() == SslMode::Require {
            return Err(ParametersError::Tls);
        }
        if config.get_password().is_some() {
            return Err(ParametersError::Password);
        }
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(ParametersError::Malformed("no `host` is named".to_owned()));
        }
        if let Some(password) = password {
            config.password(password);
        }
        config.ssl_mode(SslMode::Disable).connect_timeout(call_time_max);
        if config.get_application_name().is_none() {
            config.application_name("jobmeter");
        }
        let whom = format!("OAR's database ({})", place(&config));
        let (track, past) = (Track::default(), Past::New);
        Ok(Self { cluster, config, whom, call_time_max, connection: None, track, past, newest: 0 })
    }

    async fn connect(&self) -> Result<Connection, SchedulerError> {
        let connect = tokio::time::timeout(self.call_time_max, self.config.connect(NoTls)).await;
        let (client, io) =
            connect.map_err(|_| self.silent())?.map_err(|error| self.failed(&error))?;
        tokio::spawn(async move {
            // Ends with the client; why it ended otherwise, the next call says.
            if let Err(error) = io.await {
                log::debug!("OAR's database: {}", words(&error));
            }
        });
        let limit = self.call_time_max.as_millis();
        let setup = format!(
            "SET default_transaction_read_only = on; SET statement_timeout = {limit}; \
             SET lock_timeout = {limit}"
        );
        let set = tokio::time::timeout(self.call_time_max, client.batch_execute(&setup)).await;
        set.map_err(|_| self.silent())?.map_err(|error| self.failed(&error))?;
        let mut asking = Asking { oar: self, client: &client, calls: 0 };
        let columns = Columns::of(&asking.rows(rows::COLUMNS, &[]).await?);
        Ok(Connection { resources: resources_sql(columns), client })
    }

    fn silent(&self) -> SchedulerError {
        SchedulerError::Silent { whom: self.whom.clone(), time: self.call_time_max }
    }

    fn failed(&self, error: &tokio_postgres::Error) -> SchedulerError {
        let (whom, what) = (self.whom.clone(), words(error));
        match error.as_db_error() {
            Some(_) => SchedulerError::Refused { whom, what },
            None => SchedulerError::Unreachable { whom, what },
        }
    }

    /// Forgets everything: another database is there, or the old one was emptied.
    fn start_anew(&mut self) {
        (self.track, self.past, self.newest) = (Track::default(), Past::New, 0);
    }

    /// A round on an open connection; nothing is noted before all of it was answered.
    async fn round(
        &mut self,
        connection: &Connection,
        from: Timestamp,
        now: Timestamp,
        changes: &mut Changes,
    ) -> Result<(), SchedulerError> {
        let mut asking = Asking { oar: self, client: &connection.client, calls: changes.calls };
        let (listed, news) = asking.list().await?;
        let past = asking.past(from).await?;
        changes.calls = asking.calls;
        if self.newest > 0 && !news.has_newest {
            log::info!("{}: its jobs were numbered anew", self.whom);
            self.start_anew();
            changes.has_more = true;
            return Ok(());
        }
        if let Some(last) = listed.cut_after {
            changes.refused.push(format!(
                "more than {} jobs are not over; those after {last} are not asked for",
                LIST_ROWS * LISTS_MAX
            ));
        }
        let new_over = news.over.len();
        self.track.ask_later(news.over);
        self.newest = self.newest.max(news.newest);
        if let Some(Step { found, past, until }) = past {
            self.track.ask_later(found);
            // What came later is news.
            (self.past, self.newest) = (past, self.newest.max(until));
        }
        let (wanted, more) = self.track.wanted(&listed, now, JOBS_MAX);
        let looking = self.past != Past::Over;
        changes.has_more = more || looking || new_over >= NEW_ROWS;
        if wanted.is_empty() {
            return Ok(());
        }
        let mut asking = Asking { oar: self, client: &connection.client, calls: changes.calls };
        let told = asking.details(&connection.resources, &wanted, &mut changes.refused).await?;
        changes.calls = asking.calls;
        changes.has_more |= told.asked.len() < wanted.len();
        let over = |record: &&Record| record.stop.is_some();
        let over: Vec<i64> =
            told.records.iter().filter(over).map(|record| record.key.id.get()).collect();
        self.track.asked(&told.asked, &listed, &over, now);
        changes.records = told.records;
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
        // Put back only when all went well: a round that fails or is given up leaves answers under way.
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

/// Statements of a round.
struct Asking<'a> {
    oar: &'a OarDatabase,
    client: &'a Client,
    calls: u32,
}

/// What was told of jobs that were asked for.
struct Fetched {
    records: Vec<Record>,
    /// Which were asked for, those that are no longer there among them.
    asked: Vec<i64>,
}

impl Asking<'_> {
    async fn rows(
        &mut self,
        sql: &str,
        parameters: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<Row>, SchedulerError> {
        self.calls = self.calls.saturating_add(1);
        let asked = self.client.query_typed(sql, parameters);
        let answer = tokio::time::timeout(self.oar.call_time_max, asked).await;
        answer.map_err(|_| self.oar.silent())?.map_err(|error| self.oar.failed(&error))
    }

    /// What is not over, and what is over and was submitted since the last round.
    async fn list(&mut self) -> Result<(Listed, News), SchedulerError> {
        let (mut listed, mut news) = (Listed::default(), News::default());
        let (limit, new_limit) = (number(LIST_ROWS), number(NEW_ROWS));
        let mut after = 0_i64;
        for part in 1..=LISTS_MAX {
            // What was submitted since is asked for with the first part, and not before the past is.
            let with_news = part == 1 && self.oar.past != Past::New;
            let since = if with_news { self.oar.newest } else { i64::MAX };
            let parameters: [(&(dyn ToSql + Sync), Type); 4] = [
                (&after, Type::INT8),
                (&limit, Type::INT8),
                (&since, Type::INT8),
                (&new_limit, Type::INT8),
            ];
            let rows = self.rows(LIST, &parameters).await?;
            let open = rows::list(&rows, since, &mut listed, &mut news)
                .map_err(|what| self.answer(what))?;
            let last = listed.open.last_key_value().map_or(after, |(id, _)| *id);
            if open < LIST_ROWS {
                return Ok((listed, news));
            }
            after = last;
        }
        listed.cut_after = Some(after);
        Ok((listed, news))
    }

    /// The next part of what ended before the start, and how far that comes.
    async fn past(&mut self, from: Timestamp) -> Result<Option<Step>, SchedulerError> {
        let (done, until, from) = match self.oar.past {
            Past::Over => return Ok(None),
            Past::New => {
                let rows = self.rows(rows::NEWEST, &[]).await?;
                let until = rows.first().and_then(|row| row.try_get(0).ok()).unwrap_or(0_i64);
                (0, until, from.0.div_euclid(Timestamp::SECOND))
            }
            Past::Looking { done, until, from } => (done, until, from),
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
        let ids = ids.map_err(|error| self.answer(words(&error)))?;
        let done = if ids.len() < PAST_ROWS { to } else { ids.last().copied().unwrap_or(to) };
        let past = if done < until { Past::Looking { done, until, from } } else { Past::Over };
        Ok(Some(Step { found: ids, past, until }))
    }

    /// Everything about these jobs.
    async fn details(
        &mut self,
        resources: &str,
        ids: &[i64],
        refused: &mut Vec<String>,
    ) -> Result<Fetched, SchedulerError> {
        let limit = number(PART_ROWS);
        let jobs = self.rows(DETAILS, &[(&ids, Type::INT8_ARRAY)]).await?;
        let mut jobs = rows::jobs(&jobs, refused);
        let moldables: Vec<i64> = jobs.iter().map(|job| job.moldable).collect();
        let of_moldables: [(&(dyn ToSql + Sync), Type); 2] =
            [(&moldables, Type::INT8_ARRAY), (&limit, Type::INT8)];
        let types = self.rows(TYPES, &[(&ids, Type::INT8_ARRAY), (&limit, Type::INT8)]).await?;
        rows::add_types(&types, &mut jobs, refused);
        let requested = self.rows(REQUESTED, &of_moldables).await?;
        rows::add_requested(&requested, &mut jobs, refused);
        let places = self.rows(resources, &of_moldables).await?;
        let whole = rows::add_places(&places, &mut jobs, PART_ROWS, refused);
        let mut told = Fetched { records: Vec::new(), asked: ids.to_vec() };
        for job in jobs {
            // Its nodes did not all fit: it is asked for in the next round.
            if whole.is_some_and(|last| job.moldable >= last) {
                told.asked.retain(|id| *id != job.job.id);
                continue;
            }
            match job.job.record(&self.oar.cluster) {
                Ok(record) => told.records.push(record),
                Err(what) => rows::refuse(refused, what),
            }
        }
        Ok(told)
    }

    fn answer(&self, what: String) -> SchedulerError {
        SchedulerError::Answer { whom: self.oar.whom.clone(), what }
    }
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Where a database is, in words.
fn place(config: &Config) -> String {
    let host = |host: &Host| match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(path) => path.display().to_string(),
    };
    let mut hosts: Vec<String> = config.get_hosts().iter().map(host).collect();
    if hosts.is_empty() {
        hosts = config.get_hostaddrs().iter().map(ToString::to_string).collect();
    }
    let name = config.get_dbname().or(config.get_user()).unwrap_or("its user's");
    format!("{name} at {}", hosts.join(", "))
}

/// What an error says, with its cause: the type alone says "db error".
fn words(error: &tokio_postgres::Error) -> String {
    if let Some(error) = error.as_db_error() {
        return format!("{} ({})", error.message(), error.code().code());
    }
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests;
