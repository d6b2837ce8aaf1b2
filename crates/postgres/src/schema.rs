//! The tables of the store.

use crate::connection::DatabaseError;
use model::Timestamp;
use std::time::Duration;
use tokio_postgres::Client;

/// Taken for the time that a server uses the database.
const LOCK: i64 = 0x6a6f_626d_6574_6572;
/// The database notices within this time that the connection of an ended server is closed.
const LOCK_TRIES: u32 = 50;
const LOCK_WAIT: Duration = Duration::from_millis(100);

/// `metrics` has the five columns of Kwollect; all else is in the schema `jobmeter`.
const TABLES: &str = "
CREATE TABLE IF NOT EXISTS metrics (
    timestamp timestamptz NOT NULL DEFAULT now(),
    device_id text NOT NULL,
    metric_id text NOT NULL,
    value double precision DEFAULT 'NaN',
    labels jsonb DEFAULT '{}'
);
CREATE INDEX IF NOT EXISTS metrics_device_idx ON metrics (device_id, timestamp DESC);
CREATE INDEX IF NOT EXISTS metrics_timestamp_idx ON metrics (timestamp DESC);
CREATE SCHEMA IF NOT EXISTS jobmeter;
CREATE TABLE IF NOT EXISTS jobmeter.job_metrics (
    timestamp timestamptz NOT NULL,
    device_id text NOT NULL,
    metric_id text NOT NULL,
    value double precision NOT NULL,
    labels jsonb NOT NULL,
    cluster text NOT NULL,
    job_id bigint NOT NULL
);
CREATE INDEX IF NOT EXISTS job_metrics_device_idx ON jobmeter.job_metrics (device_id, timestamp DESC);
CREATE INDEX IF NOT EXISTS job_metrics_job_idx ON jobmeter.job_metrics (job_id, timestamp DESC);
CREATE TABLE IF NOT EXISTS jobmeter.series (
    id bigint PRIMARY KEY,
    device_id text NOT NULL,
    metric_id text NOT NULL,
    labels jsonb NOT NULL,
    cluster text,
    job_id bigint,
    divisor bigint NOT NULL,
    first_us bigint NOT NULL,
    last_us bigint NOT NULL,
    last_value double precision NOT NULL,
    received_us bigint NOT NULL,
    samples bigint NOT NULL
);
CREATE TABLE IF NOT EXISTS jobmeter.starts (
    series_id bigint NOT NULL,
    at_us bigint NOT NULL,
    start_us bigint,
    PRIMARY KEY (series_id, at_us)
);
CREATE TABLE IF NOT EXISTS jobmeter.origins (name text PRIMARY KEY, state text NOT NULL);
CREATE TABLE IF NOT EXISTS jobmeter.gaps (
    id bigint PRIMARY KEY,
    gap text NOT NULL,
    is_late boolean NOT NULL
);
CREATE TABLE IF NOT EXISTS jobmeter.rollups (
    window_us bigint NOT NULL,
    series_id bigint NOT NULL,
    at_us bigint NOT NULL,
    samples bigint NOT NULL,
    sum double precision NOT NULL,
    min double precision NOT NULL,
    max double precision NOT NULL,
    first_us bigint NOT NULL,
    first_value double precision NOT NULL,
    first_start_us bigint,
    last_us bigint NOT NULL,
    last_value double precision NOT NULL,
    last_start_us bigint,
    seconds double precision NOT NULL,
    integral double precision NOT NULL,
    resets bigint NOT NULL,
    before_resets double precision NOT NULL,
    PRIMARY KEY (window_us, series_id, at_us)
);
CREATE TABLE IF NOT EXISTS jobmeter.state (
    is_one boolean PRIMARY KEY DEFAULT true CHECK (is_one),
    settled_us bigint,
    samples_removed bigint NOT NULL DEFAULT 0
);
INSERT INTO jobmeter.state DEFAULT VALUES ON CONFLICT DO NOTHING;
CREATE TABLE IF NOT EXISTS jobmeter.catalogue (name text PRIMARY KEY, metric text NOT NULL);
";

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
    let found = client.query_one(FOUND, &[]).await?;
    let (has_metrics, is_ours, is_utf8) = (found.try_get(0)?, found.try_get(1)?, found.try_get(2)?);
    match (has_metrics, is_ours, is_utf8) {
        (_, _, false) => Err(DatabaseError::Encoding),
        (true, false, _) => Err(DatabaseError::Foreign),
        // The statements would wait for any transaction that writes.
        (_, true, _) => Ok(()),
        (false, false, _) => Ok(client.batch_execute(TABLES).await?),
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
