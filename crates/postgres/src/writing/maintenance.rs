//! Settles time, and deletes what is older than its limit (decisions 0011 and 0012).

use crate::connection::{DatabaseError, connect};
use crate::copy::Micros;
use crate::reading::view::View;
use crate::rollup_rows::RollupRows;
use crate::shared::{Settings, Shared};
use crate::writing::{discovery, late_rollups};
use model::Timestamp;
use std::sync::Arc;
use std::time::Duration;
use storage::{Selector, Snapshot, StorageError, WINDOWS_US};
use tokio_postgres::Client;

/// Ranges begin and end at multiples of the longest window.
pub(super) const GRAIN_US: i64 = WINDOWS_US[1];
/// Rollups that one statement writes.
const ROLLUPS_MAX: usize = 10_000;
const OLDEST: &str = "SELECT least((SELECT min(timestamp) FROM metrics WHERE timestamp >= $1), \
                      (SELECT min(timestamp) FROM jobmeter.job_metrics WHERE timestamp >= $1))";
const REMOVE: &str = "WITH nodes AS (DELETE FROM metrics WHERE timestamp < $1 RETURNING 1), \
                      jobs AS (DELETE FROM jobmeter.job_metrics WHERE timestamp < $1 RETURNING 1) \
                      UPDATE jobmeter.state SET samples_removed = samples_removed \
                      + (SELECT count(*) FROM nodes) + (SELECT count(*) FROM jobs) \
                      RETURNING samples_removed";
const SET_REMOVED: &str = "UPDATE jobmeter.state SET removed_us = greatest(removed_us, $1)";
/// Returns the number of the transaction.
const PUBLISH: &str = "UPDATE jobmeter.state SET settling_us = greatest(settling_us, $1) \
                       RETURNING pg_current_xact_id()::text::bigint";
/// The oldest transaction that writes.
const OLDEST_WRITER: &str = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint";
/// For up to ten seconds.
const PUBLISH_TRIES: u32 = 500;
const PUBLISH_WAIT: Duration = Duration::from_millis(20);
const REMOVE_ROLLUPS: &str = "DELETE FROM jobmeter.rollups WHERE window_us = $1 AND at_us < $2";

/// Does all due maintenance.
pub(crate) fn maintain(shared: &Arc<Shared>) -> Result<(), StorageError> {
    let client = shared.runtime.block_on(connect(&*shared.connector))?;
    // The role may have a limit that suits queries.
    let unlimited = client.batch_execute("SET statement_timeout = 0");
    shared.runtime.block_on(unlimited).map_err(DatabaseError::from)?;
    if !discovery::look(shared, &client)? {
        return Ok(());
    }
    settle_due(shared, &client)?;
    late_rollups::recompute(shared, &client)?;
    remove(shared, &client)
}

/// Settles what is due, range by range.
fn settle_due(shared: &Arc<Shared>, client: &Client) -> Result<(), StorageError> {
    let Settings { settle_after_us, settle_step_us, rejects_late, .. } = shared.settings;
    let Some(now) = now(shared) else { return Ok(()) };
    let late = floor(now.saturating_sub(settle_after_us), settle_step_us);
    let next = || shared.runtime.block_on(next_range(shared, client, late));
    if next()?.is_none() || !publish(shared, client, late)? {
        return Ok(());
    }
    while let Some((from, to)) = next()?.filter(|_| !shared.closing.is_closed()) {
        let settled = settle(shared, client, from, to);
        if settled.is_err() && rejects_late {
            shared.books().settled = shared.settled().unwrap_or(Timestamp(i64::MIN));
        }
        settled?;
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
fn publish(shared: &Shared, client: &Client, late: i64) -> Result<bool, StorageError> {
    *shared.settling.lock() = late;
    // A transaction of the writer that began before has samples of the time.
    drop(shared.committing.lock());
    let published = async {
        let row = client.query_one(PUBLISH, &[&late]).await?;
        let own: i64 = row.try_get(0)?;
        for _ in 0..PUBLISH_TRIES {
            if client.query_one(OLDEST_WRITER, &[]).await?.try_get::<_, i64>(0)? > own {
                return Ok(true);
            }
            if shared.closing.is_closed() {
                break;
            }
            tokio::time::sleep(PUBLISH_WAIT).await;
        }
        Ok::<_, DatabaseError>(false)
    };
    Ok(shared.runtime.block_on(published)?)
}

/// Deletes what is older than its limit.
fn remove(shared: &Shared, client: &Client) -> Result<(), StorageError> {
    let Settings { keep_samples_us, keep_rollups_us, .. } = shared.settings;
    let Some(now) = now(shared) else { return Ok(()) };
    let remove = async {
        let oldest =
            now.saturating_sub(keep_samples_us).min(shared.settled().map_or(i64::MIN, |at| at.0));
        if keep_samples_us < i64::MAX {
            let oldest = floor(oldest, GRAIN_US);
            client.execute(SET_REMOVED, &[&oldest]).await?;
            let row = client.query_one(REMOVE, &[&Micros(oldest)]).await?;
            let removed: i64 = row.try_get(0)?;
            shared.stats().samples_removed = u64::try_from(removed).unwrap_or(0);
        }
        for (window_us, keep_us) in WINDOWS_US.into_iter().zip(keep_rollups_us) {
            let oldest = now.saturating_sub(keep_us);
            client.execute(REMOVE_ROLLUPS, &[&window_us, &oldest]).await?;
        }
        Ok::<(), DatabaseError>(())
    };
    Ok(shared.runtime.block_on(remove)?)
}

/// The next range up to `late` that has samples and is not settled.
async fn next_range(
    shared: &Shared,
    client: &Client,
    late: i64,
) -> Result<Option<(i64, i64)>, DatabaseError> {
    let settled = shared.settled().map_or(i64::MIN, |settled| settled.0);
    let row = client.query_one(OLDEST, &[&Micros(settled)]).await?;
    let Some(Micros(oldest)) = row.try_get(0)? else { return Ok(None) };
    let step = shared.settings.settle_step_us;
    let from = floor(oldest, GRAIN_US).max(settled);
    let to = floor(from, step).saturating_add(step).min(late);
    Ok((from < to).then_some((from, to)))
}

/// Writes the rollups of a range, and rejects later samples of it if it must.
fn settle(shared: &Arc<Shared>, client: &Client, from: i64, to: i64) -> Result<(), StorageError> {
    if shared.settings.rejects_late {
        shared.books().settled = Timestamp(to);
        // A transaction that began before has samples of the range.
        drop(shared.committing.lock());
    }
    in_transaction(shared, client, || {
        write(shared, client, &Selector::default(), (from, to - 1))?;
        let set =
            async { client.execute("UPDATE jobmeter.state SET settled_us = $1", &[&to]).await };
        shared.runtime.block_on(set).map_err(DatabaseError::from)?;
        Ok(())
    })?;
    shared.set_settled(Timestamp(to));
    Ok(())
}

/// Does work in one transaction.
pub(super) fn in_transaction(
    shared: &Shared,
    client: &Client,
    work: impl FnOnce() -> Result<(), StorageError>,
) -> Result<(), StorageError> {
    let execute = |statement: &'static str| {
        shared.runtime.block_on(client.batch_execute(statement)).map_err(DatabaseError::from)
    };
    execute("BEGIN")?;
    let written = work();
    if written.is_err() {
        // A lost connection has ended the transaction, too.
        execute("ROLLBACK").unwrap_or_default();
        return written;
    }
    Ok(execute("COMMIT")?)
}

/// Computes the rollups of a selection between two instants from samples, and writes them.
pub(super) fn write(
    shared: &Arc<Shared>,
    client: &Client,
    selector: &Selector,
    (first, last): (i64, i64),
) -> Result<(), StorageError> {
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

pub(super) const fn floor(at: i64, step: i64) -> i64 {
    let step = if step < 1 { 1 } else { step };
    at.div_euclid(step).saturating_mul(step)
}
