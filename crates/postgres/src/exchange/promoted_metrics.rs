//! Kwollect's table `promoted_metrics`: rows of the server beside those of people and other programs.
//!
//! `jobmeter.promoted` has the rows that the server wrote. Of equal rows one is the server's. Another program may delete
//! all rows at any time, as `api.update_promoted_metrics` does: the server's are then written again.

use crate::connection::DatabaseError;
use std::collections::{BTreeMap, BTreeSet};
use storage::{OtherPromotions, PROMOTED_ROWS_MAX, PromotedRow};
use tokio_postgres::{Row, Transaction};

/// Longest device and expression of rows that are read, in bytes; those of the server are shorter.
const BYTES_MAX: &str = "octet_length(device_id) <= 253 AND octet_length(metric_id) <= 16384";

/// Of equal rows, those of others stay.
const DELETE_ONE: &str = "DELETE FROM promoted_metrics WHERE ctid IN ( \
    SELECT DISTINCT ON (device_id, metric_id) p.ctid FROM promoted_metrics AS p \
    JOIN unnest($1::text[], $2::text[]) AS gone (device_id, metric_id) USING (device_id, metric_id))";
const DELETE_ALL: &str = "DELETE FROM promoted_metrics AS p USING unnest($1::text[], $2::text[]) \
    AS gone (device_id, metric_id) \
    WHERE p.device_id = gone.device_id AND p.metric_id = gone.metric_id";
const INSERT: &str = "INSERT INTO promoted_metrics (device_id, metric_id) \
    SELECT * FROM unnest($1::text[], $2::text[])";
const FORGET: &str = "DELETE FROM jobmeter.promoted AS p USING unnest($1::text[], $2::text[]) \
    AS gone (device_id, metric_id) \
    WHERE p.device_id = gone.device_id AND p.metric_id = gone.metric_id";
const NOTE: &str = "INSERT INTO jobmeter.promoted SELECT * FROM unnest($1::text[], $2::text[])";

/// Writes the server's rows, deletes those in `ended`, and returns the others.
pub(crate) async fn exchange(
    transaction: &Transaction<'_>,
    own: &BTreeSet<PromotedRow>,
    ended: &BTreeSet<PromotedRow>,
) -> Result<OtherPromotions, DatabaseError> {
    let written = transaction.query("SELECT device_id, metric_id FROM jobmeter.promoted", &[]);
    let written: BTreeSet<PromotedRow> =
        written.await?.iter().map(promoted_row).collect::<Result<_, _>>()?;
    // The server's rows come first: rows of others displace none.
    let rows_max = PROMOTED_ROWS_MAX.saturating_add(written.len());
    let read = format!(
        "SELECT device_id, metric_id, count(*) FROM promoted_metrics LEFT JOIN jobmeter.promoted AS own \
         USING (device_id, metric_id) WHERE {BYTES_MAX} GROUP BY device_id, metric_id, own.device_id IS NULL \
         ORDER BY own.device_id IS NULL, device_id, metric_id LIMIT {rows_max}"
    );
    let mut present = BTreeMap::new();
    let all = transaction.query_one("SELECT count(*) FROM promoted_metrics", &[]).await?;
    let (all, mut found): (i64, i64) = (all.try_get(0)?, 0);
    for row in transaction.query(&read, &[]).await? {
        let count: i64 = row.try_get(2)?;
        found += count;
        present.insert(promoted_row(&row)?, count);
    }
    let is_own = |row: &PromotedRow| written.contains(row);
    let others = |(row, count): (&PromotedRow, &i64)| {
        (*count > i64::from(is_own(row)) && !ended.contains(row)).then(|| row.clone())
    };
    let mut rows: BTreeSet<PromotedRow> = present.iter().filter_map(others).collect();
    let mut skipped = u64::try_from(all - found).unwrap_or(0);
    while rows.len() > PROMOTED_ROWS_MAX {
        rows.pop_last();
        skipped += 1;
    }
    write(transaction, DELETE_ALL, ended.iter()).await?;
    let is_there = |row: &PromotedRow| present.contains_key(row) && !ended.contains(row);
    write(transaction, DELETE_ONE, written.difference(own).filter(|row| is_there(row))).await?;
    write(transaction, INSERT, own.iter().filter(|row| !(is_own(row) && is_there(row)))).await?;
    write(transaction, FORGET, written.difference(own)).await?;
    write(transaction, NOTE, own.difference(&written)).await?;
    Ok(OtherPromotions { rows, skipped })
}

async fn write(
    transaction: &Transaction<'_>,
    statement: &str,
    rows: impl Iterator<Item = &PromotedRow>,
) -> Result<(), DatabaseError> {
    let (devices, metrics): (Vec<&str>, Vec<&str>) =
        rows.map(|(device, metric)| (&**device, &**metric)).unzip();
    if !devices.is_empty() {
        transaction.execute(statement, &[&devices, &metrics]).await?;
    }
    Ok(())
}

fn promoted_row(row: &Row) -> Result<PromotedRow, tokio_postgres::Error> {
    Ok((row.try_get(0)?, row.try_get(1)?))
}
