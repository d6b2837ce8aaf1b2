//! Looks for series in rows that no trigger recorded, from the newest to the oldest (decision 0055).

use crate::connection::DatabaseError;
use crate::copy::Micros;
use crate::other_rows::{self, FOUND, LOOKED, OtherRows};
use crate::writing::maintenance_connection::MaintenanceConnection;
use crate::writing::partitions::floor;
use model::Timestamp;
use std::sync::Arc;
use storage::StorageError;
use tokio_postgres::types::ToSql;

/// Time that is looked at in one statement.
const STEP_US: i64 = 6 * 3600 * Timestamp::SECOND;
const NEWEST: &str = "SELECT max(timestamp) FROM metrics WHERE timestamp BETWEEN $1 AND $2";
const SET_LOOKED: &str = "UPDATE jobmeter.state SET looked_us = $1, rows_hidden = rows_hidden + $2";
/// Rows with an instant that no answer can have.
const UNTIMED: &str = "SELECT rows_hidden + (SELECT count(*) FROM metrics WHERE timestamp < $1) \
    + (SELECT count(*) FROM metrics WHERE timestamp > $2) \
    + (SELECT count(*) FROM metrics WHERE timestamp IS NULL) FROM jobmeter.state";

/// Registers the series of all rows that nothing recorded. Returns whether the store is not closing.
pub(crate) fn look(connection: &MaintenanceConnection<'_>) -> Result<bool, StorageError> {
    let MaintenanceConnection { shared, client, .. } = connection;
    // The writer's transactions hold a lock that the trigger's creation needs.
    if !connection.pausing(|| connection.wait(other_rows::record(client)))? {
        return Ok(true);
    }
    while let Some((from, to)) = next(connection)? {
        if shared.closing.is_closed() {
            return Ok(false);
        }
        let book = shared.series().source();
        let hidden = look_at(connection, (from, to))?;
        // The series are in their table before they count as registered.
        let flushed = shared.flushed.wait(|| shared.queue.wake());
        flushed.map_err(StorageError::Unavailable)?;
        if Arc::ptr_eq(&book, &shared.series().source()) {
            connection.query(SET_LOOKED, &[&from, &hidden])?;
        }
    }
    let hidden = connection.number(UNTIMED, &[&Micros(i64::MIN), &Micros(i64::MAX)])?;
    shared.stats().rows_hidden = u64::try_from(hidden).unwrap_or(0);
    Ok(true)
}

/// Registers the series of a time range, whether they were registered or not. Returns the number of rows that cannot be shown.
pub(crate) fn look_at(
    connection: &MaintenanceConnection<'_>,
    (from, to): (i64, i64),
) -> Result<i64, DatabaseError> {
    let any: Option<Vec<String>> = None;
    let mut hidden = 0_u64;
    for row in connection.query(FOUND, &[&Micros(from), &Micros(to), &any, &any])? {
        let found = OtherRows::of(&row)?;
        if !connection.shared.series().register(&found) {
            hidden += found.rows;
        }
    }
    Ok(i64::try_from(hidden).unwrap_or(i64::MAX))
}

/// The newest range that was not looked at. Without rows in it, all of it was.
fn next(connection: &MaintenanceConnection<'_>) -> Result<Option<(i64, i64)>, DatabaseError> {
    let one = |statement: &str, values: &[&(dyn ToSql + Sync)]| {
        let rows = connection.query(statement, values)?;
        Ok::<_, DatabaseError>(rows.into_iter().next())
    };
    let looked = one(LOOKED, &[])?.map(|row| row.try_get::<_, Option<i64>>(0)).transpose()?;
    let looked = looked.flatten().unwrap_or(i64::MAX);
    if looked == i64::MIN {
        return Ok(None);
    }
    let to = looked.saturating_sub(1);
    let newest = one(NEWEST, &[&Micros(i64::MIN), &Micros(to)])?;
    let newest = newest.map(|row| row.try_get::<_, Option<Micros>>(0)).transpose()?.flatten();
    let from = newest.map_or(i64::MIN, |newest| floor(newest.0, STEP_US));
    Ok(Some((from, to)))
}
