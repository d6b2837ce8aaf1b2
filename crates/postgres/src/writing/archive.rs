//! Moves old partitions of samples into a tablespace on another file system (decision 0013).

use crate::connection::DatabaseError;
use crate::copy::Micros;
use crate::writing::maintenance_connection::{LOCK_BRIEFLY, MaintenanceConnection};
use crate::writing::partitions::{Partition, Shape, TABLES, shape};

/// A partition and its indexes, as far as they are in another tablespace.
const OUTSIDE: &str = "SELECT 'ALTER ' || CASE relkind WHEN 'r' THEN 'TABLE ' ELSE 'INDEX ' END || c.oid::regclass \
    || ' SET TABLESPACE ' || quote_ident($2) \
    FROM pg_class AS c LEFT JOIN pg_tablespace AS t ON t.oid = reltablespace \
    WHERE (c.oid = $1::text::regclass \
        OR c.oid IN (SELECT indexrelid FROM pg_index WHERE indrelid = $1::text::regclass)) \
    AND relkind IN ('r', 'i') AND spcname::text IS DISTINCT FROM $2 ORDER BY relkind DESC, c.oid";

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
        let Shape::Partitioned(partitions) = shape else { continue };
        let is_old = |one: &&Partition| one.to <= before && !one.is_foreign;
        for Partition { name, .. } in partitions.list.iter().filter(is_old) {
            match connection.transaction(|| move_one(connection, name, tablespace, settled)) {
                Err(DatabaseError::Busy(why)) => log::debug!("{name} moves later: {why}"),
                other => result = result.and(other),
            }
        }
    }
    result
}

fn move_one(
    connection: &MaintenanceConnection<'_>,
    partition: &str,
    tablespace: &str,
    settled: i64,
) -> Result<(), DatabaseError> {
    let statements = connection.query(OUTSIDE, &[&partition, &tablespace])?;
    if statements.is_empty() {
        return Ok(());
    }
    let unsettled = format!("SELECT FROM {partition} WHERE timestamp >= $1 LIMIT 1");
    if !connection.query(&unsettled, &[&Micros(settled)])?.is_empty() {
        return Ok(());
    }
    connection.execute(LOCK_BRIEFLY)?;
    statements.iter().try_for_each(|statement| connection.execute(statement.try_get(0)?))
}
