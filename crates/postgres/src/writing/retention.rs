//! Deletes samples that are too old: whole partitions or chunks, and rows of what has none. Then series of which nothing is left.

use crate::connection::DatabaseError;
use crate::copy::Micros;
use crate::writing::maintenance_connection::{LOCK_BRIEFLY, MaintenanceConnection};
use crate::writing::partitions::{Partition, Partitions, Shape, TABLES, shape};
use std::collections::BTreeSet;
use storage::WINDOWS_US;

const COUNT: &str =
    "UPDATE jobmeter.state SET samples_removed = samples_removed + $1 RETURNING samples_removed";
/// The oldest sample from an instant on.
pub(crate) const OLDEST: &str = "SELECT least((SELECT min(timestamp) FROM metrics WHERE timestamp >= $1), \
    (SELECT min(timestamp) FROM jobmeter.job_metrics WHERE timestamp >= $1))";
const REMOVE_SERIES: &str = "WITH removed AS (DELETE FROM jobmeter.series WHERE id = ANY ($1) AND NOT EXISTS ( \
        SELECT FROM jobmeter.rollups WHERE window_us = ANY ($2) AND series_id = id AND at_us <= $3) RETURNING id), \
    starts AS (DELETE FROM jobmeter.starts USING removed WHERE series_id = id) \
    SELECT id FROM removed";
/// Series that one statement deletes.
const SERIES_MAX: usize = 10_000;
/// Kwollect's windows of five minutes, if they are a continuous aggregate.
pub(crate) const SUMMARY: &str = "metrics_summary";
const CHUNKS: &str = "SELECT chunk::regclass::text FROM show_chunks($1::text::regclass, older_than => $2::timestamptz) AS chunk";
const DROP_CHUNKS: &str =
    "SELECT drop_chunks($1::text::regclass, older_than => $2::timestamptz)::text";

/// Deletes the samples before an instant, and counts them. Samples that are not settled yet have no rollups, and remain. A
/// partition or chunk is deleted when all of it is older.
pub(crate) fn remove(
    connection: &MaintenanceConnection<'_>,
    before: i64,
    settled: i64,
) -> Result<(), DatabaseError> {
    let limit = Limit { before, settled };
    let mut result = Ok(());
    for table in TABLES {
        let shape = connection.shared.runtime.block_on(shape(&connection.client, table))?;
        let removed = match shape {
            Shape::Plain => remove_rows(connection, table, limit),
            Shape::Hypertable => remove_chunks(connection, table, limit),
            Shape::Partitioned(partitions) => {
                remove_partitions(connection, table, &partitions, limit)
            }
        };
        result = result.and(removed);
    }
    let removed = connection.number("SELECT samples_removed FROM jobmeter.state", &[])?;
    connection.shared.stats().samples_removed = u64::try_from(removed).unwrap_or(0);
    result
}

/// Drops chunks of windows before an instant, where the summary is a continuous aggregate.
pub(crate) fn remove_summary(
    connection: &MaintenanceConnection<'_>,
    before: i64,
) -> Result<(), DatabaseError> {
    if connection.shared.runtime.block_on(database::has_aggregate(&connection.client))? {
        connection.query(DROP_CHUNKS, &[&SUMMARY, &Micros(before)])?;
    }
    Ok(())
}

/// Forgets series that ended before an instant, if all of their samples and rollups are deleted. One that comes back is a new one.
pub(crate) fn remove_series(
    connection: &MaintenanceConnection<'_>,
    before: i64,
) -> Result<(), DatabaseError> {
    let shared = connection.shared;
    let ended = |before| shared.series().ended_before(before, shared.opened);
    if ended(before).is_empty() {
        return Ok(());
    }
    // The writer adds no sample of them meanwhile.
    connection.pausing(|| {
        let oldest = connection.query(OLDEST, &[&Micros(i64::MIN)])?;
        let oldest = oldest.first().map(|row| row.try_get::<_, Option<Micros>>(0)).transpose()?;
        let before = oldest.flatten().map_or(before, |oldest| oldest.0.min(before));
        let mut ids = ended(before);
        ids.truncate(SERIES_MAX);
        // Later windows have no sample of them.
        let rows = connection.query(REMOVE_SERIES, &[&ids, &WINDOWS_US.as_slice(), &before])?;
        let removed =
            rows.iter().map(|row| row.try_get(0)).collect::<Result<BTreeSet<i64>, _>>()?;
        shared.series().remove(&removed);
        Ok(())
    })
}

/// What may be deleted.
#[derive(Clone, Copy)]
struct Limit {
    before: i64,
    settled: i64,
}

fn remove_rows(
    connection: &MaintenanceConnection<'_>,
    table: &str,
    limit: Limit,
) -> Result<(), DatabaseError> {
    let text = format!(
        "WITH removed AS (DELETE FROM {table} WHERE timestamp < $1 RETURNING 1) \
         UPDATE jobmeter.state SET samples_removed = samples_removed + (SELECT count(*) FROM removed) \
         RETURNING samples_removed"
    );
    let before = Micros(limit.before.min(limit.settled));
    connection.number(&text, &[&before]).map(drop)
}

/// One that cannot be dropped, for example as a view reads it, does not stop the others.
fn remove_partitions(
    connection: &MaintenanceConnection<'_>,
    table: &str,
    partitions: &Partitions,
    limit: Limit,
) -> Result<(), DatabaseError> {
    let mut result = Ok(());
    let is_old = |one: &&Partition| one.to <= limit.before && !one.is_foreign;
    for Partition { name, .. } in partitions.list.iter().filter(is_old) {
        if !connection.is_free(table)? {
            log::debug!("partitions of {table} are too old, but in use");
            break;
        }
        let drop = || connection.execute(&format!("DROP TABLE {name}"));
        match remove_tables(connection, limit, || Ok(vec![name.clone()]), drop) {
            Ok(true) => {}
            Ok(false) => {
                log::debug!("{name} is too old, but in use, or has samples without rollups")
            }
            Err(error) => result = result.and(Err(error)),
        }
    }
    if let Some(default) = &partitions.default {
        result = result.and(remove_rows(connection, default, limit));
    }
    result
}

fn remove_chunks(
    connection: &MaintenanceConnection<'_>,
    table: &str,
    limit: Limit,
) -> Result<(), DatabaseError> {
    let before = Micros(limit.before);
    let chunks = || {
        let rows = connection.query(CHUNKS, &[&table, &before])?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    };
    let drop = || connection.query(DROP_CHUNKS, &[&table, &before]).map(drop);
    remove_tables(connection, limit, chunks, drop).map(|_| ())
}

/// Counts the samples of tables, and drops these. Nobody writes into them meanwhile, so the number is exact.
fn remove_tables(
    connection: &MaintenanceConnection<'_>,
    limit: Limit,
    tables: impl FnOnce() -> Result<Vec<String>, DatabaseError>,
    drop: impl Fn() -> Result<(), DatabaseError>,
) -> Result<bool, DatabaseError> {
    let count = || {
        connection.execute(LOCK_BRIEFLY)?;
        let mut samples = 0;
        for table in tables()? {
            connection.execute(&format!("LOCK TABLE {table} IN SHARE MODE"))?;
            let text = format!("SELECT count(*), max(timestamp) FROM {table}");
            for row in connection.query(&text, &[])? {
                samples += row.try_get::<_, i64>(0)?;
                let newest: Option<Micros> = row.try_get(1)?;
                if newest.is_some_and(|newest| newest.0 >= limit.settled) {
                    return Err(DatabaseError::Busy(format!("{table} has unsettled samples")));
                }
            }
        }
        Ok(samples)
    };
    connection.change(count, |samples| {
        drop()?;
        connection.number(COUNT, &[samples]).map(|_| ())
    })
}
