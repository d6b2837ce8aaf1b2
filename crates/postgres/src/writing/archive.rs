//! Moves old partitions and chunks of samples into a tablespace on another file system (decision 0013).

use crate::connection::DatabaseError;
use crate::copy::Micros;
use crate::writing::maintenance_connection::{LOCK_BRIEFLY, MaintenanceConnection};
use crate::writing::partitions::{Partition, Shape, TABLES, shape};
use crate::writing::retention::SUMMARY;
use crate::writing::rollup_partitions;
use storage::WINDOWS_US;

/// A partition and its indexes, as far as they are in another tablespace.
const OUTSIDE: &str = "SELECT 'ALTER ' || CASE relkind WHEN 'r' THEN 'TABLE ' ELSE 'INDEX ' END || c.oid::regclass \
    || ' SET TABLESPACE ' || quote_ident($2) \
    FROM pg_class AS c LEFT JOIN pg_tablespace AS t ON t.oid = reltablespace \
    WHERE (c.oid = $1::text::regclass \
        OR c.oid IN (SELECT indexrelid FROM pg_index WHERE indrelid = $1::text::regclass)) \
    AND relkind IN ('r', 'i') AND spcname::text IS DISTINCT FROM $2 ORDER BY relkind DESC, c.oid";

/// Chunks of TimescaleDB that are in another tablespace.
const CHUNKS_OUTSIDE: &str = "SELECT chunk::regclass::text FROM show_chunks($1::text::regclass, older_than => $2::timestamptz) AS chunk \
    JOIN pg_class AS c ON c.oid = chunk LEFT JOIN pg_tablespace AS t ON t.oid = reltablespace \
    WHERE spcname::text IS DISTINCT FROM $3";
const MOVE_CHUNK: &str = "SELECT move_chunk(chunk => $1::text::regclass, destination_tablespace => $2::text::name, \
    index_destination_tablespace => $2::text::name)::text";

/// Moves partitions with samples before an instant, if these have rollups. A partition in use is moved later. Queries of its time
/// wait while it is copied.
pub(crate) fn move_old(
    connection: &MaintenanceConnection<'_>,
    tablespace: &str,
    before: i64,
    settled: i64,
) -> Result<(), DatabaseError> {
    let mut result = Ok(());
    for table in TABLES {
        let shape = connection.shared.runtime.block_on(shape(&connection.client, table))?;
        let moved = match shape {
            Shape::Plain => Ok(()),
            Shape::Hypertable => move_chunks(connection, table, tablespace, before, Some(settled)),
            Shape::Partitioned(partitions) => {
                let is_old = |one: &&Partition| one.to <= before && !one.is_foreign;
                let old = partitions.list.iter().filter(is_old);
                old.map(|one| move_one(connection, &one.name, tablespace, Some(settled)))
                    .fold(Ok(()), Result::and)
            }
        };
        result = result.and(moved);
    }
    // The windows of the summary are archived with their samples. Those of an hour remain.
    for one in rollup_partitions::old(connection, WINDOWS_US[0], before.min(settled))? {
        result = result.and(move_one(connection, &one.name, tablespace, None));
    }
    if connection.shared.runtime.block_on(database::has_aggregate(&connection.client))? {
        let moved = move_chunks(connection, SUMMARY, tablespace, before, None);
        result = result.and(moved);
    }
    result
}

/// Moves the chunks of a hypertable or a continuous aggregate.
fn move_chunks(
    connection: &MaintenanceConnection<'_>,
    table: &str,
    tablespace: &str,
    before: i64,
    settled: Option<i64>,
) -> Result<(), DatabaseError> {
    let mut result = Ok(());
    let before = Micros(before);
    for row in connection.query(CHUNKS_OUTSIDE, &[&table, &before, &tablespace])? {
        let chunk: String = row.try_get(0)?;
        let moved = later(connection, &chunk, || {
            if is_unsettled(connection, &chunk, settled)? {
                return Ok(());
            }
            connection.execute(LOCK_BRIEFLY)?;
            connection.query(MOVE_CHUNK, &[&chunk, &tablespace]).map(drop)
        });
        result = result.and(moved);
    }
    result
}

/// Moves a partition in a transaction.
fn move_one(
    connection: &MaintenanceConnection<'_>,
    partition: &str,
    tablespace: &str,
    settled: Option<i64>,
) -> Result<(), DatabaseError> {
    later(connection, partition, || {
        let statements = connection.query(OUTSIDE, &[&partition, &tablespace])?;
        if statements.is_empty() || is_unsettled(connection, partition, settled)? {
            return Ok(());
        }
        connection.execute(LOCK_BRIEFLY)?;
        statements.iter().try_for_each(|statement| connection.execute(statement.try_get(0)?))
    })
}

/// One transaction. If others use the table, it is tried again by the next maintenance.
fn later(
    connection: &MaintenanceConnection<'_>,
    table: &str,
    work: impl FnOnce() -> Result<(), DatabaseError>,
) -> Result<(), DatabaseError> {
    match connection.transaction(work) {
        Err(DatabaseError::Busy(why)) => {
            log::debug!("{table} moves later: {why}");
            Ok(())
        }
        other => other,
    }
}

/// Whether a table has samples without rollups: those from the settled time on. Tables of windows have none.
fn is_unsettled(
    connection: &MaintenanceConnection<'_>,
    table: &str,
    settled: Option<i64>,
) -> Result<bool, DatabaseError> {
    let Some(settled) = settled else { return Ok(false) };
    let unsettled = format!("SELECT FROM {table} WHERE timestamp >= $1 LIMIT 1");
    Ok(!connection.query(&unsettled, &[&Micros(settled)])?.is_empty())
}
