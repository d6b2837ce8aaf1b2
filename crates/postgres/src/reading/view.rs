//! A view of the store, and its samples series by series.

use crate::connection::DatabaseError;
use crate::connection::read_pool::Reader;
use crate::copy::Micros;
use crate::reading::session::{Query, RowScan, Session};
use crate::schema::without_places;
use crate::shared::Shared;
use model::{Series, Timestamp};
use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock};
use storage::{Chunk, Selector, SeriesCondition, SeriesFilter, SeriesInfo, StorageError};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

/// Series that one statement reads.
pub(crate) const SERIES_MAX: usize = 1000;

/// One branch reads samples of nodes, the other samples of jobs. Numbers in labels are equal only if their texts are. Rows of one instant come in the order of their storage.
/// Devices, metrics and jobs have each name once in `$10` to `$12`: repeated names mislead the estimates.
const SAMPLES: &str = "
WITH wanted AS (SELECT place, device, metric, labels::jsonb AS labels, cluster, job,
        CASE WHEN has_numbers THEN labels END AS text
    FROM unnest($1::int4[], $2::text[], $3::text[], $4::text[], $5::text[], $6::int8[], $9::bool[])
    AS wanted (place, device, metric, labels, cluster, job, has_numbers))
SELECT place, timestamp, value FROM (
    SELECT place, timestamp, value, m.tableoid AS part, m.ctid AS at
    FROM metrics AS m JOIN wanted ON job IS NULL AND device = m.device_id AND metric = m.metric_id
        AND wanted.labels = coalesce(m.labels, 'null') AND (text IS NULL OR text = m.labels::text)
    WHERE m.device_id = ANY ($10::text[]) AND m.metric_id = ANY ($11::text[]) AND timestamp BETWEEN $7 AND $8
    UNION ALL
    SELECT place, timestamp, value, m.tableoid, m.ctid
    FROM jobmeter.job_metrics AS m JOIN wanted ON job = m.job_id AND wanted.cluster = m.cluster
        AND device = m.device_id AND metric = m.metric_id AND wanted.labels = m.labels
    WHERE m.device_id = ANY ($10) AND m.job_id = ANY ($12::int8[]) AND timestamp BETWEEN $7 AND $8) AS rows
ORDER BY place, timestamp, part, at";
static SAMPLES_OF_HYPERTABLE: LazyLock<String> = LazyLock::new(|| without_places(SAMPLES));
/// First and last instant of node samples.
const EXTENT: &str = "SELECT (SELECT min(timestamp) FROM metrics WHERE timestamp BETWEEN $1 AND $2), \
                      (SELECT max(timestamp) FROM metrics WHERE timestamp BETWEEN $1 AND $2)";
const SETTLED: &str = "SELECT settled_us FROM jobmeter.state";

/// A view of the store. Its scans read one state of the database.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) shared: Arc<Shared>,
    pub(super) session: Arc<Session>,
    filter: Option<SeriesFilter>,
    /// Whether windows come from samples alone.
    pub(super) recomputes: bool,
}

/// A series to read.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) id: i64,
    pub(crate) info: Arc<SeriesInfo>,
    /// The starts of its counter: from an instant on.
    starts: Vec<(i64, Option<i64>)>,
}

/// Chunks of a selection, series by series.
pub(crate) struct ChunkScan {
    view: View,
    span: (i64, i64),
    /// The selection, until its series are read.
    selector: Option<Selector>,
    /// Series of later statements.
    rest: VecDeque<Target>,
    /// Series of the current statement.
    targets: Vec<Target>,
    scan: Option<RowScan>,
    ready: VecDeque<Chunk>,
}

impl View {
    /// A view for a query.
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        Self::until(shared, Arc::default())
    }

    /// A view for a query whose reader may leave.
    pub(crate) fn until(shared: &Arc<Shared>, has_left: Arc<AtomicBool>) -> Self {
        let time_max_ms = shared.settings.statement_time_max_ms;
        Self::with(shared, Reader::Query, time_max_ms, has_left)
    }

    /// A view for maintenance, which takes its time, and computes all windows from samples.
    pub(crate) fn recomputing(shared: &Arc<Shared>) -> Self {
        Self { recomputes: true, ..Self::with(shared, Reader::Query, 0, Arc::default()) }
    }

    /// A view for one quick read of a thread that may have another view.
    pub(crate) fn quick(shared: &Arc<Shared>) -> Self {
        let time_max_ms = shared.settings.statement_time_max_ms;
        Self::with(shared, Reader::Quick, time_max_ms, Arc::default())
    }

    fn with(
        shared: &Arc<Shared>,
        reader: Reader,
        time_max_ms: u32,
        has_left: Arc<AtomicBool>,
    ) -> Self {
        let session = Session::new(shared, reader, time_max_ms, has_left);
        Self { shared: Arc::clone(shared), session, filter: None, recomputes: false }
    }

    /// The series of a selection that may have samples within an interval.
    pub(crate) fn targets(
        &self,
        selector: &Selector,
        (from, to): (i64, i64),
    ) -> Result<Vec<Target>, StorageError> {
        self.find_others(selector, (from, to))?;
        let opened = self.shared.opened;
        let found: Vec<(i64, Series, u32, Vec<_>)> = {
            let book = self.shared.series();
            let touching = book.select(selector).filter(|(series, stored)| {
                let end = stored.last_bound(opened);
                let span = (Timestamp(from.max(stored.first_us)), Timestamp(to.min(end)));
                stored.first_us <= to && end >= from && self.shows(series, span)
            });
            let target = touching.map(|(series, stored)| {
                let starts = stored.starts.iter().map(|(at, start)| (*at, *start)).collect();
                (stored.id, series.clone(), stored.divisor, starts)
            });
            target.collect()
        };
        let books = self.shared.books();
        let target = found.into_iter().map(|(id, series, divisor, starts)| Target {
            id,
            info: books.registry.series_info(series, divisor),
            starts,
        });
        Ok(target.collect())
    }

    /// First and last instant of all samples that this view sees.
    pub(crate) fn span(&self) -> Result<Option<(i64, i64)>, StorageError> {
        let has_looked = self.has_looked()?;
        let (own, others) = {
            let book = self.shared.series();
            (book.extent(), book.others())
        };
        if others.is_none() && has_looked {
            return Ok(own);
        }
        let values: Vec<Box<dyn ToSql + Sync + Send>> =
            vec![Box::new(Micros(i64::MIN)), Box::new(Micros(i64::MAX))];
        let rows = self.query(Query { statement: EXTENT, values }).read()?;
        let stored = rows.first().map(|row| Ok((row.try_get(0)?, row.try_get(1)?)));
        let stored: Option<(Option<Micros>, Option<Micros>)> =
            stored.transpose().map_err(failed)?;
        let stored = stored.and_then(|(first, last)| Some((first?.0, last?.0)));
        let spans = || own.into_iter().chain(stored);
        let first = spans().map(|(first, _)| first).min();
        Ok(first.zip(spans().map(|(_, last)| last).max()))
    }

    /// The same view, limited to series that meet a condition.
    pub(crate) fn limited(&self, condition: Arc<SeriesCondition>) -> Self {
        Self { filter: Some(SeriesFilter(condition)), ..self.clone() }
    }

    /// Whether it may show a series in an interval.
    pub(crate) fn shows(&self, series: &Series, span: (Timestamp, Timestamp)) -> bool {
        self.filter.as_ref().is_none_or(|SeriesFilter(keep)| keep(series, span))
    }

    /// The rows of a statement.
    pub(crate) fn query(&self, query: Query) -> RowScan {
        self.session.query(query)
    }

    /// Windows before this time come from rollups. It belongs to the state that the queries of this view see.
    pub(crate) fn settled(&self) -> Result<Option<Timestamp>, StorageError> {
        let rows = self.query(Query { statement: SETTLED, values: Vec::new() }).read()?;
        let settled = rows.first().map(|row| row.try_get::<_, Option<i64>>(0)).transpose();
        Ok(settled.map_err(failed)?.flatten().map(Timestamp))
    }

    pub(crate) fn chunks(&self, selector: &Selector, span: (i64, i64)) -> ChunkScan {
        ChunkScan {
            view: self.clone(),
            span,
            selector: Some(selector.clone()),
            rest: VecDeque::new(),
            targets: Vec::new(),
            scan: None,
            ready: VecDeque::new(),
        }
    }
}

impl ChunkScan {
    fn read(&mut self) -> Result<Option<Chunk>, StorageError> {
        if let Some(selector) = self.selector.take() {
            self.rest = self.view.targets(&selector, self.span)?.into();
        }
        loop {
            if let Some(chunk) = self.ready.pop_front() {
                return Ok(Some(chunk));
            }
            let Some(scan) = &mut self.scan else {
                if self.rest.is_empty() {
                    return Ok(None);
                }
                self.begin();
                continue;
            };
            let rows = scan.read()?;
            if rows.is_empty() {
                self.scan = None;
                continue;
            }
            let sample = |row: &Row| {
                let value = row.try_get::<_, Option<f64>>(2)?.unwrap_or(Chunk::NO_VALUE);
                Ok((row.try_get(0)?, row.try_get::<_, Micros>(1)?.0, value))
            };
            let rows: Vec<(i32, i64, f64)> =
                rows.iter().map(sample).collect::<Result<_, _>>().map_err(failed)?;
            for of_one in rows.chunk_by(|a, b| a.0 == b.0) {
                let place = of_one.first().and_then(|(place, ..)| usize::try_from(*place).ok());
                let target = place.and_then(|place| self.targets.get(place));
                self.ready.extend(target.map(|target| chunk(target, of_one)));
            }
        }
    }

    fn begin(&mut self) {
        self.targets = self.rest.drain(..self.rest.len().min(SERIES_MAX)).collect();
        let series = || self.targets.iter().map(|target| &target.info.series);
        let places: Vec<i32> = (0..).take(self.targets.len()).collect();
        let devices: Vec<String> = series().map(|one| one.device.to_string()).collect();
        let metrics: Vec<String> = series().map(|one| one.metric.to_string()).collect();
        let labels: Vec<String> = series().map(|one| one.labels.as_str().to_owned()).collect();
        let cluster = |one: &Series| one.job.as_ref().map(|job| job.cluster.to_string());
        let clusters: Vec<Option<String>> = series().map(cluster).collect();
        let job = |one: &Series| one.job.as_ref().map(|job| job.id.get());
        let jobs: Vec<Option<i64>> = series().map(job).collect();
        let (from, to) = self.span;
        let of_jobs = once(jobs.iter().flatten().copied());
        let (of_devices, of_metrics) = (once(devices.clone()), once(metrics.clone()));
        let has_numbers: Vec<bool> = series().map(|one| has_numbers(one.labels.as_str())).collect();
        let is_hypertable = self.view.shared.series().is_hypertable;
        self.scan = Some(self.view.query(Query {
            statement: if is_hypertable { &SAMPLES_OF_HYPERTABLE } else { SAMPLES },
            values: vec![
                Box::new(places),
                Box::new(devices),
                Box::new(metrics),
                Box::new(labels),
                Box::new(clusters),
                Box::new(jobs),
                Box::new(Micros(from)),
                Box::new(Micros(to)),
                Box::new(has_numbers),
                Box::new(of_devices),
                Box::new(of_metrics),
                Box::new(of_jobs),
            ],
        }));
    }
}

/// Each value once.
fn once<T: Ord>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    values.into_iter().collect::<BTreeSet<T>>().into_iter().collect()
}

/// Whether labels have a number: a digit outside of texts.
fn has_numbers(labels: &str) -> bool {
    let (mut is_text, mut is_escaped) = (false, false);
    labels.bytes().any(|byte| {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => is_text = !is_text,
            _ => return !is_text && byte.is_ascii_digit(),
        }
        false
    })
}

/// The samples of one series.
fn chunk(target: &Target, rows: &[(i32, i64, f64)]) -> Chunk {
    let mut chunk = Chunk {
        series: Arc::clone(&target.info),
        times: Vec::with_capacity(rows.len()),
        values: Vec::with_capacity(rows.len()),
        starts: Vec::new(),
    };
    let mut next = 0;
    let mut start = None;
    for (row, (_, at, value)) in rows.iter().enumerate() {
        while let Some((_, of)) = target.starts.get(next).filter(|(from, _)| from <= at) {
            (start, next) = (of.map(Timestamp), next + 1);
        }
        if chunk.starts.last().is_none_or(|(_, before)| *before != start) {
            chunk.starts.push((row, start));
        }
        chunk.times.push(*at);
        chunk.values.push(*value);
    }
    chunk
}

impl Iterator for ChunkScan {
    type Item = Result<Chunk, StorageError>;

    fn next(&mut self) -> Option<Self::Item> {
        let chunk = self.read().transpose();
        if !matches!(chunk, Some(Ok(_))) {
            (self.rest, self.scan) = (VecDeque::new(), None);
        }
        chunk
    }
}

/// A database error as the error of a store.
pub(crate) fn failed(error: tokio_postgres::Error) -> StorageError {
    DatabaseError::from(error).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_labels() {
        for labels in [r#"{"a": 1.0}"#, r#"["x", {"b": -2}]"#, "7", r#"{"\"": 1}"#] {
            assert!(has_numbers(labels), "{labels}");
        }
        for labels in ["{}", "null", r#"{"cpu1": "0", "a\"": "1", "b\\": null}"#] {
            assert!(!has_numbers(labels), "{labels}");
        }
    }

    #[test]
    fn statements_for_a_hypertable_read_no_place_of_rows() {
        assert!(SAMPLES.contains("ctid") && !SAMPLES_OF_HYPERTABLE.contains("ctid"));
        assert!(SAMPLES_OF_HYPERTABLE.contains("tableoid"));
    }
}
