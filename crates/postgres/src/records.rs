//! What is known of senders, as rows: origins with their stored batch numbers, gaps, the catalogue.

use crate::connection::DatabaseError;
use crate::series_book::{BookChange, SeriesBook};
use model::{Metric, Series, Timestamp};
use senders::json::{GapJson, MetricJson};
use senders::{
    Bookkeeping, Catalogue, GapLimits, Gaps, Limits, NewGap, OriginState, Origins, Registry, Tables,
};
use std::collections::BTreeSet;
use tokio_postgres::Client;
use tokio_postgres::types::ToSql;

/// The records of a database.
#[derive(Debug)]
pub(crate) struct Records {
    /// Origins that are not forgotten.
    pub(crate) origins: Vec<OriginState>,
    pub(crate) gaps: StoredGaps,
    /// The catalogue: each metric with its first origin.
    metrics: Vec<(Metric, String)>,
}

/// The gaps of a database.
#[derive(Debug)]
pub(crate) struct StoredGaps {
    pub(crate) gaps: Gaps,
    /// Number of rows: evicted gaps have rows, too, and several that were merged.
    pub(crate) rows: usize,
    /// The number of the next row.
    pub(crate) next: i64,
}

/// Reads the records.
pub(crate) async fn load(
    client: &Client,
    limits: &Limits,
    now: Timestamp,
) -> Result<Records, DatabaseError> {
    let mut metrics = Vec::new();
    for row in client.query("SELECT metric FROM jobmeter.catalogue", &[]).await? {
        let metric = parsed::<MetricJson>("jobmeter.catalogue", row.try_get(0)?)?.metric();
        metrics
            .push(metric.ok_or_else(|| damaged("jobmeter.catalogue", "an unknown unit or kind"))?);
    }
    let mut origins = Vec::new();
    for row in client.query("SELECT state FROM jobmeter.origins", &[]).await? {
        origins.push(parsed::<OriginState>("jobmeter.origins", row.try_get(0)?)?);
    }
    origins.retain(|origin| !origin.is_forgotten(now));
    let mut gaps = Gaps::new([], 0, GapLimits::of(limits));
    let rows = client.query("SELECT id, gap, is_late FROM jobmeter.gaps ORDER BY id", &[]).await?;
    for row in &rows {
        let gap = parsed::<GapJson>("jobmeter.gaps", row.try_get(1)?)?.gap();
        if let Some(gap) = gap {
            gaps.put(NewGap { gap, late: row.try_get(2)? });
        }
    }
    let next = rows.last().map(|row| row.try_get::<_, i64>(0)).transpose()?.map_or(0, |id| id + 1);
    Ok(Records { origins, gaps: StoredGaps { gaps, rows: rows.len(), next }, metrics })
}

impl Records {
    /// What is known of senders when the store is opened, with the number of gap rows and that of the next one.
    pub(crate) fn into_books(self, limits: &Limits) -> (Bookkeeping, usize, i64) {
        let StoredGaps { gaps, rows, next } = self.gaps;
        let books = Bookkeeping {
            origins: Origins::new(self.origins, Vec::new()),
            registry: Registry::new(Catalogue::new(limits.declared.clone(), self.metrics)),
            tables: Tables::default(),
            gaps,
            settled: Timestamp(i64::MIN),
        };
        (books, rows, next)
    }
}

fn damaged(table: &'static str, why: &str) -> DatabaseError {
    DatabaseError::Damaged { table, why: why.to_owned() }
}

fn parsed<T: serde::de::DeserializeOwned>(
    table: &'static str,
    text: &str,
) -> Result<T, DatabaseError> {
    serde_json::from_str(text).map_err(|error| damaged(table, &error.to_string()))
}

fn text(table: &'static str, value: &impl serde::Serialize) -> Result<String, DatabaseError> {
    serde_json::to_string(value).map_err(|error| damaged(table, &error.to_string()))
}

/// Writes the state of origins.
pub(crate) async fn put_origins<'a>(
    client: &Client,
    origins: impl Iterator<Item = &'a OriginState>,
) -> Result<(), DatabaseError> {
    let (mut names, mut states) = (Vec::new(), Vec::new());
    for origin in origins {
        names.push(origin.name.as_str());
        states.push(text("jobmeter.origins", origin)?);
    }
    if names.is_empty() {
        return Ok(());
    }
    let put = "INSERT INTO jobmeter.origins SELECT * FROM unnest($1::text[], $2::text[]) \
               ON CONFLICT (name) DO UPDATE SET state = excluded.state";
    client.execute(put, &[&names, &states]).await?;
    Ok(())
}

/// Adds gaps, numbered from `next` on.
pub(crate) async fn add_gaps(
    client: &Client,
    gaps: &[NewGap],
    next: i64,
) -> Result<(), DatabaseError> {
    if gaps.is_empty() {
        return Ok(());
    }
    let texts = gaps.iter().map(|new| text("jobmeter.gaps", &GapJson::from(&new.gap)));
    let texts: Vec<String> = texts.collect::<Result<_, _>>()?;
    let ids: Vec<i64> = (next..).take(gaps.len()).collect();
    let late: Vec<bool> = gaps.iter().map(|new| new.late).collect();
    let put =
        "INSERT INTO jobmeter.gaps SELECT * FROM unnest($1::bigint[], $2::text[], $3::bool[])";
    client.execute(put, &[&ids, &texts, &late]).await?;
    Ok(())
}

/// Replaces all gaps by those that are kept. Returns the number of the next row.
pub(crate) async fn replace_gaps(
    client: &Client,
    gaps: &[NewGap],
    next: i64,
) -> Result<i64, DatabaseError> {
    client.batch_execute("BEGIN").await?;
    client.execute("DELETE FROM jobmeter.gaps WHERE id < $1", &[&next]).await?;
    add_gaps(client, gaps, next).await?;
    client.batch_execute("COMMIT").await?;
    Ok(next.saturating_add(i64::try_from(gaps.len()).unwrap_or(0)))
}

/// Deletes the origins that the store does not know any more.
pub(crate) async fn remove_origins(
    client: &Client,
    known: impl Fn(&str) -> bool,
) -> Result<(), DatabaseError> {
    let mut forgotten: Vec<String> = Vec::new();
    for row in client.query("SELECT name FROM jobmeter.origins", &[]).await? {
        let name: &str = row.try_get(0)?;
        if !known(name) {
            forgotten.push(name.to_owned());
        }
    }
    client.execute("DELETE FROM jobmeter.origins WHERE name = ANY ($1)", &[&forgotten]).await?;
    Ok(())
}

/// Writes the whole catalogue.
pub(crate) async fn put_catalogue(
    client: &Client,
    metrics: &[MetricJson],
) -> Result<(), DatabaseError> {
    let texts = metrics.iter().map(|metric| text("jobmeter.catalogue", metric));
    let texts: Vec<String> = texts.collect::<Result<_, _>>()?;
    let put = "INSERT INTO jobmeter.catalogue SELECT metric::json->>'name', metric \
               FROM unnest($1::text[]) AS metric \
               ON CONFLICT (name) DO UPDATE SET metric = excluded.metric";
    client.execute(put, &[&texts]).await?;
    Ok(())
}

/// Writes the changed starts of a commit.
pub(crate) async fn put_starts(client: &Client, change: &BookChange) -> Result<(), DatabaseError> {
    if !change.starts_removed.is_empty() {
        let (ids, at): (Vec<i64>, Vec<i64>) = change.starts_removed.iter().copied().unzip();
        let remove = "DELETE FROM jobmeter.starts USING unnest($1::bigint[], $2::bigint[]) \
                      AS gone (id, at) WHERE series_id = id AND at_us = at";
        client.execute(remove, &[&ids, &at]).await?;
    }
    if change.starts.is_empty() {
        return Ok(());
    }
    let ids: Vec<i64> = change.starts.iter().map(|(id, _, _)| *id).collect();
    let at: Vec<i64> = change.starts.iter().map(|(_, at, _)| *at).collect();
    let starts: Vec<Option<i64>> = change.starts.iter().map(|(_, _, start)| *start).collect();
    // Of one key the last entry counts: a statement must not change a row twice.
    let put = "INSERT INTO jobmeter.starts SELECT DISTINCT ON (id, at) id, at, start FROM \
               unnest($1::bigint[], $2::bigint[], $3::bigint[]) WITH ORDINALITY \
               AS new (id, at, start, place) ORDER BY id, at, place DESC \
               ON CONFLICT (series_id, at_us) DO UPDATE SET start_us = excluded.start_us";
    client.execute(put, &[&ids, &at, &starts]).await?;
    Ok(())
}

/// Rows of `jobmeter.series`, column by column.
#[derive(Debug, Default)]
pub(crate) struct SeriesRows {
    ids: Vec<i64>,
    devices: Vec<String>,
    metrics: Vec<String>,
    labels: Vec<String>,
    clusters: Vec<Option<String>>,
    jobs: Vec<Option<i64>>,
    divisors: Vec<i64>,
    first: Vec<i64>,
    last: Vec<i64>,
    values: Vec<f64>,
    received: Vec<i64>,
    samples: Vec<i64>,
    has_others: Vec<bool>,
}

impl SeriesRows {
    /// Series as the book has them.
    pub(crate) fn of<'a>(book: &SeriesBook, series: impl Iterator<Item = &'a Series>) -> Self {
        let mut rows = Self::default();
        // A statement must not change a row twice.
        let series: BTreeSet<&Series> = series.collect();
        for (one, stored) in series.iter().filter_map(|one| Some((one, book.get(one)?))) {
            let job = one.job.as_ref();
            rows.ids.push(stored.id);
            rows.devices.push(one.device.to_string());
            rows.metrics.push(one.metric.to_string());
            rows.labels.push(one.labels.as_str().to_owned());
            rows.clusters.push(job.map(|job| job.cluster.to_string()));
            rows.jobs.push(job.map(|job| job.id.get()));
            rows.divisors.push(stored.divisor.into());
            rows.first.push(stored.first_us);
            rows.last.push(stored.last_us);
            rows.values.push(stored.last_value);
            rows.received.push(stored.received.0);
            rows.samples.push(i64::try_from(stored.samples).unwrap_or(i64::MAX));
            rows.has_others.push(stored.has_others);
        }
        rows
    }

    /// Writes them.
    pub(crate) async fn put(&self, client: &Client) -> Result<(), DatabaseError> {
        if self.ids.is_empty() {
            return Ok(());
        }
        let put = "INSERT INTO jobmeter.series SELECT id, device, metric, labels::jsonb, cluster, job, \
                   divisor, first, last, value, received, samples, others FROM unnest($1::bigint[], $2::text[], \
                   $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::bigint[], \
                   $9::bigint[], $10::float8[], $11::bigint[], $12::bigint[], $13::bool[]) AS new (id, device, \
                   metric, labels, cluster, job, divisor, first, last, value, received, samples, others) \
                   ON CONFLICT (id) DO UPDATE SET divisor = excluded.divisor, \
                   first_us = least(series.first_us, excluded.first_us), \
                   last_us = greatest(series.last_us, excluded.last_us), \
                   last_value = excluded.last_value, received_us = excluded.received_us, \
                   samples = excluded.samples, \
                   has_others = series.has_others OR excluded.has_others";
        let Self { ids, devices, metrics, labels, clusters, jobs, .. } = self;
        let Self { divisors, first, last, values, received, samples, has_others, .. } = self;
        let values: [&(dyn ToSql + Sync); 13] = [
            ids, devices, metrics, labels, clusters, jobs, divisors, first, last, values, received,
            samples, has_others,
        ];
        client.execute(put, &values).await?;
        Ok(())
    }
}
