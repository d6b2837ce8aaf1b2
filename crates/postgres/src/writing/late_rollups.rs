//! Computes the rollups of settled time, and again where samples arrived later (decision 0055).

use crate::connection::DatabaseError;
use crate::copy::FIRST_US;
use crate::reading::view::View;
use crate::rollup_rows::RollupRows;
use crate::schema;
use crate::writing::discovery::look_at;
use crate::writing::maintenance_connection::MaintenanceConnection;
use crate::writing::partitions::{floor, literal};
use crate::writing::retention::SUMMARY;
use crate::writing::rollup_partitions;
use model::{DeviceId, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use storage::{Selector, Snapshot, StorageError, WINDOWS_US};

/// Ranges begin and end at multiples of the longest window.
pub(super) const GRAIN_US: i64 = WINDOWS_US[1];
/// Rollups that one statement writes.
const ROLLUPS_MAX: usize = 10_000;
/// Marks that are read at a time.
const MARKS: &str = "SELECT late.id, late.first_us, late.last_us, device_id, metric_id FROM jobmeter.late \
                     LEFT JOIN jobmeter.series ON series.id = series_id ORDER BY late.id LIMIT 10000";
const REMOVE_MARKS: &str = "DELETE FROM jobmeter.late WHERE id = ANY ($1)";
const REMOVE_ROLLUPS: &str = "DELETE FROM jobmeter.rollups WHERE at_us BETWEEN $1 AND $2";

/// Series with late samples in one range; without names: all series.
#[derive(Debug, Default)]
struct Late {
    marks: Vec<i64>,
    devices: BTreeSet<DeviceId>,
    metrics: BTreeSet<Arc<str>>,
    is_all: bool,
}

/// Computes the marked rollups of settled time again.
pub(crate) fn recompute(connection: &MaintenanceConnection<'_>) -> Result<(), StorageError> {
    let shared = connection.shared;
    loop {
        let ranges = marked(connection)?;
        if ranges.is_empty() {
            return Ok(());
        }
        let removed = shared.runtime.block_on(schema::state(&connection.client))?.removed_us;
        let settled = shared.settled().map_or(i64::MIN, |settled| settled.0);
        for ((first, last), late) in ranges {
            if shared.closing.is_closed() {
                return Ok(());
            }
            if late.is_all {
                look_at(connection, (first, last))?;
                let flushed = shared.flushed.wait(|| shared.queue.wake());
                flushed.map_err(StorageError::Unavailable)?;
            }
            // Windows whose samples are deleted stay, and later ones are computed when they are read.
            let span = (first.max(removed), last.min(settled.saturating_sub(1)));
            if !rollup_partitions::create(connection, (span.0, span.1.saturating_add(1)))? {
                // Other transactions use the table; the next maintenance does it.
                return Ok(());
            }
            recompute_range(connection, span, late)?;
        }
    }
}

fn recompute_range(
    connection: &MaintenanceConnection<'_>,
    (first, last): (i64, i64),
    late: Late,
) -> Result<(), StorageError> {
    let Late { marks, devices, metrics, is_all } = late;
    let selector = match is_all {
        true => Selector::default(),
        false => Selector { devices: Some(devices), metrics: Some(metrics), ..Selector::default() },
    };
    connection.transaction(|| {
        if first <= last {
            if is_all {
                connection.query(REMOVE_ROLLUPS, &[&first, &last])?;
            }
            write(connection, &selector, (first, last))?;
        }
        connection.query(REMOVE_MARKS, &[&marks])?;
        Ok::<_, StorageError>(())
    })?;
    Ok(refresh_summary(connection, (first, last))?)
}

/// Has TimescaleDB compute a continuous aggregate again: its own policy reads the last hours alone. Ranges are whole windows.
pub(super) fn refresh_summary(
    connection: &MaintenanceConnection<'_>,
    (first, last): (i64, i64),
) -> Result<(), DatabaseError> {
    let is_aggregate =
        connection.shared.runtime.block_on(database::has_aggregate(&connection.client))?;
    if first > last || !is_aggregate {
        return Ok(());
    }
    let (from, to) = (literal(first.max(FIRST_US)), literal(last.saturating_add(1)));
    let refresh = format!("CALL refresh_continuous_aggregate('{SUMMARY}', {from}, {to})");
    match connection.execute(&refresh) {
        // Earlier versions cannot change compressed windows; rollups have them.
        Err(DatabaseError::Rejected(why)) => log::warn!("{refresh}: {why}"),
        other => other?,
    }
    Ok(())
}

/// The marked ranges, each of whole windows.
fn marked(
    connection: &MaintenanceConnection<'_>,
) -> Result<BTreeMap<(i64, i64), Late>, DatabaseError> {
    let mut ranges: BTreeMap<(i64, i64), Late> = BTreeMap::new();
    for row in connection.query(MARKS, &[])? {
        let (first, last): (i64, i64) = (row.try_get(1)?, row.try_get(2)?);
        let end = floor(last, GRAIN_US).saturating_add(GRAIN_US - 1);
        let late = ranges.entry((floor(first, GRAIN_US), end)).or_default();
        late.marks.push(row.try_get(0)?);
        let device = row.try_get::<_, Option<&str>>(3)?.and_then(DeviceId::foreign);
        match (device, row.try_get::<_, Option<&str>>(4)?) {
            (Some(device), Some(metric)) => {
                late.devices.insert(device);
                late.metrics.insert(metric.into());
            }
            _ => late.is_all = true,
        }
    }
    Ok(ranges)
}

/// Computes the rollups of a selection between two instants from samples, and writes them.
pub(super) fn write(
    connection: &MaintenanceConnection<'_>,
    selector: &Selector,
    (first, last): (i64, i64),
) -> Result<(), StorageError> {
    let MaintenanceConnection { shared, client, .. } = connection;
    let (first, last) = (Timestamp(first), Timestamp(last));
    for window_us in WINDOWS_US {
        let mut rows = RollupRows::default();
        for found in View::recomputing(shared).windows(selector, first, last, window_us) {
            let found = found?;
            let id = shared.series().get(&found.series.series).map(|stored| stored.id);
            let Some(id) = id else { continue };
            found.windows.iter().for_each(|(start, rollup)| rows.push(id, *start, rollup));
            if rows.count() >= ROLLUPS_MAX {
                shared.runtime.block_on(std::mem::take(&mut rows).put(client, window_us))?;
            }
        }
        shared.runtime.block_on(rows.put(client, window_us))?;
    }
    Ok(())
}
