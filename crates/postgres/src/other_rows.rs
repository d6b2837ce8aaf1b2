//! Rows that other programs write into `metrics` (decision 0055): which series they belong to.

use crate::connection::DatabaseError;
use model::{DeviceId, FOREIGN_BYTES_MAX, Labels, Series};
use tokio_postgres::{Client, Row};

const RECORDED: &str = "SELECT device_id, metric_id, labels, first_us, last_us, rows, id, is_late \
                        FROM jobmeter.other_rows";
/// From which instant on the series of rows are registered, beside the rows that the trigger recorded.
pub(crate) const LOOKED_AND_RECORDED: &str = "SELECT device_id, metric_id, labels, first_us, last_us, rows, id, is_late, \
    looked_us FROM jobmeter.state LEFT JOIN jobmeter.other_rows ON true";
/// The series of all rows between two instants, of some devices and metrics.
pub(crate) const FOUND: &str = "SELECT device_id, metric_id, coalesce(labels::text, 'null'), \
    (extract(epoch FROM min(timestamp)) * 1000000)::bigint - 1, \
    (extract(epoch FROM max(timestamp)) * 1000000)::bigint + 1, count(*) FROM metrics \
    WHERE timestamp BETWEEN $1 AND $2 AND ($3::text[] IS NULL OR device_id = ANY ($3)) \
        AND ($4::text[] IS NULL OR metric_id = ANY ($4)) AND device_id IS NOT NULL AND metric_id IS NOT NULL \
    GROUP BY 1, 2, 3";
/// The series of rows from this instant on are registered.
pub(crate) const LOOKED: &str = "SELECT looked_us FROM jobmeter.state";
/// How long other programs may wait for the trigger's creation.
const LOCK_MS: u32 = 100;
/// Removes recorded rows, and counts those that cannot be shown.
const REMOVE: &str = "WITH removed AS (DELETE FROM jobmeter.other_rows WHERE id = ANY ($1) RETURNING id, rows) \
    UPDATE jobmeter.state SET rows_hidden = rows_hidden \
    + coalesce((SELECT sum(rows) FROM removed WHERE id = ANY ($2)), 0)::bigint";

/// Rows of one series.
#[derive(Clone, Debug)]
pub(crate) struct OtherRows {
    /// `None`: a name or the labels are too long.
    pub(crate) series: Option<Series>,
    /// Bounds of their instants.
    pub(crate) span: (i64, i64),
    pub(crate) rows: u64,
}

/// Rows that the trigger recorded.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    pub(crate) id: i64,
    pub(crate) rows: OtherRows,
    /// They may lie in settled time.
    pub(crate) is_late: bool,
    pub(crate) is_shown: bool,
}

impl OtherRows {
    pub(crate) fn of(row: &Row) -> Result<Self, DatabaseError> {
        let (device, metric): (&str, &str) = (row.try_get(0)?, row.try_get(1)?);
        let parts = (DeviceId::foreign(device), Labels::foreign(row.try_get(2)?));
        let series = match parts {
            (Some(device), Some(labels)) if metric.len() <= FOREIGN_BYTES_MAX => {
                Some(Series { device, metric: metric.into(), job: None, labels })
            }
            _ => None,
        };
        let rows: i64 = row.try_get(5)?;
        let span = (row.try_get(3)?, row.try_get(4)?);
        Ok(Self { series, span, rows: u64::try_from(rows).unwrap_or(0) })
    }
}

impl Recorded {
    pub(crate) fn of(row: &Row) -> Result<Self, DatabaseError> {
        let rows = OtherRows::of(row)?;
        Ok(Self { id: row.try_get(6)?, rows, is_late: row.try_get(7)?, is_shown: true })
    }
}

/// Creates the trigger that records rows, if it is missing. Rows from before it are looked for again.
/// Without it, each query looks for them.
pub(crate) async fn record(client: &Client) -> Result<bool, DatabaseError> {
    if client.query_one(database::IS_RECORDING, &[]).await?.try_get(0)? {
        return Ok(true);
    }
    client.batch_execute("UPDATE jobmeter.state SET looked_us = NULL").await?;
    let create = format!("SET LOCAL lock_timeout = '{LOCK_MS}ms'; {}", database::recording());
    let created = client.batch_execute(&format!("BEGIN; {create} COMMIT")).await;
    if let Err(error) = &created {
        log::warn!("queries are slower: no trigger records rows of other programs: {error}");
        client.batch_execute("ROLLBACK").await?;
    }
    Ok(created.is_ok())
}

/// Reads the recorded rows.
pub(crate) async fn recorded(client: &Client) -> Result<Vec<Recorded>, DatabaseError> {
    client.query(RECORDED, &[]).await?.iter().map(Recorded::of).collect()
}

/// Removes recorded rows whose series the database has, in the transaction that adds these series.
pub(crate) async fn remove(client: &Client, recorded: &[Recorded]) -> Result<(), DatabaseError> {
    if recorded.is_empty() {
        return Ok(());
    }
    let ids: Vec<i64> = recorded.iter().map(|one| one.id).collect();
    let hidden: Vec<i64> = recorded.iter().filter(|one| !one.is_shown).map(|one| one.id).collect();
    client.execute(REMOVE, &[&ids, &hidden]).await?;
    Ok(())
}

/// Marks time of series: its rollups will be computed again. Without an ID: those of all series.
pub(crate) async fn mark_late(
    client: &Client,
    marks: &[(Option<i64>, (i64, i64))],
) -> Result<(), DatabaseError> {
    if marks.is_empty() {
        return Ok(());
    }
    let ids: Vec<Option<i64>> = marks.iter().map(|(id, _)| *id).collect();
    let first: Vec<i64> = marks.iter().map(|(_, (first, _))| *first).collect();
    let last: Vec<i64> = marks.iter().map(|(_, (_, last))| *last).collect();
    let put = "INSERT INTO jobmeter.late (series_id, first_us, last_us) \
               SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[])";
    client.execute(put, &[&ids, &first, &last]).await?;
    Ok(())
}
