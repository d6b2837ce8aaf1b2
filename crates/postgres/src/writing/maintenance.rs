//! Settles time, and deletes what is older than its limit (decisions 0011 and 0012).

use crate::connection::DatabaseError;
use crate::copy::Micros;
use crate::shared::{Settings, Shared};
use crate::writing::archive::move_old;
use crate::writing::discovery::look;
use crate::writing::late_rollups::{GRAIN_US, recompute, refresh_summary, write};
use crate::writing::maintenance_connection::MaintenanceConnection;
use crate::writing::partition_drain::drain;
use crate::writing::partitions::{TABLES, create_ahead, floor};
use crate::writing::retention::{OLDEST, remove, remove_series, remove_summary};
use crate::writing::rollup_partitions;
use model::Timestamp;
use std::sync::Arc;
use std::time::Duration;
use storage::{Selector, StorageError, WINDOWS_US};

const SET_REMOVED: &str = "UPDATE jobmeter.state SET removed_us = greatest(removed_us, $1)";
/// Returns the number of the transaction.
const PUBLISH: &str = "UPDATE jobmeter.state SET settling_us = greatest(settling_us, $1) \
                       RETURNING pg_current_xact_id()::text::bigint";
/// The oldest transaction that writes.
const OLDEST_WRITER: &str = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint";
/// For up to ten seconds.
const PUBLISH_TRIES: u32 = 500;
const PUBLISH_WAIT: Duration = Duration::from_millis(20);
/// A continuous aggregate is refreshed when later time than this is settled. Of earlier time, such as that before an adoption, it has what
/// its site made it have.
const REFRESH_US: i64 = 3 * 24 * GRAIN_US;

/// Does all due maintenance. A part that fails does not stop the others.
pub(crate) fn maintain(shared: &Arc<Shared>) -> Result<(), StorageError> {
    let connection = MaintenanceConnection::open(shared)?;
    let created =
        connection.pausing(|| connection.wait(create_ahead(&connection.client, shared.now())));
    let settled = register_and_settle(&connection);
    let settled = settled.and(remove_old(&connection));
    let drained = TABLES.iter().map(|table| drain(&connection, table));
    let drained = drained.fold(Ok(()), Result::and);
    created.map_err(StorageError::from).and(settled).and(drained.map_err(StorageError::from))
}

/// Registers the series of rows that nothing recorded, settles what is due, and computes late rollups again.
fn register_and_settle(connection: &MaintenanceConnection<'_>) -> Result<(), StorageError> {
    if look(connection)? {
        settle_due(connection)?;
        recompute(connection)?;
    }
    Ok(())
}

/// Settles what is due, range by range.
fn settle_due(connection: &MaintenanceConnection<'_>) -> Result<(), StorageError> {
    let shared = connection.shared;
    let Settings { settle_after_us, settle_step_us, rejects_late, .. } = shared.settings;
    let Some(now) = now(shared) else { return Ok(()) };
    let late = floor(now.saturating_sub(settle_after_us), settle_step_us);
    if next_range(connection, late)?.is_none() || !publish(connection, late)? {
        return Ok(());
    }
    while let Some((from, to)) = next_range(connection, late)? {
        if shared.closing.is_closed() {
            break;
        }
        if !rollup_partitions::create(connection, (from, to))? {
            log::debug!("rollups wait: other transactions use their table");
            break;
        }
        let settled = settle(connection, from, to);
        if settled.is_err() && rejects_late {
            shared.books().settled = shared.settled().unwrap_or(Timestamp(i64::MIN));
        }
        settled?;
        if now.saturating_sub(to) < REFRESH_US {
            refresh_summary(connection, (from, to - 1))?;
        }
    }
    Ok(())
}

/// The time of retention. A clock that is ahead deletes nothing: it counts as at most an hour after the newest sample of a
/// sender. Without senders, after the newest row.
fn now(shared: &Shared) -> Option<i64> {
    let (_, newest) = {
        let book = shared.series();
        book.extent().or(book.others())?
    };
    Some(shared.now().0.min(newest.saturating_add(GRAIN_US)))
}

/// Publishes that earlier rows are late, and waits for the transactions that do not see it. Returns false if one of them
/// runs for long.
fn publish(connection: &MaintenanceConnection<'_>, late: i64) -> Result<bool, StorageError> {
    let shared = connection.shared;
    *shared.settling.lock() = late;
    // A transaction of the writer that began before has samples of the time.
    drop(shared.committing.lock());
    let own = connection.number(PUBLISH, &[&late])?;
    for _ in 0..PUBLISH_TRIES {
        if connection.number(OLDEST_WRITER, &[])? > own {
            return Ok(true);
        }
        if shared.closing.wait(PUBLISH_WAIT) {
            break;
        }
    }
    Ok(false)
}

/// Deletes what is older than its limit.
fn remove_old(connection: &MaintenanceConnection<'_>) -> Result<(), StorageError> {
    let shared = connection.shared;
    let keep_rollups_us = shared.settings.keep_rollups_us;
    let archive = shared.settings.archive.as_ref();
    let keep_samples_us =
        archive.map_or(shared.settings.keep_samples_us, |archive| archive.keep_us);
    let Some(now) = now(shared) else { return Ok(()) };
    let removed = match (keep_samples_us, shared.settled()) {
        (i64::MAX, _) | (_, None) => Ok(()),
        (keep_us, Some(Timestamp(settled))) => {
            let before = floor(now.saturating_sub(keep_us), GRAIN_US);
            connection.query(SET_REMOVED, &[&before.min(settled)])?;
            remove(connection, before, settled)
        }
    };
    for (window_us, keep_us) in WINDOWS_US.into_iter().zip(keep_rollups_us) {
        if keep_us < i64::MAX {
            rollup_partitions::remove(connection, window_us, now.saturating_sub(keep_us))?;
        }
    }
    if keep_rollups_us[0] < i64::MAX {
        remove_summary(connection, now.saturating_sub(keep_rollups_us[0]))?;
    }
    removed?;
    if let (Some(archive), Some(Timestamp(settled))) = (archive, shared.settled()) {
        let before = now.saturating_sub(shared.settings.keep_samples_us);
        move_old(connection, &archive.tablespace, before, settled)?;
    }
    let keep_us = keep_rollups_us.into_iter().fold(keep_samples_us, i64::max);
    if keep_us < i64::MAX {
        remove_series(connection, floor(now.saturating_sub(keep_us), GRAIN_US) - GRAIN_US)?;
    }
    Ok(())
}

/// The next range up to `late` that has samples and is not settled.
fn next_range(
    connection: &MaintenanceConnection<'_>,
    late: i64,
) -> Result<Option<(i64, i64)>, DatabaseError> {
    let settled = connection.shared.settled().map_or(i64::MIN, |settled| settled.0);
    let rows = connection.query(OLDEST, &[&Micros(settled)])?;
    let oldest = rows.first().map(|row| row.try_get::<_, Option<Micros>>(0)).transpose()?;
    let Some(Micros(oldest)) = oldest.flatten() else { return Ok(None) };
    let step = connection.shared.settings.settle_step_us;
    let from = floor(oldest, GRAIN_US).max(settled);
    let to = floor(from, step).saturating_add(step).min(late);
    Ok((from < to).then_some((from, to)))
}

/// Writes the rollups of a range, and rejects later samples of it if it must.
fn settle(connection: &MaintenanceConnection<'_>, from: i64, to: i64) -> Result<(), StorageError> {
    let shared = connection.shared;
    if shared.settings.rejects_late {
        shared.books().settled = Timestamp(to);
        // A transaction that began before has samples of the range.
        drop(shared.committing.lock());
    }
    connection.transaction(|| {
        write(connection, &Selector::default(), (from, to - 1))?;
        connection.query("UPDATE jobmeter.state SET settled_us = $1", &[&to]).map(drop)?;
        Ok::<_, StorageError>(())
    })?;
    shared.set_settled(Timestamp(to));
    Ok(())
}
