//! Rollups of settled time that are computed again, because samples arrived later (decision 0055).

use crate::connection::DatabaseError;
use crate::schema;
use crate::writing::discovery;
use crate::writing::maintenance::{GRAIN_US, write};
use crate::writing::maintenance_connection::MaintenanceConnection;
use crate::writing::partitions::floor;
use model::DeviceId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use storage::{Selector, StorageError};
use tokio_postgres::Client;

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
    let MaintenanceConnection { shared, client } = connection;
    loop {
        let ranges = shared.runtime.block_on(marked(client))?;
        if ranges.is_empty() {
            return Ok(());
        }
        let removed = shared.runtime.block_on(schema::state(client))?.removed_us;
        let settled = shared.settled().map_or(i64::MIN, |settled| settled.0);
        for ((first, last), late) in ranges {
            if shared.closing.is_closed() {
                return Ok(());
            }
            if late.is_all {
                let found = discovery::look_at(shared, client, (first, last));
                shared.runtime.block_on(found)?;
                let flushed = shared.flushed.wait(|| shared.queue.wake());
                flushed.map_err(StorageError::Unavailable)?;
            }
            // Windows whose samples are deleted stay, and later ones are computed when they are read.
            let span = (first.max(removed), last.min(settled.saturating_sub(1)));
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
        Ok(())
    })
}

/// The marked ranges, each of whole windows.
async fn marked(client: &Client) -> Result<BTreeMap<(i64, i64), Late>, DatabaseError> {
    let mut ranges: BTreeMap<(i64, i64), Late> = BTreeMap::new();
    for row in client.query(MARKS, &[]).await? {
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
