//! A view of the store.

use crate::session::{RowScan, Session, Wanted};
use crate::store::Shared;
use model::{Kind, Point, RollupWindows, Series, Timestamp};
use std::collections::VecDeque;
use std::sync::Arc;
use storage::{
    ByTime, Chunk, CounterStart, LastValue, Parts, Selector, SeriesCondition, SeriesFilter,
    SeriesInfo, StorageError, TimeSlice, Windows, without_sums_of_totals,
};

/// Series that one statement reads.
const SERIES_MAX: usize = 1000;

/// A view of the store. Its scans read one state of the database.
#[derive(Clone, Debug)]
pub(crate) struct View {
    shared: Arc<Shared>,
    session: Arc<Session>,
    filter: Option<SeriesFilter>,
}

/// A series to read.
#[derive(Clone, Debug)]
struct Target {
    info: Arc<SeriesInfo>,
    /// The starts of its counter: from an instant on.
    starts: Vec<(i64, Option<i64>)>,
}

/// Chunks of a selection, series by series.
struct ChunkScan {
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
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        let session = Session::new(&shared.runtime, &shared.config, &shared.readers);
        Self { shared: Arc::clone(shared), session, filter: None }
    }

    /// The series of a selection that may have samples within an interval.
    fn targets(&self, selector: &Selector, (from, to): (i64, i64)) -> Vec<Target> {
        let opened = self.shared.opened;
        let found: Vec<(Series, u32, Vec<_>)> = {
            let book = self.shared.series();
            let touching = book.select(selector).filter(|(series, stored)| {
                let end = stored.last_bound(opened);
                let span = (Timestamp(from.max(stored.first_us)), Timestamp(to.min(end)));
                stored.first_us <= to
                    && end >= from
                    && self.filter.as_ref().is_none_or(|SeriesFilter(keep)| keep(series, span))
            });
            let target = touching.map(|(series, stored)| {
                let starts = stored.starts.iter().map(|(at, start)| (*at, *start)).collect();
                (series.clone(), stored.divisor, starts)
            });
            target.collect()
        };
        let books = self.shared.books();
        let target = found.into_iter().map(|(series, divisor, starts)| Target {
            info: books.registry.series_info(series, divisor),
            starts,
        });
        target.collect()
    }

    fn chunks(&self, selector: &Selector, span: (i64, i64)) -> ChunkScan {
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
            for of_one in rows.chunk_by(|a, b| a.0 == b.0) {
                let place = of_one.first().and_then(|(place, ..)| usize::try_from(*place).ok());
                let target = place.and_then(|place| self.targets.get(place));
                self.ready.extend(target.map(|target| chunk(target, of_one)));
            }
        }
    }

    fn begin(&mut self) {
        self.targets = self.rest.drain(..self.rest.len().min(SERIES_MAX)).collect();
        let mut wanted = Wanted::default();
        for (target, place) in self.targets.iter().zip(0..) {
            let Series { device, metric, job, labels } = &target.info.series;
            wanted.places.push(place);
            wanted.devices.push(device.to_string());
            wanted.metrics.push(metric.to_string());
            wanted.labels.push(labels.as_str().to_owned());
            wanted.clusters.push(job.as_ref().map(|job| job.cluster.to_string()));
            wanted.jobs.push(job.as_ref().map(|job| job.id.get()));
        }
        self.scan = Some(self.session.scan(wanted, self.span));
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

/// Windows of a selection, computed from its samples.
struct WindowScan {
    chunks: std::iter::Peekable<ChunkScan>,
    window_us: i64,
}

impl Iterator for WindowScan {
    type Item = Result<Windows, StorageError>;

    fn next(&mut self) -> Option<Self::Item> {
        let first = match self.chunks.next()? {
            Ok(chunk) => chunk,
            Err(error) => return Some(Err(error)),
        };
        let series = Arc::clone(&first.series);
        let (mut rolling, mut windows) = (RollupWindows::new(self.window_us), Vec::new());
        let mut push = |chunk: &Chunk| {
            let points = chunk.rows().map(|(at, value, start)| Point { at, value, start });
            points.for_each(|point| windows.extend(rolling.push(point)));
        };
        push(&first);
        let same = |next: &Result<Chunk, StorageError>| {
            next.as_ref().map_or(true, |chunk| Arc::ptr_eq(&chunk.series, &series))
        };
        while let Some(next) = self.chunks.next_if(same) {
            match next {
                Ok(chunk) => push(&chunk),
                Err(error) => return Some(Err(error)),
            }
        }
        windows.extend(rolling.finish());
        let metric = &series.series.metric;
        let windows = windows
            .into_iter()
            .map(|(start, rollup)| (start, without_sums_of_totals(metric, rollup)))
            .collect();
        Some(Ok(Windows { series, windows }))
    }
}

impl storage::Snapshot for View {
    fn limited_to(&self, condition: Arc<SeriesCondition>) -> Arc<dyn storage::Snapshot> {
        Arc::new(Self { filter: Some(SeriesFilter(condition)), ..self.clone() })
    }

    fn scan(&self, selector: &Selector, from: Timestamp, to: Timestamp) -> Parts<Chunk> {
        Parts::new(self.chunks(selector, (from.0, to.0)))
    }

    fn scan_by_time(
        &self,
        selector: &Selector,
        from: Timestamp,
        to: Timestamp,
        rows_max: usize,
    ) -> Parts<TimeSlice> {
        Parts::new(ByTime::new(Arc::new(self.clone()), selector, (from, to), rows_max))
    }

    fn windows(
        &self,
        selector: &Selector,
        from: Timestamp,
        to: Timestamp,
        window_us: i64,
    ) -> Parts<Windows> {
        let window_us = window_us.max(1);
        let first =
            from.0.saturating_add(window_us - 1).div_euclid(window_us).saturating_mul(window_us);
        let last = to.0.div_euclid(window_us).saturating_mul(window_us);
        let span = (first, last.saturating_add(window_us - 1));
        Parts::new(WindowScan { chunks: self.chunks(selector, span).peekable(), window_us })
    }

    fn series(
        &self,
        selector: &Selector,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Vec<Arc<SeriesInfo>>, StorageError> {
        let targets = self.targets(selector, (from.0, to.0)).into_iter();
        Ok(targets.map(|target| target.info).collect())
    }

    fn last(&self, selector: &Selector) -> Vec<LastValue> {
        let since = self.shared.now().plus(-self.shared.settings.senders.series_idle_us);
        let live: Vec<_> = {
            let book = self.shared.series();
            let live = book.select(selector).filter(|(_, stored)| stored.received >= since);
            live.map(|(series, stored)| {
                (
                    series.clone(),
                    stored.divisor,
                    stored.last_us,
                    stored.last_value,
                    stored.start_at(stored.last_us),
                )
            })
            .collect()
        };
        let books = self.shared.books();
        let value = live.into_iter().map(|(series, divisor, at, value, start)| LastValue {
            series: books.registry.series_info(series, divisor),
            at: Timestamp(at),
            value,
            start,
        });
        value.collect()
    }

    fn counter_starts(
        &self,
        selector: &Selector,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<Vec<CounterStart>, StorageError> {
        let mut found: Vec<CounterStart> = Vec::new();
        for chunk in self.chunks(selector, (from.0, to.0)) {
            let chunk = chunk?;
            if chunk.series.kind != Kind::Counter {
                continue;
            }
            for (row, start) in &chunk.starts {
                let at = chunk.times.get(*row).copied().map(Timestamp);
                let Some((at, start)) = at.zip(*start) else { continue };
                let is_known = found.last().is_some_and(|last| {
                    Arc::ptr_eq(&last.series, &chunk.series) && last.start == start
                });
                if !is_known {
                    found.push(CounterStart { series: Arc::clone(&chunk.series), at, start });
                }
            }
        }
        Ok(found)
    }

    fn extent(&self) -> Option<(Timestamp, Timestamp)> {
        self.shared.series().extent().map(|(from, to)| (Timestamp(from), Timestamp(to)))
    }

    fn estimate_rows(
        &self,
        selector: &Selector,
        from: Timestamp,
        to: Timestamp,
    ) -> Result<u64, StorageError> {
        let book = self.shared.series();
        let keep = |series: &Series| match &self.filter {
            Some(SeriesFilter(keep)) => keep(series, (from, to)),
            None => true,
        };
        let rows = book.select(selector).filter(|(series, _)| keep(series));
        Ok(rows.map(|(_, stored)| stored.rows_between(from.0, to.0)).sum())
    }
}
