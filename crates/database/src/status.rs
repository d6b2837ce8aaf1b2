//! What an administrator wants to know of a database.

use crate::error::SetupError;
use crate::found::{Found, Shape};
use crate::server::has_server;
use tokio_postgres::Client;

/// The state of a database.
#[derive(Clone, Debug)]
pub struct Status {
    /// Versions, and how `metrics` is stored.
    pub found: Found,
    /// Bytes of all tables and indexes of samples.
    pub sample_bytes: i64,
    /// Bytes of the rollups.
    pub rollup_bytes: i64,
    /// Partitions or chunks of `metrics`; 0 if it is one table.
    pub chunks: i64,
    /// An estimate of the samples, by the statistics of the database.
    pub samples: f64,
    /// Rows in the default partition that have no partition of their own yet.
    pub not_partitioned: i64,
    /// Final rollups end here: seconds before now.
    pub settled_s: Option<f64>,
    /// The newest sample: seconds before now.
    pub newest_s: Option<f64>,
    /// Whether a server uses the database.
    pub is_used: bool,
}

const SIZES: &str = "WITH RECURSIVE parts (oid, top) AS (
        SELECT oid, oid FROM (VALUES (to_regclass('public.metrics')), (to_regclass('jobmeter.job_metrics')),
            (to_regclass('jobmeter.rollups'))) AS t (oid) WHERE oid IS NOT NULL
        UNION ALL SELECT i.inhrelid, parts.top FROM parts JOIN pg_inherits AS i ON i.inhparent = parts.oid)
    SELECT coalesce(sum(pg_total_relation_size(parts.oid)) FILTER (WHERE top <> to_regclass('jobmeter.rollups')), 0)::bigint,
        coalesce(sum(pg_total_relation_size(parts.oid)) FILTER (WHERE top = to_regclass('jobmeter.rollups')), 0)::bigint,
        count(*) FILTER (WHERE top = to_regclass('public.metrics') AND parts.oid <> top),
        coalesce(sum(greatest(c.reltuples, 0)) FILTER (WHERE c.relkind <> 'p' AND top <> to_regclass('jobmeter.rollups')), 0)::double precision
    FROM parts JOIN pg_class AS c ON c.oid = parts.oid";

/// Reads the state.
///
/// # Errors
/// The database does not answer; jobmeter did not set it up.
pub async fn status(client: &Client) -> Result<Status, SetupError> {
    let found = Found::read(client).await?;
    if found.version.is_none() {
        return Err(SetupError::NotSetUp);
    }
    let row = client.query_one(SIZES, &[]).await?;
    let times = "SELECT extract(epoch FROM now())::double precision - (SELECT settled_us FROM jobmeter.state) / 1e6::double precision, \
                 extract(epoch FROM now() - (SELECT nullif(max(timestamp), '-infinity') FROM public.metrics WHERE timestamp < 'infinity'))::double precision";
    let times = client.query_one(times, &[]).await?;
    let not_partitioned = match found.shape {
        Some(Shape::Partitioned) => {
            let text = "SELECT CASE WHEN to_regclass('jobmeter.metrics_default') IS NULL THEN 0 ELSE 1 END";
            match client.query_one(text, &[]).await?.try_get::<_, i32>(0)? {
                0 => 0,
                _ => client
                    .query_one("SELECT count(*) FROM jobmeter.metrics_default", &[])
                    .await?
                    .try_get(0)?,
            }
        }
        _ => 0,
    };
    Ok(Status {
        sample_bytes: row.try_get(0)?,
        rollup_bytes: row.try_get(1)?,
        chunks: row.try_get(2)?,
        samples: row.try_get(3)?,
        is_used: has_server(client).await?,
        not_partitioned,
        settled_s: times.try_get(0)?,
        newest_s: times.try_get(1)?,
        found,
    })
}
