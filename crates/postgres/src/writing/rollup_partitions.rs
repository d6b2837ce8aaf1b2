//! Partitions of the rollups: one for each length of windows and range of time, so retention drops whole ones (decision 0056).

use crate::connection::DatabaseError;
use crate::writing::maintenance_connection::{LOCK_BRIEFLY, MaintenanceConnection};
use crate::writing::partitions::{Partition, floor, free_name, interval_us, uncovered};
use model::Timestamp;
use storage::WINDOWS_US;

/// Intervals of samples that a partition of each length of windows has.
const INTERVALS: [i64; WINDOWS_US.len()] = [4, 48];
/// Rollups of earlier time have no partition of their own: samples of centuries must not make thousands of them.
const BEHIND_US: i64 = 400 * 24 * 3600 * Timestamp::SECOND;
const PARTITIONS: &str = r"
SELECT c.oid::regclass::text, bound[1]::bigint, bound[2]::bigint, bound[3]::bigint
FROM pg_inherits JOIN pg_class AS c ON c.oid = inhrelid CROSS JOIN LATERAL regexp_match(pg_get_expr(c.relpartbound, c.oid),
    $$FROM \('(\d+)', '(-?\d+)'\) TO \('\d+', '(-?\d+)'\)$$) AS bound
WHERE inhparent = to_regclass('jobmeter.rollups') ORDER BY 2, 3";
const LAST_OF_DEFAULT: &str = "SELECT coalesce(max(at_us), $2) FROM jobmeter.rollups_default \
    WHERE window_us = $1 AND at_us >= $2 AND at_us < $3";
const HAS_DEFAULT: &str = "SELECT count(*) FROM (SELECT FROM pg_class WHERE oid = to_regclass('jobmeter.rollups_default')) AS one";
const REMOVE: &str = "DELETE FROM {table} WHERE window_us = $1 AND at_us < $2";
/// The bound that a new partition has, while the database verifies that the default partition has none of its rows.
const ABSENT: &str = "jobmeter_absent";

/// Creates the partitions of the rollups of a time range. Returns false if others use the table: such rollups are written later.
pub(crate) fn create(
    connection: &MaintenanceConnection<'_>,
    (from, to): (i64, i64),
) -> Result<bool, DatabaseError> {
    if connection.number(HAS_DEFAULT, &[])? == 0 {
        return Ok(true);
    }
    let (client, shared) = (&connection.client, connection.shared);
    let interval = shared.runtime.block_on(interval_us(client))?;
    let from = from.max(shared.now().0.saturating_sub(BEHIND_US));
    for (window_us, number) in WINDOWS_US.into_iter().zip(INTERVALS) {
        let (list, length) = (partitions(connection, window_us)?, interval.saturating_mul(number));
        for cell in uncovered(&list, (floor(from, length), to), length) {
            // An earlier version of the schema had all rollups in what is the default partition now.
            let last = connection.number(LAST_OF_DEFAULT, &[&window_us, &cell.0, &cell.1])?;
            let first = if last > cell.0 { last.saturating_add(window_us) } else { cell.0 };
            if first < cell.1 && !create_one(connection, window_us, (first, cell.1))? {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Deletes the rollups of a length of windows before an instant. A partition is deleted when all of it is older.
pub(crate) fn remove(
    connection: &MaintenanceConnection<'_>,
    window_us: i64,
    before: i64,
) -> Result<(), DatabaseError> {
    for Partition { name, .. } in old(connection, window_us, before)? {
        if !connection.change(|| Ok(()), |()| connection.execute(&format!("DROP TABLE {name}")))? {
            log::debug!("{name} is too old, but in use");
        }
    }
    // Rows of a partition that is not all too old remain.
    let has_default = connection.number(HAS_DEFAULT, &[])? > 0;
    let table = if has_default { "jobmeter.rollups_default" } else { "jobmeter.rollups" };
    connection.query(&REMOVE.replace("{table}", table), &[&window_us, &before]).map(drop)
}

/// The partitions of a length of windows that end before an instant.
pub(crate) fn old(
    connection: &MaintenanceConnection<'_>,
    window_us: i64,
    before: i64,
) -> Result<Vec<Partition>, DatabaseError> {
    let mut old = partitions(connection, window_us)?;
    old.retain(|one| one.to <= before);
    Ok(old)
}

fn partitions(
    connection: &MaintenanceConnection<'_>,
    window_us: i64,
) -> Result<Vec<Partition>, DatabaseError> {
    let mut list = Vec::new();
    for row in connection.query(PARTITIONS, &[])? {
        if row.try_get::<_, Option<i64>>(1)? == Some(window_us) {
            let (from, to) = (row.try_get(2)?, row.try_get(3)?);
            list.push(Partition { name: row.try_get(0)?, from, to, is_foreign: false });
        }
    }
    Ok(list)
}

/// Creates a partition. The default partition is read without an exclusive lock, to verify that it has no row of it.
fn create_one(
    connection: &MaintenanceConnection<'_>,
    window_us: i64,
    (from, to): (i64, i64),
) -> Result<bool, DatabaseError> {
    let table = format!("rollups_{}s", window_us / Timestamp::SECOND);
    let runtime = &connection.shared.runtime;
    let name = runtime.block_on(free_name(&connection.client, &table, (from, to)))?;
    let absent = format!(
        "ALTER TABLE jobmeter.rollups_default DROP CONSTRAINT IF EXISTS {ABSENT}, ADD CONSTRAINT {ABSENT} \
         CHECK (window_us <> {window_us} OR at_us < {from} OR at_us >= {to}) NOT VALID"
    );
    if !connection.change(|| Ok(()), |()| connection.execute(&absent))? {
        return Ok(false);
    }
    connection
        .execute(&format!("ALTER TABLE jobmeter.rollups_default VALIDATE CONSTRAINT {ABSENT}"))?;
    let create =
        format!("{LOCK_BRIEFLY}; CREATE TABLE {name} (LIKE jobmeter.rollups INCLUDING ALL)");
    let attach = format!(
        "ALTER TABLE jobmeter.rollups ATTACH PARTITION {name} FOR VALUES FROM ({window_us}, {from}) TO ({window_us}, {to}); \
         ALTER TABLE jobmeter.rollups_default DROP CONSTRAINT {ABSENT}"
    );
    connection.change(|| connection.execute(&create), |()| connection.execute(&attach))
}
