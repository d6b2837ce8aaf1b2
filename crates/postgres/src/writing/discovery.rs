//! Looks for series in rows that no trigger recorded, from the newest to the oldest (decision 0055).

use crate::connection::DatabaseError;
use crate::copy::Micros;
use crate::other_rows::{self, FOUND, LOOKED, OtherRows};
use crate::shared::Shared;
use model::Timestamp;
use std::sync::Arc;
use storage::StorageError;
use tokio_postgres::Client;

/// Time that is looked at in one statement.
const STEP_US: i64 = 6 * 3600 * Timestamp::SECOND;
const NEWEST: &str = "SELECT max(timestamp) FROM metrics WHERE timestamp BETWEEN $1 AND $2";
const SET_LOOKED: &str = "UPDATE jobmeter.state SET looked_us = $1, rows_hidden = rows_hidden + $2";
/// Rows with an instant that no answer can have.
const UNTIMED: &str = "SELECT rows_hidden + (SELECT count(*) FROM metrics WHERE timestamp < $1) \
    + (SELECT count(*) FROM metrics WHERE timestamp > $2) \
    + (SELECT count(*) FROM metrics WHERE timestamp IS NULL) FROM jobmeter.state";

/// Registers the series of all rows that nothing recorded. Returns whether the store is not closing.
pub(crate) fn look(shared: &Shared, client: &Client) -> Result<bool, StorageError> {
    let run = |step: Step| shared.runtime.block_on(step.run(shared, client));
    if !shared.runtime.block_on(other_rows::record(client))? {
        return Ok(true);
    }
    while let Some(step) = shared.runtime.block_on(next(client))? {
        if shared.closing.is_closed() {
            return Ok(false);
        }
        let book = shared.series().source();
        let hidden = run(step)?;
        // The series are in their table before they count as registered.
        let flushed = shared.flushed.wait(|| shared.queue.wake());
        flushed.map_err(StorageError::Unavailable)?;
        if !Arc::ptr_eq(&book, &shared.series().source()) {
            continue;
        }
        let set = async { client.execute(SET_LOOKED, &[&step.from, &hidden]).await };
        shared.runtime.block_on(set).map_err(DatabaseError::from)?;
    }
    let hidden = async {
        let row = client.query_one(UNTIMED, &[&Micros(i64::MIN), &Micros(i64::MAX)]).await?;
        row.try_get::<_, i64>(0)
    };
    let hidden = shared.runtime.block_on(hidden).map_err(DatabaseError::from)?;
    shared.stats().rows_hidden = u64::try_from(hidden).unwrap_or(0);
    Ok(true)
}

/// Registers the series of a time range, whether they were registered or not.
pub(crate) async fn look_at(
    shared: &Shared,
    client: &Client,
    (from, to): (i64, i64),
) -> Result<i64, DatabaseError> {
    Step { from, to }.run(shared, client).await
}

/// A time range to look at.
#[derive(Clone, Copy, Debug)]
struct Step {
    from: i64,
    to: i64,
}

impl Step {
    /// Returns the number of rows that cannot be shown.
    async fn run(self, shared: &Shared, client: &Client) -> Result<i64, DatabaseError> {
        let any: Option<Vec<String>> = None;
        let rows = client.query(FOUND, &[&Micros(self.from), &Micros(self.to), &any, &any]).await?;
        let mut hidden = 0_u64;
        for row in rows {
            let found = OtherRows::of(&row)?;
            if !shared.series().register(&found) {
                hidden += found.rows;
            }
        }
        Ok(i64::try_from(hidden).unwrap_or(i64::MAX))
    }
}

/// The newest range that was not looked at. Without rows in it, all of it was.
async fn next(client: &Client) -> Result<Option<Step>, DatabaseError> {
    let looked: Option<i64> = client.query_one(LOOKED, &[]).await?.try_get(0)?;
    let looked = looked.unwrap_or(i64::MAX);
    if looked == i64::MIN {
        return Ok(None);
    }
    let to = looked.saturating_sub(1);
    let newest = client.query_one(NEWEST, &[&Micros(i64::MIN), &Micros(to)]).await?;
    let from = match newest.try_get::<_, Option<Micros>>(0)? {
        Some(Micros(newest)) => newest.div_euclid(STEP_US).saturating_mul(STEP_US),
        None => i64::MIN,
    };
    Ok(Some(Step { from, to }))
}
