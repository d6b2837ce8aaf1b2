//! Windows: from rollups for settled time, and from samples after it.

use crate::reading::session::{Query, RowScan};
use crate::reading::view::{ChunkScan, SERIES_MAX, Target, View, failed};
use crate::rollup_rows::rollup_of;
use model::{Point, Rollup, RollupWindows, Timestamp};
use std::collections::VecDeque;
use std::iter::Peekable;
use std::sync::Arc;
use storage::{
    Chunk, Selector, SeriesInfo, StorageError, WINDOWS_US, Windows, windows_between,
    without_sums_of_totals,
};

/// The columns of the rollup begin at the third. Each series reads its part of the index.
const ROLLUPS: &str = "
SELECT place, windows.* FROM unnest($1::int4[], $2::int8[]) AS wanted (place, id)
CROSS JOIN LATERAL (SELECT at_us, samples, sum, min, max, first_us, first_value, first_start_us, last_us, last_value,
        last_start_us, seconds, integral, resets, before_resets
    FROM jobmeter.rollups WHERE series_id = id AND window_us = $3 AND at_us BETWEEN $4 AND $5 OFFSET 0) AS windows
ORDER BY place, at_us";

type Window = (Timestamp, Rollup);
type SeriesWindows = (Arc<SeriesInfo>, Vec<Window>);
type Part = Result<SeriesWindows, StorageError>;

/// Windows of a selection, series by series.
pub(crate) struct WindowScan {
    view: View,
    selector: Selector,
    window_us: i64,
    /// The first and the last window.
    span: (i64, i64),
    parts: Option<(Peekable<Settled>, Peekable<Computed>)>,
    done: bool,
}

/// Windows from rollups.
struct Settled {
    view: View,
    window_us: i64,
    span: (i64, i64),
    rest: VecDeque<Target>,
    targets: Vec<Target>,
    scan: Option<RowScan>,
    /// Windows that are read, with the place of their series.
    ready: VecDeque<(usize, Window)>,
}

/// Windows from samples.
struct Computed {
    chunks: Peekable<ChunkScan>,
    window_us: i64,
}

impl WindowScan {
    pub(crate) fn new(
        view: View,
        selector: &Selector,
        (from, to): (Timestamp, Timestamp),
        window_us: i64,
    ) -> Self {
        let span = windows_between(from.0, to.0, window_us);
        Self { view, selector: selector.clone(), window_us, span, parts: None, done: false }
    }

    /// Begins both scans.
    fn begin(&self) -> Result<(Peekable<Settled>, Peekable<Computed>), StorageError> {
        let (first, last) = self.span;
        let is_kept = WINDOWS_US.contains(&self.window_us) && !self.view.recomputes;
        let settled = self.view.settled()?.filter(|_| is_kept).map_or(i64::MIN, |at| at.0);
        let of_rollups = (first, last.min(settled.saturating_sub(1)));
        let samples = (first.max(settled), last.saturating_add(self.window_us - 1));
        let rest = match of_rollups.0 <= of_rollups.1 {
            true => self.view.targets(&self.selector, of_rollups)?.into(),
            false => VecDeque::new(),
        };
        let settled = Settled {
            view: self.view.clone(),
            window_us: self.window_us,
            span: of_rollups,
            rest,
            targets: Vec::new(),
            scan: None,
            ready: VecDeque::new(),
        };
        let chunks = self.view.chunks(&self.selector, samples).peekable();
        let computed = Computed { chunks, window_us: self.window_us };
        Ok((settled.peekable(), computed.peekable()))
    }

    /// The next series: the windows of both parts.
    fn read(&mut self) -> Result<Option<Windows>, StorageError> {
        if self.span.0 > self.span.1 {
            return Ok(None);
        }
        let (settled, computed) = match &mut self.parts {
            Some(parts) => parts,
            None => self.parts.insert(self.begin()?),
        };
        let series = |part: Option<&Part>| {
            part.map(|part| part.as_ref().ok().map(|(info, _)| info.series.clone()))
        };
        // An error comes first.
        let (a, b) = (series(settled.peek()), series(computed.peek()));
        let next = match (a, b) {
            (None, None) => return Ok(None),
            (Some(a), None) => [true, a.is_none()],
            (None, Some(_)) => [false, true],
            (Some(a), Some(b)) => [a <= b, b <= a],
        };
        let [from_settled, from_computed] = next;
        let mut found: Option<SeriesWindows> = None;
        let mut add = |part: Option<Part>| {
            if let Some(part) = part {
                let (info, windows) = part?;
                found.get_or_insert_with(|| (info, Vec::new())).1.extend(windows);
            }
            Ok::<(), StorageError>(())
        };
        if from_settled {
            add(settled.next())?;
        }
        if from_computed {
            add(computed.next())?;
        }
        let windows = found.map(|(series, windows)| {
            let metric = &series.series.metric;
            let window = |(start, rollup)| (start, without_sums_of_totals(metric, rollup));
            Windows { windows: windows.into_iter().map(window).collect(), series }
        });
        Ok(windows)
    }
}

impl Iterator for WindowScan {
    type Item = Result<Windows, StorageError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let next = self.read().transpose();
        self.done = !matches!(next, Some(Ok(_)));
        next
    }
}

impl Settled {
    fn read(&mut self) -> Result<Option<SeriesWindows>, StorageError> {
        let mut found: Option<(usize, Vec<Window>)> = None;
        loop {
            while let Some((place, _)) = self.ready.front() {
                if found.as_ref().is_some_and(|(of, _)| of != place) {
                    return Ok(self.named(found));
                }
                let Some((place, window)) = self.ready.pop_front() else { break };
                found.get_or_insert_with(|| (place, Vec::new())).1.push(window);
            }
            let Some(scan) = &mut self.scan else {
                if found.is_some() || self.rest.is_empty() {
                    return Ok(self.named(found));
                }
                self.begin();
                continue;
            };
            let rows = scan.read()?;
            if rows.is_empty() {
                self.scan = None;
            }
            for row in rows {
                let place: i32 = row.try_get(0).map_err(failed)?;
                let start = Timestamp(row.try_get(1).map_err(failed)?);
                let place = usize::try_from(place).unwrap_or(usize::MAX);
                self.ready.push_back((place, (start, rollup_of(&row, 2)?)));
            }
        }
    }

    fn named(&self, found: Option<(usize, Vec<Window>)>) -> Option<SeriesWindows> {
        let (place, windows) = found?;
        Some((Arc::clone(&self.targets.get(place)?.info), windows))
    }

    fn begin(&mut self) {
        self.targets = self.rest.drain(..self.rest.len().min(SERIES_MAX)).collect();
        let places: Vec<i32> = (0..).take(self.targets.len()).collect();
        let ids: Vec<i64> = self.targets.iter().map(|target| target.id).collect();
        let (window_us, (from, to)) = (self.window_us, self.span);
        self.scan = Some(self.view.query(Query {
            statement: ROLLUPS,
            values: vec![
                Box::new(places),
                Box::new(ids),
                Box::new(window_us),
                Box::new(from),
                Box::new(to),
            ],
        }));
    }
}

impl Iterator for Settled {
    type Item = Part;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

impl Iterator for Computed {
    type Item = Part;

    fn next(&mut self) -> Option<Self::Item> {
        let first = match self.chunks.next()? {
            Ok(chunk) => chunk,
            Err(error) => return Some(Err(error)),
        };
        let series = Arc::clone(&first.series);
        let (mut rolling, mut windows) = (RollupWindows::new(self.window_us), Vec::new());
        let mut push = |chunk: &Chunk| {
            let rows = chunk.rows().filter(|(_, value, _)| Chunk::has_value(*value));
            let points = rows.map(|(at, value, start)| Point { at, value, start });
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
        Some(Ok((series, windows)))
    }
}
