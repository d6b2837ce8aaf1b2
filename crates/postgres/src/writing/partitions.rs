//! The tables of samples as the catalogue describes them, and partitions ahead of time.

use crate::connection::DatabaseError;
use crate::copy::{FIRST_US, Micros};
use crate::writing::maintenance_connection::LOCK_BRIEFLY;
use model::Timestamp;
use tokio_postgres::Client;

/// The tables of samples.
pub(crate) const TABLES: [&str; 2] = ["metrics", "jobmeter.job_metrics"];

/// Samples may be ahead by this much.
const AHEAD_US: i64 = 24 * 3600 * Timestamp::SECOND;
/// After a pause, senders still have samples of this time.
const BEHIND_US: i64 = 8 * 24 * 3600 * Timestamp::SECOND;

const PARTITIONS: &str = r"
SELECT c.oid::regclass::text, bound = 'DEFAULT', c.relkind = 'f',
    CASE WHEN bound LIKE '%FROM (MINVALUE)%' THEN '-infinity'
        ELSE substring(bound FROM $$FROM \('([^']*)'\)$$)::timestamptz END,
    CASE WHEN bound LIKE '%TO (MAXVALUE)' THEN 'infinity'
        ELSE substring(bound FROM $$TO \('([^']*)'\)$$)::timestamptz END
FROM pg_inherits JOIN pg_class AS c ON c.oid = inhrelid
    CROSS JOIN LATERAL pg_get_expr(c.relpartbound, c.oid) AS bound
WHERE inhparent = $1::text::regclass AND bound IS NOT NULL ORDER BY 4";
/// How a table stores its samples, with its partitions.
#[derive(Debug)]
pub(crate) enum Shape {
    /// One table, as an adopted one of Kwollect.
    Plain,
    /// Chunks of TimescaleDB.
    Hypertable,
    /// Partitions by range of time.
    Partitioned(Partitions),
}

/// The partitions of a table.
#[derive(Debug, Default)]
pub(crate) struct Partitions {
    /// Ordered by time. They may have any name and any bounds.
    pub(crate) list: Vec<Partition>,
    /// The name of the default partition.
    pub(crate) default: Option<String>,
}

/// A partition of a range of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Partition {
    /// Its name as statements write it.
    pub(crate) name: String,
    /// The first instant; `i64::MIN`: no bound.
    pub(crate) from: i64,
    /// The first instant after it.
    pub(crate) to: i64,
    /// Its samples are in another database.
    pub(crate) is_foreign: bool,
}

/// Reads from the catalogue how a table stores its samples.
pub(crate) async fn shape(client: &Client, table: &str) -> Result<Shape, DatabaseError> {
    match database::Shape::of(client, table).await? {
        Some(database::Shape::Partitioned) => {}
        Some(database::Shape::Hypertable) => return Ok(Shape::Hypertable),
        Some(database::Shape::Plain) | None => return Ok(Shape::Plain),
    }
    let mut partitions = Partitions::default();
    for row in client.query(PARTITIONS, &[&table]).await? {
        let name = row.try_get(0)?;
        let (from, to): (Option<Micros>, Option<Micros>) = (row.try_get(3)?, row.try_get(4)?);
        if row.try_get(1)? {
            partitions.default = Some(name);
        } else if let Some((Micros(from), Micros(to))) = from.zip(to) {
            let from = if from < FIRST_US { i64::MIN } else { from };
            partitions.list.push(Partition { name, from, to, is_foreign: row.try_get(2)? });
        }
    }
    Ok(Shape::Partitioned(partitions))
}

/// The time of a new partition.
pub(crate) async fn interval_us(client: &Client) -> Result<i64, DatabaseError> {
    let row = client.query_one("SELECT chunk_interval_hour FROM jobmeter.state", &[]).await?;
    Ok(i64::from(row.try_get::<_, i32>(0)?.max(1)) * 3600 * Timestamp::SECOND)
}

/// Creates partitions for the samples of the next day, so that the default partition has none of them.
pub(crate) async fn create_ahead(client: &Client, now: Timestamp) -> Result<(), DatabaseError> {
    let interval = interval_us(client).await?;
    for table in TABLES {
        let Shape::Partitioned(Partitions { list, default }) = shape(client, table).await? else {
            continue;
        };
        let from = floor(now.0.saturating_sub(interval), interval);
        let ended = list.iter().map(|one| one.to).filter(|to| *to <= from).max();
        let from = ended.map_or(from, |to| to.max(floor(now.0 - BEHIND_US, interval)));
        let to = now.0.saturating_add(AHEAD_US).saturating_add(interval);
        for range in uncovered(&list, (from, to), interval) {
            let default = default.as_deref();
            // Maintenance moves such rows together with the creation.
            if rows_within(client, default, range, 1).await? > 0 {
                continue;
            }
            match create(client, table, range).await {
                // Another transaction holds the default partition: the next maintenance tries again.
                Err(DatabaseError::Busy(why)) => {
                    log::debug!("a partition of {table} has to wait: {why}");
                    break;
                }
                other => other?,
            }
        }
    }
    Ok(())
}

/// Number of rows of the default partition in a range, up to a limit.
pub(crate) async fn rows_within(
    client: &Client,
    default: Option<&str>,
    (from, to): (i64, i64),
    most: i64,
) -> Result<i64, DatabaseError> {
    let Some(default) = default else { return Ok(0) };
    let text = format!(
        "SELECT count(*) FROM (SELECT FROM {default} WHERE timestamp >= $1 AND timestamp < $2 \
         LIMIT $3) AS found"
    );
    Ok(client.query_one(&text, &[&Micros(from), &Micros(to), &most]).await?.try_get(0)?)
}

/// Creates an empty partition. The parent is never locked exclusively.
async fn create(client: &Client, table: &str, range: (i64, i64)) -> Result<(), DatabaseError> {
    let name = free_name(client, table, range).await?;
    let (create, attach) = (creation(table, &name), attachment(table, &name, range));
    let done =
        client.batch_execute(&format!("BEGIN; {LOCK_BRIEFLY}; {create}; {attach}; COMMIT")).await;
    if done.is_err() {
        client.batch_execute("ROLLBACK").await?;
    }
    Ok(done?)
}

/// The statement that creates a table which can become a partition.
pub(crate) fn creation(table: &str, name: &str) -> String {
    format!("CREATE TABLE {name} (LIKE {table} INCLUDING ALL)")
}

/// The statement that makes a table a partition.
pub(crate) fn attachment(table: &str, name: &str, (from, to): (i64, i64)) -> String {
    let from = if from == i64::MIN { "MINVALUE".to_owned() } else { literal(from) };
    let to = literal(to);
    format!("ALTER TABLE {table} ATTACH PARTITION {name} FOR VALUES FROM ({from}) TO ({to})")
}

/// An instant in a statement that takes no values.
pub(crate) fn literal(at: i64) -> String {
    format!("'{}'", Timestamp(at))
}

/// A name that no table has: the parent's, with the time of the lower bound.
pub(crate) async fn free_name(
    client: &Client,
    table: &str,
    range: (i64, i64),
) -> Result<String, DatabaseError> {
    let name = partition_name(table, range);
    let mut number = 1;
    loop {
        let tried = if number == 1 { name.clone() } else { format!("{name}_{number}") };
        if client.query_one("SELECT to_regclass($1) IS NULL", &[&tried]).await?.try_get(0)? {
            return Ok(tried);
        }
        number += 1;
    }
}

fn partition_name(table: &str, (from, to): (i64, i64)) -> String {
    let table = table.rsplit('.').next().unwrap_or(table);
    let (at, before) = if from == i64::MIN { (to, "before_") } else { (from, "") };
    let text = Timestamp(at).to_string();
    let digits = text.split('+').next().unwrap_or_default().replace(['-', ':', '.'], "");
    let (day, time) = digits.split_once('T').unwrap_or((&digits, ""));
    let time = time.strip_suffix("0000").filter(|hour| hour.len() == 2).unwrap_or(time);
    format!("jobmeter.{table}_{before}{day}_{time}")
}

/// The ranges between two instants that no partition has, cut at multiples of the interval.
pub(crate) fn uncovered(
    list: &[Partition],
    (from, to): (i64, i64),
    interval: i64,
) -> Vec<(i64, i64)> {
    let (mut ranges, mut at) = (Vec::new(), from);
    while at < to {
        if let Some(covering) = list.iter().find(|one| one.from <= at && at < one.to) {
            at = covering.to;
            continue;
        }
        let next = list.iter().map(|one| one.from).filter(|from| *from > at).min();
        let end = floor(at, interval).saturating_add(interval);
        let end = next.map_or(end, |next| next.min(end));
        ranges.push((at, end));
        at = end;
    }
    ranges
}

/// The last multiple of a step up to an instant.
pub(crate) const fn floor(at: i64, step: i64) -> i64 {
    let step = if step < 1 { 1 } else { step };
    at.div_euclid(step).saturating_mul(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3600 * Timestamp::SECOND;

    fn partition(from: i64, to: i64) -> Partition {
        Partition { name: String::new(), from, to, is_foreign: false }
    }

    #[test]
    fn new_partitions_fill_the_time_between_the_others() {
        let list = [partition(i64::MIN, 100), partition(125, 130), partition(160, i64::MAX)];
        let ranges = uncovered(&list, (90, 200), 20);
        assert_eq!(ranges, [(100, 120), (120, 125), (130, 140), (140, 160)]);
        assert_eq!(uncovered(&[], (40, 61), 20), [(40, 60), (60, 80)]);
    }

    #[test]
    fn the_name_has_the_time_of_the_lower_bound() {
        let day = 20_785 * 24 * HOUR;
        let name = |range| partition_name("jobmeter.job_metrics", range);
        assert_eq!(name((day + 6 * HOUR, day + 12 * HOUR)), "jobmeter.job_metrics_20261128_06");
        assert_eq!(
            name((day + 61 * Timestamp::SECOND, day)),
            "jobmeter.job_metrics_20261128_000101"
        );
        assert_eq!(name((day + 5, day)), "jobmeter.job_metrics_20261128_000000000005");
        assert_eq!(name((i64::MIN, day)), "jobmeter.job_metrics_before_20261128_00");
    }
}
