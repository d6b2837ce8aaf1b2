//! Whether a database can be used, and its lock.

use crate::connection::{DatabaseError, LOCK_LIMIT};
use model::Timestamp;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Row};

/// The database notices within this time that the connection of an ended server is closed.
const LOCK_TRIES: u32 = 5;
const LOCK_WAIT: &str = "1s";

/// Whether there is a table `metrics`, whether jobmeter made it, and whether the database stores every text.
const FOUND: &str = "SELECT to_regclass('metrics') IS NOT NULL, to_regclass('jobmeter.state') IS NOT NULL, \
                     current_setting('server_encoding') = 'UTF8'";

/// Process, role, whether it is the own role, and whether the session has the lock or waits for it.
const SESSIONS: &str = "SELECT a.pid, a.usename::text, a.usename = current_user, granted FROM pg_locks JOIN pg_stat_activity AS a USING (pid) \
    WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
    AND (classid::bigint << 32) | objid::bigint = $1 AND a.usename IS NOT NULL";

/// The process of the own session, and its start.
const OWN: &str =
    "SELECT pid, backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid()";
/// Ends a session of process `$1` that began at `$2`.
const END: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = $1 AND backend_start::text = $2";

/// A new table has no rows with unregistered series.
const ALL_LOOKED: &str = "UPDATE jobmeter.state SET looked_us = -9223372036854775808";

/// The state of maintenance.
#[derive(Debug)]
pub(crate) struct State {
    /// Earlier windows come from rollups.
    pub(crate) settled: Option<Timestamp>,
    /// Earlier rows are late.
    pub(crate) settling_us: i64,
    /// Earlier samples are deleted.
    pub(crate) removed_us: i64,
    pub(crate) samples_removed: u64,
    /// The number of the database, which its backups have, too. `None`: an earlier version set it up.
    pub(crate) database_id: Option<String>,
}

/// A session of the server in the database.
#[derive(Clone, Debug)]
pub(crate) struct DatabaseSession {
    pid: i32,
    started: String,
}

/// The own session.
pub(crate) async fn own_session(client: &Client) -> Result<DatabaseSession, DatabaseError> {
    let row = client.query_one(OWN, &[]).await?;
    Ok(DatabaseSession { pid: row.try_get(0)?, started: row.try_get(1)? })
}

/// Ends a lost session of the server: the database may not notice for long that its connection is lost, and the session
/// holds the lock of servers.
pub(crate) async fn end_session(
    client: &Client,
    lost: &DatabaseSession,
) -> Result<(), DatabaseError> {
    client.query(END, &[&lost.pid, &lost.started]).await?;
    Ok(())
}

/// Takes the lock for the first connection of the server, and creates what is missing.
pub(crate) async fn prepare(client: &Client) -> Result<(), DatabaseError> {
    lock(client).await?;
    // The statements would wait for any transaction that writes.
    if is_ours(client).await? {
        return Ok(());
    }
    let all = format!("{};\n{};\n{ALL_LOOKED}", database::everything(), database::recording());
    Ok(client.batch_execute(&all).await?)
}

/// Takes the lock for a further connection. It creates nothing: the database may be about to be restored from a backup.
pub(crate) async fn prepare_again(client: &Client) -> Result<(), DatabaseError> {
    lock(client).await?;
    if is_ours(client).await? { Ok(()) } else { Err(DatabaseError::Empty) }
}

async fn lock(client: &Client) -> Result<(), DatabaseError> {
    client.batch_execute(&format!("SET lock_timeout = '{LOCK_WAIT}'")).await?;
    let mut tries = LOCK_TRIES;
    loop {
        end_others(client).await?;
        match client.query("SELECT pg_advisory_lock($1)", &[&database::LOCK]).await {
            Ok(_) => break,
            Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {}
            Err(error) => return Err(error.into()),
        }
        tries -= 1;
        if tries == 0 {
            return Err(DatabaseError::Locked(holder(client).await?));
        }
    }
    let settings = format!("SET {} = 'on'; SET lock_timeout = '{LOCK_LIMIT}'", database::IS_SERVER);
    Ok(client.batch_execute(&settings).await?)
}

/// A session that has the lock or waits for it.
struct LockSession {
    pid: i32,
    role: String,
    /// Whether it has the server's own role.
    is_own: bool,
    is_holder: bool,
}

async fn lock_sessions(client: &Client) -> Result<Vec<LockSession>, DatabaseError> {
    let rows = client.query(SESSIONS, &[&database::LOCK]).await?;
    let session = |row: &Row| {
        let (pid, role, is_own) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        Ok(LockSession { pid, role, is_own, is_holder: row.try_get(3)? })
    };
    rows.iter().map(session).collect()
}

/// Ends the sessions of other roles that have the lock or wait for it: any role can take it, and no server has such a role. This
/// server is then the next in the queue. Without the rights of such a role nothing happens.
async fn end_others(client: &Client) -> Result<(), DatabaseError> {
    for other in lock_sessions(client).await?.into_iter().filter(|one| !one.is_own) {
        client.query_one("SELECT pg_terminate_backend($1)", &[&other.pid]).await.ok();
    }
    Ok(())
}

/// Which session has the lock.
async fn holder(client: &Client) -> Result<String, DatabaseError> {
    let mut sessions = lock_sessions(client).await?.into_iter();
    let Some(LockSession { pid, role, is_own, .. }) = sessions.find(|one| one.is_holder) else {
        return Ok("it was free a moment ago".to_owned());
    };
    Ok(match is_own {
        true => format!("process {pid} of PostgreSQL has the role {role}: stop that server first"),
        false => format!(
            "the role {role} holds the lock of servers (process {pid} of PostgreSQL): end its session, and revoke its CONNECT"
        ),
    })
}

/// Whether the database has the tables.
pub(crate) async fn is_ours(client: &Client) -> Result<bool, DatabaseError> {
    let found = client.query_one(FOUND, &[]).await?;
    let (has_metrics, is_ours, is_utf8) = (found.try_get(0)?, found.try_get(1)?, found.try_get(2)?);
    match (has_metrics, is_ours, is_utf8) {
        (_, _, false) => Err(DatabaseError::Encoding),
        (true, false, _) => Err(DatabaseError::Foreign),
        (_, is_ours, _) => Ok(is_ours),
    }
}

/// The state of maintenance.
pub(crate) async fn state(client: &Client) -> Result<State, DatabaseError> {
    let text = "SELECT settled_us, coalesce(settling_us, $1), coalesce(removed_us, $1), samples_removed, \
                to_json(state)->>'database_id' FROM jobmeter.state";
    let row = client.query_one(text, &[&i64::MIN]).await?;
    Ok(State {
        settled: row.try_get::<_, Option<i64>>(0)?.map(Timestamp),
        settling_us: row.try_get(1)?,
        removed_us: row.try_get(2)?,
        samples_removed: u64::try_from(row.try_get::<_, i64>(3)?).unwrap_or(0),
        database_id: row.try_get(4)?,
    })
}

/// A statement that orders rows of one instant by their storage, for a hypertable: TimescaleDB rejects statements that read the place (`ctid`)
/// of rows in compressed chunks.
pub(crate) fn without_places(statement: &str) -> String {
    statement.replace("m.ctid", "NULL::tid").replace(", ctid", ", NULL::tid")
}

/// Whether an acknowledged batch may be lost in a crash of the database.
pub(crate) async fn may_lose_commits(client: &Client) -> Result<bool, DatabaseError> {
    let row = client.query_one("SELECT current_setting('synchronous_commit') = 'off'", &[]).await?;
    Ok(row.try_get(0)?)
}
