//! Whether a database can be used, and its lock.

use crate::connection::DatabaseError;
use model::Timestamp;
use std::time::Duration;
use tokio_postgres::Client;

/// Taken for the time that a server uses the database.
const LOCK: i64 = 0x6a6f_626d_6574_6572;
/// The database notices within this time that the connection of an ended server is closed.
const LOCK_TRIES: u32 = 50;
const LOCK_WAIT: Duration = Duration::from_millis(100);

/// Whether there is a table `metrics`, whether jobmeter made it, and whether the database stores every text.
const FOUND: &str = "SELECT to_regclass('metrics') IS NOT NULL, to_regclass('jobmeter.state') IS NOT NULL, \
                     current_setting('server_encoding') = 'UTF8'";

/// Takes the lock, and creates what is missing.
pub(crate) async fn prepare(client: &Client) -> Result<(), DatabaseError> {
    let mut tries = LOCK_TRIES;
    while !client.query_one("SELECT pg_try_advisory_lock($1)", &[&LOCK]).await?.try_get(0)? {
        tries -= 1;
        if tries == 0 {
            return Err(DatabaseError::Locked);
        }
        tokio::time::sleep(LOCK_WAIT).await;
    }
    // The statements would wait for any transaction that writes.
    if is_ours(client).await? { Ok(()) } else { Ok(client.batch_execute(database::TABLES).await?) }
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

/// The settled time, and the number of deleted samples.
pub(crate) async fn state(client: &Client) -> Result<(Option<Timestamp>, u64), DatabaseError> {
    let text = "SELECT settled_us, samples_removed FROM jobmeter.state";
    let row = client.query_one(text, &[]).await?;
    let (settled, removed): (Option<i64>, i64) = (row.try_get(0)?, row.try_get(1)?);
    Ok((settled.map(Timestamp), u64::try_from(removed).unwrap_or(0)))
}

/// Whether an acknowledged batch may be lost in a crash of the database.
pub(crate) async fn may_lose_commits(client: &Client) -> Result<bool, DatabaseError> {
    let row = client.query_one("SELECT current_setting('synchronous_commit') = 'off'", &[]).await?;
    Ok(row.try_get(0)?)
}
