//! A view of the store, and its samples series by series.

use crate::connection::DatabaseError;
use crate::copy::Micros;
use crate::reading::session::{Query, RowScan, Session};
use crate::shared::Shared;
use model::{Series, Timestamp};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use storage::{Chunk, Selector, SeriesCondition, SeriesFilter, SeriesInfo, StorageError};
use tokio_postgres::Row;

/// Series that one statement reads.
pub(crate) const SERIES_MAX: usize = 1000;

/// One branch reads samples of nodes, the other samples of jobs. Rows of one instant come in the order of their storage.
const SAMPLES: &str = "
WITH wanted AS (SELECT place, device, metric, labels::jsonb AS labels, cluster, job FROM unnest(
    $1::int4[], $2::text[], $3::text[], $4::text[], $5::text[], $6::int8[])
    AS wanted (place, device, metric, labels, cluster, job))
SELECT place, timestamp, value FROM (
    SELECT place, timestamp, coalesce(value, 'NaN') AS value, m.tableoid AS part, m.ctid AS at
    FROM metrics AS m JOIN wanted ON job IS NULL AND device = m.device_id AND metric = m.metric_id
        AND wanted.labels = m.labels
    WHERE m.device_id = ANY ($2) AND m.metric_id = ANY ($3) AND timestamp BETWEEN $7 AND $8
    UNION ALL
    SELECT place, timestamp, value, m.tableoid, m.ctid
    FROM jobmeter.job_metrics AS m JOIN wanted ON job = m.job_id AND wanted.cluster = m.cluster
        AND device = m.device_id AND metric = m.metric_id AND wanted.labels = m.labels
    WHERE m.device_id = ANY ($2) AND m.job_id = ANY ($6) AND timestamp BETWEEN $7 AND $8) AS rows
ORDER BY place, timestamp, part, at";
const SETTLED: &str = "SELECT settled_us FROM jobmeter.state";

/// A view of the store. Its scans read one state of the database.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) shared: Arc<Shared>,
    session: Arc<Session>,
    filter: Option<SeriesFilter>,
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
    session: Arc<Session>,
    span: (i64, i64),
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
        Self::with_limit(shared, shared.settings.statement_time_max_ms, has_left)
    }

    /// A view for maintenance, which takes its time.
    pub(crate) fn unlimited(shared: &Arc<Shared>) -> Self {
        Self::with_limit(shared, 0, Arc::default())
    }

    fn with_limit(shared: &Arc<Shared>, time_max_ms: u32, has_left: Arc<AtomicBool>) -> Self {
        let session = Session::new(shared, time_max_ms, has_left);
        Self { shared: Arc::clone(shared), session, filter: None }
    }

    /// The series of a selection that may have samples within an interval.
    pub(crate) fn targets(&self, selector: &Selector, (from, to): (i64, i64)) -> Vec<Target> {
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
        target.collect()
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
        let rest = self.targets(selector, span).into();
        let session = Arc::clone(&self.session);
        ChunkScan { session, span, rest, targets: Vec::new(), scan: None, ready: VecDeque::new() }
    }
}

impl ChunkScan {
    fn read(&mut self) -> Result<Option<Chunk>, StorageError> {
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
            let sample =
                |row: &Row| Ok((row.try_get(0)?, row.try_get::<_, Micros>(1)?.0, row.try_get(2)?));
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
        self.scan = Some(self.session.query(Query {
            statement: SAMPLES,
            values: vec![
                Box::new(places),
                Box::new(devices),
                Box::new(metrics),
                Box::new(labels),
                Box::new(clusters),
                Box::new(jobs),
                Box::new(Micros(from)),
                Box::new(Micros(to)),
            ],
        }));
    }
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
