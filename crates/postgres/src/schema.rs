//! Whether a database can be used, and whether another server uses it.

use crate::connection::{DatabaseError, LOCK_LIMIT};
use database::ServerSession;
use model::Timestamp;
use std::time::Duration;
use tokio_postgres::Client;

/// The database notices within this time that the connection of an ended server is closed.
const LOCK_TRIES: u32 = 500;
const LOCK_WAIT: Duration = Duration::from_millis(10);

/// Whether there is a table `metrics`, whether jobmeter made it, and whether the database stores every text.
const FOUND: &str = "SELECT to_regclass('metrics') IS NOT NULL, to_regclass('jobmeter.state') IS NOT NULL, \
                     current_setting('server_encoding') = 'UTF8'";

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

/// Ends a lost session of the server: the database may not notice for long that its connection is lost, and another
/// session is rejected as long as it exists.
pub(crate) async fn end_session(
    client: &Client,
    lost: &DatabaseSession,
) -> Result<(), DatabaseError> {
    client.query(END, &[&lost.pid, &lost.started]).await?;
    Ok(())
}

/// Makes the first connection of the server the one that stores, and creates what is missing.
pub(crate) async fn prepare(client: &Client) -> Result<(), DatabaseError> {
    // The statements would wait for any transaction that writes.
    if !is_ours(client).await? {
        let all = format!("{};\n{};\n{ALL_LOOKED}", database::everything(), database::recording());
        let created = client.batch_execute(&all).await;
        // Of two servers that start at once, one creates everything, and the other finds it.
        if created.is_err() && !is_ours(client).await? {
            created?;
        }
    }
    lock(client).await
}

/// Makes a further connection the one that stores. It creates nothing: the database may be about to be restored from a backup.
pub(crate) async fn prepare_again(client: &Client) -> Result<(), DatabaseError> {
    if is_ours(client).await? { lock(client).await } else { Err(DatabaseError::Empty) }
}

/// Marks the session as that of the server. A session that was ended a moment ago is waited for.
async fn lock(client: &Client) -> Result<(), DatabaseError> {
    let mut tries = LOCK_TRIES;
    while let Some(ServerSession { pid, role }) = database::enter_as_server(client).await? {
        tries -= 1;
        if tries == 0 {
            let text =
                format!("process {pid} of PostgreSQL has the role {role}: stop that server first");
            return Err(DatabaseError::Locked(text));
        }
        tokio::time::sleep(LOCK_WAIT).await;
    }
    let settings = format!("SET {} = 'on'; SET lock_timeout = '{LOCK_LIMIT}'", database::IS_SERVER);
    Ok(client.batch_execute(&settings).await?)
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
