//! The server that uses the database: its session (decision 0053), and rollups of a time range that it computes again (decision 0055).

use crate::error::SetupError;
use std::time::Duration;
use tokio_postgres::Client;

const RANGE_OF_ALL: &str =
    "INSERT INTO jobmeter.late (first_us, last_us) VALUES ($1, $2) RETURNING id";
const IS_MARKED: &str = "SELECT EXISTS (SELECT FROM jobmeter.late WHERE id = $1)";
/// The name of the application in the session of a server.
pub const SERVER: &str = "jobmeter server that stores";
/// One session at a time looks for others. Vacuum and maintenance of the server do not wait for each other here.
const ENTER: &str = "BEGIN; SET LOCAL lock_timeout = '5s'; LOCK TABLE jobmeter.state IN SHARE UPDATE EXCLUSIVE MODE";
/// Interval of tests whether a range is done.
const POLL: Duration = Duration::from_millis(200);

/// Has the server compute the rollups of a time range again, in microseconds since 1970, including those of rows that no trigger recorded. Waits for
/// it. Returns false if no server uses the database: the next one does it.
///
/// # Errors
/// The database does not answer, or rejects a statement.
pub async fn rollup(client: &Client, (from_us, to_us): (i64, i64)) -> Result<bool, SetupError> {
    let marked: i64 = client.query_one(RANGE_OF_ALL, &[&from_us, &to_us]).await?.try_get(0)?;
    while client.query_one(IS_MARKED, &[&marked]).await?.try_get(0)? {
        if !has_server(client).await? {
            return Ok(false);
        }
        tokio::time::sleep(POLL).await;
    }
    Ok(true)
}

/// The session of a server, or of another user of the whole database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSession {
    /// Its process of PostgreSQL.
    pub pid: i32,
    /// Its role.
    pub role: String,
}

/// Marks the session as that of the server, until it ends, unless there is another one: that is returned, and nothing has changed. Any role of
/// a database may take any advisory lock and any name of an application. So the name counts only with a role that has the owner's rights, and the
/// table is locked in a mode that needs the right to write.
///
/// # Errors
/// The database does not answer, has no tables of jobmeter, or another session locks them. The session is of no use then.
pub async fn enter_as_server(
    client: &Client,
) -> Result<Option<ServerSession>, tokio_postgres::Error> {
    client.batch_execute(ENTER).await?;
    let other = match client.query_opt(&servers(), &[]).await? {
        Some(row) => Some(ServerSession { pid: row.try_get(0)?, role: row.try_get(1)? }),
        None => None,
    };
    let end = match &other {
        Some(_) => "ROLLBACK".to_owned(),
        None => format!("SET application_name = '{SERVER}'; COMMIT"),
    };
    client.batch_execute(&end).await?;
    Ok(other)
}

/// Whether a server uses the database.
///
/// # Errors
/// The database does not answer.
pub async fn has_server(client: &Client) -> Result<bool, SetupError> {
    Ok(client.query_opt(&servers(), &[]).await?.is_some())
}

/// A statement that finds the session of a server, other than the own one.
fn servers() -> String {
    format!(
        "SELECT pid, usename::text FROM pg_stat_activity WHERE datname = current_database() AND application_name = '{SERVER}' \
         AND pid <> pg_backend_pid() \
         AND pg_has_role(usesysid, (SELECT nspowner FROM pg_namespace WHERE nspname = 'jobmeter'), 'MEMBER') LIMIT 1"
    )
}
