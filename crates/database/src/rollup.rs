//! Rollups of a time range are computed again by the server that uses the database (decision 0055).

use crate::error::SetupError;
use std::time::Duration;
use tokio_postgres::Client;

const RANGE_OF_ALL: &str =
    "INSERT INTO jobmeter.late (first_us, last_us) VALUES ($1, $2) RETURNING id";
const IS_MARKED: &str = "SELECT EXISTS (SELECT FROM jobmeter.late WHERE id = $1)";
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

/// Whether a server uses the database.
///
/// # Errors
/// The database does not answer.
pub async fn has_server(client: &Client) -> Result<bool, SetupError> {
    // Any role can take the lock; a server has the role of the owner.
    let held = "SELECT EXISTS (SELECT FROM pg_locks JOIN pg_stat_activity AS a USING (pid) WHERE locktype = 'advisory' AND granted \
                AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
                AND (classid::bigint << 32) | objid::bigint = $1 \
                AND a.usesysid = (SELECT nspowner FROM pg_namespace WHERE nspname = 'jobmeter'))";
    Ok(client.query_one(held, &[&crate::LOCK]).await?.try_get(0)?)
}
