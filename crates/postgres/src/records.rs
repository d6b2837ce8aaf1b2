//! What is known of senders, as rows: origins with their stored batch numbers, gaps, the catalogue.

use crate::connection::DatabaseError;
use crate::series_book::{BookChange, SeriesBook};
use model::{Boot, Metric, Series, Timestamp};
use senders::json::{GapJson, MetricJson};
use senders::{
    Bookkeeping, Catalogue, GapLimits, Gaps, Limits, NewGap, OriginState, Origins, Registry, Span,
    Tables,
};
use std::collections::{BTreeSet, HashMap};
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
    let mut spans = load_spans(client).await?;
    for row in client.query("SELECT state FROM jobmeter.origins", &[]).await? {
        let mut origin = parsed::<OriginState>("jobmeter.origins", row.try_get(0)?)?;
        let name = origin.name.to_string();
        origin.set_spans(|boot| spans.remove(&(name.clone(), boot)).unwrap_or_default());
        origins.push(origin);
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

/// The stored batches of all boots.
async fn load_spans(client: &Client) -> Result<HashMap<(String, Boot), Vec<Span>>, DatabaseError> {
    let text = "SELECT origin, boot, first_seq::text, last_seq::text, from_us, to_us, opened_us, closed_us, \
                has_samples FROM jobmeter.spans AS s ORDER BY origin, boot, s.first_seq";
    let mut spans: HashMap<_, Vec<Span>> = HashMap::new();
    for row in client.query(text, &[]).await? {
        let number = |column: usize| {
            let number = row.try_get::<_, &str>(column)?.parse();
            number.map_err(|_| damaged("jobmeter.spans", "a batch number is out of range"))
        };
        let at = |column: usize| row.try_get(column).map(Timestamp);
        let span = Span {
            first: number(2)?,
            last: number(3)?,
            from: at(4)?,
            to: at(5)?,
            opened: at(6)?,
            closed: at(7)?,
            bare: !row.try_get::<_, bool>(8)?,
        };
        let boot = u128::from_str_radix(row.try_get(1)?, 16)
            .map_err(|_| damaged("jobmeter.spans", "a boot is not hexadecimal"))?;
        spans.entry((row.try_get(0)?, Boot(boot.to_be_bytes()))).or_default().push(span);
    }
    Ok(spans)
}

/// Changes of stored batch numbers.
#[derive(Debug, Default)]
pub(crate) struct SpanChanges {
    /// Origin, boot and first number.
    removed: [Vec<String>; 3],
    /// Origin, boot, first and last number.
    put: [Vec<String>; 4],
    /// First and last instant, times of receipt of the first and the last batch.
    times: [Vec<i64>; 4],
    has_samples: Vec<bool>,
}

impl SpanChanges {
    /// Adds what changed of an origin.
    pub(crate) fn add(&mut self, before: Option<&OriginState>, after: &OriginState) {
        let key = |(boot, span): (Boot, Span)| ((boot, span.first), span);
        let mut old: HashMap<_, Span> =
            before.into_iter().flat_map(OriginState::spans).map(key).collect();
        let origin = || after.name.to_string();
        for (boot, span) in after.spans() {
            if old.remove(&(boot, span.first)) == Some(span) {
                continue;
            }
            let texts = [origin(), boot.to_string(), span.first.to_string(), span.last.to_string()];
            self.put.iter_mut().zip(texts).for_each(|(column, text)| column.push(text));
            let times = [span.from, span.to, span.opened, span.closed];
            self.times.iter_mut().zip(times).for_each(|(column, at)| column.push(at.0));
            self.has_samples.push(!span.bare);
        }
        for (boot, first) in old.into_keys() {
            let texts = [origin(), boot.to_string(), first.to_string()];
            self.removed.iter_mut().zip(texts).for_each(|(column, text)| column.push(text));
        }
    }

    /// Writes them.
    pub(crate) async fn put(&self, client: &Client) -> Result<(), DatabaseError> {
        let Self { removed: [origins, boots, firsts], .. } = self;
        if !origins.is_empty() {
            let text = "DELETE FROM jobmeter.spans AS s USING unnest($1::text[], $2::text[], $3::text[]) \
                        AS old (origin, boot, first) WHERE s.origin = old.origin AND s.boot = old.boot \
                        AND s.first_seq = old.first::numeric";
            client.execute(text, &[origins, boots, firsts]).await?;
        }
        let Self {
            put: [origins, boots, firsts, lasts], times: [from, to, opened, closed], ..
        } = self;
        if !origins.is_empty() {
            let text = "INSERT INTO jobmeter.spans SELECT origin, boot, first::numeric, last::numeric, from_us, \
                        to_us, opened_us, closed_us, has_samples FROM unnest($1::text[], $2::text[], $3::text[], \
                        $4::text[], $5::int8[], $6::int8[], $7::int8[], $8::int8[], $9::bool[]) AS new (origin, \
                        boot, first, last, from_us, to_us, opened_us, closed_us, has_samples) \
                        ON CONFLICT (origin, boot, first_seq) DO UPDATE SET last_seq = excluded.last_seq, \
                        from_us = excluded.from_us, to_us = excluded.to_us, opened_us = excluded.opened_us, \
                        closed_us = excluded.closed_us, has_samples = excluded.has_samples";
            let values: [&(dyn ToSql + Sync); 9] =
                [origins, boots, firsts, lasts, from, to, opened, closed, &self.has_samples];
            client.execute(text, &values).await?;
        }
        Ok(())
    }
}

/// Writes the state of origins.
pub(crate) async fn put_origins<'a>(
    client: &Client,
    origins: impl Iterator<Item = &'a OriginState>,
) -> Result<(), DatabaseError> {
    let (mut names, mut states) = (Vec::new(), Vec::new());
    for origin in origins {
        names.push(origin.name.as_str());
        states.push(text("jobmeter.origins", &origin.without_spans())?);
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

/// Deletes the origins that the store does not know any more, and the batch numbers of boots outside the window.
pub(crate) async fn remove_origins(
    client: &Client,
    known: &HashMap<String, BTreeSet<String>>,
) -> Result<(), DatabaseError> {
    let names: Vec<&str> = known.keys().map(String::as_str).collect();
    client.execute("DELETE FROM jobmeter.origins WHERE name <> ALL ($1)", &[&names]).await?;
    let (mut origins, mut boots) = (Vec::new(), Vec::new());
    for row in client.query("SELECT DISTINCT origin, boot FROM jobmeter.spans", &[]).await? {
        let (origin, boot): (String, String) = (row.try_get(0)?, row.try_get(1)?);
        if !known.get(&origin).is_some_and(|known| known.contains(&boot)) {
            origins.push(origin);
            boots.push(boot);
        }
    }
    let text = "DELETE FROM jobmeter.spans AS s USING unnest($1::text[], $2::text[]) AS old (origin, boot) \
                WHERE s.origin = old.origin AND s.boot = old.boot";
    client.execute(text, &[&origins, &boots]).await?;
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
