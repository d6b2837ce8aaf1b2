//! Settles time, and deletes what is older than its limit (decisions 0011 and 0012).

use crate::connection::{DatabaseError, connect};
use crate::copy::Micros;
use crate::reading::view::View;
use crate::rollup_rows::RollupRows;
use crate::shared::{Settings, Shared};
use model::Timestamp;
use std::sync::Arc;
use storage::{Selector, Snapshot, StorageError, WINDOWS_US};
use tokio_postgres::Client;

/// Ranges begin and end at multiples of the longest window.
const GRAIN_US: i64 = WINDOWS_US[1];
/// Rollups that one statement writes.
const ROLLUPS_MAX: usize = 10_000;
const OLDEST: &str = "SELECT least((SELECT min(timestamp) FROM metrics WHERE timestamp >= $1), \
                      (SELECT min(timestamp) FROM jobmeter.job_metrics WHERE timestamp >= $1))";
const REMOVE: &str = "WITH nodes AS (DELETE FROM metrics WHERE timestamp < $1 RETURNING 1), \
                      jobs AS (DELETE FROM jobmeter.job_metrics WHERE timestamp < $1 RETURNING 1) \
                      UPDATE jobmeter.state SET samples_removed = samples_removed \
                      + (SELECT count(*) FROM nodes) + (SELECT count(*) FROM jobs) \
                      RETURNING samples_removed";
const REMOVE_ROLLUPS: &str = "DELETE FROM jobmeter.rollups WHERE window_us = $1 AND at_us < $2";

/// Does all due maintenance.
pub(crate) fn maintain(shared: &Arc<Shared>) -> Result<(), StorageError> {
    let client = shared.runtime.block_on(connect(&*shared.connector))?;
    let Settings { settle_after_us, settle_step_us, keep_samples_us, keep_rollups_us, .. } =
        shared.settings;
    // A clock that is ahead deletes nothing: the time counts as at most an hour after the newest sample.
    let Some((_, newest)) = shared.series().extent() else { return Ok(()) };
    let now = shared.now().0.min(newest.saturating_add(GRAIN_US));
    let late = floor(now.saturating_sub(settle_after_us), settle_step_us);
    while let Some((from, to)) = shared.runtime.block_on(next_range(shared, &client, late))? {
        let settled = settle(shared, &client, from, to);
        if settled.is_err() {
            shared.books().settled = shared.settled().unwrap_or(Timestamp(i64::MIN));
        }
        settled?;
    }
    let remove = async {
        let oldest =
            now.saturating_sub(keep_samples_us).min(shared.settled().map_or(i64::MIN, |at| at.0));
        if keep_samples_us < i64::MAX {
            let row = client.query_one(REMOVE, &[&Micros(floor(oldest, GRAIN_US))]).await?;
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

/// Writes the rollups of a range, and rejects later samples of it.
fn settle(shared: &Arc<Shared>, client: &Client, from: i64, to: i64) -> Result<(), StorageError> {
    shared.books().settled = Timestamp(to);
    // A transaction that began before has samples of the range.
    drop(shared.committing.lock());
    let execute = |statement: &'static str| {
        shared.runtime.block_on(client.batch_execute(statement)).map_err(DatabaseError::from)
    };
    execute("BEGIN")?;
    let written = write(shared, client, from, to);
    if written.is_err() {
        // A lost connection has ended the transaction, too.
        execute("ROLLBACK").unwrap_or_default();
        return written;
    }
    execute("COMMIT")?;
    shared.set_settled(Timestamp(to));
    Ok(())
}

fn write(shared: &Arc<Shared>, client: &Client, from: i64, to: i64) -> Result<(), StorageError> {
    let (first, last) = (Timestamp(from), Timestamp(to - 1));
    for window_us in WINDOWS_US {
        let mut rows = RollupRows::default();
        for found in View::unlimited(shared).windows(&Selector::default(), first, last, window_us) {
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
    let set = "UPDATE jobmeter.state SET settled_us = $1";
    let set = shared.runtime.block_on(client.execute(set, &[&to]));
    set.map_err(DatabaseError::from)?;
    Ok(())
}

const fn floor(at: i64, step: i64) -> i64 {
    let step = if step < 1 { 1 } else { step };
    at.div_euclid(step).saturating_mul(step)
}
