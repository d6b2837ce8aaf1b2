//! Reads rollups: windows from files, joined with windows of samples that have none.
//!
//! Log segments distinguish files of rollups and blocks: a block is skipped if a file of rollups covers its segments.
//! So a window may come in parts: from a file, from another file that was written later, from samples in memory.
//! Consecutive parts are joined. Overlapping parts (a batch came late) are not: then the window is recomputed
//! from its samples.

use crate::blocks::{Block, BlockNote, Window};
use crate::files::errors::BlockError;
use crate::scan::by_series::Scan;
use crate::scan::merged_sources::Feeds;
use crate::scan::rollup_points::points;
use crate::scan::source::{Piece, ScanQuery};
use crate::state::shared::Shared;
use crate::state::view::View;
use model::{Point, Rollup, RollupWindows, Series, Timestamp};
use std::fmt;
use std::sync::Arc;
use storage::{Meter, Selector, WINDOWS_US, Windows, windows_between, without_sums_of_totals};

/// Windows of a selection, series by series in the order of [`Series`]. It ends after an error.
pub struct WindowScan {
    shared: Arc<Shared>,
    view: Arc<View>,
    visible: u64,
    window_us: i64,
    /// Earlier windows come from final files.
    settled: Timestamp,
    /// First and last instant at which windows may begin.
    span: (i64, i64),
    scan: Scan,
    done: bool,
}

impl fmt::Debug for WindowScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WindowScan").field("span", &self.span).finish_non_exhaustive()
    }
}

impl WindowScan {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        view: &Arc<View>,
        visible: u64,
        query: ScanQuery,
        window_us: i64,
        meter: Arc<Meter>,
    ) -> Self {
        let ScanQuery { selector, filter, from, to } = query;
        let (first, last) = windows_between(from, to, window_us);
        let end = last.saturating_add(window_us - 1);
        let query = ScanQuery { selector, filter, from: first, to: end };
        let touches = |block: &&Arc<Block>| first <= last && block.touches(first, end);
        // Final files alone answer for the settled time, and all others for the rest.
        let kept = WINDOWS_US.contains(&window_us);
        let settled = if kept { view.settled } else { Timestamp(i64::MIN) };
        let later = |block: &BlockNote| block.to >= settled;
        let files = view.rollups.iter().filter(|file| {
            let note = &file.note;
            note.window_us == window_us && (note.settled.is_some() || later(note))
        });
        let blocks = view.blocks.iter();
        let blocks = blocks.filter(|b| later(&b.note) && !view.is_rolled(&b.note, window_us));
        let blocks = files.filter(touches).chain(blocks.filter(touches));
        let scan = Scan::over(shared, meter, blocks, (view.heads(), visible), query);
        let (shared, view) = (Arc::clone(shared), Arc::clone(view));
        let span = (first, last);
        Self { shared, view, visible, window_us, settled, span, scan, done: false }
    }

    fn read(&mut self) -> Result<Option<Windows>, BlockError> {
        while let Some((series, pieces)) = self.scan.pieces()? {
            let mut parts = self.parts(pieces)?;
            let (first, last) = self.span;
            parts.retain(|(start, _)| (first..=last).contains(&start.0));
            parts.sort_by_key(|(start, rollup)| (*start, rollup.first.at));
            let windows = self.put_together(&series.series, &parts)?;
            if !windows.is_empty() {
                return Ok(Some(Windows { series, windows }));
            }
        }
        Ok(None)
    }

    /// The windows of a series, or parts of them, unordered.
    fn parts(&mut self, pieces: Vec<(usize, Piece)>) -> Result<Vec<Window>, BlockError> {
        let (mut parts, mut settled) = (Vec::new(), Vec::new());
        let mut feeds = Feeds::new(Vec::new());
        for (place, piece) in pieces {
            match piece {
                Piece::Columns { times, values, starts } => {
                    feeds.add_columns(place, times, values, starts);
                }
                Piece::Rows(entry) => {
                    let of = if self.scan.is_settled(place) { &mut settled } else { &mut parts };
                    self.scan.add(place, *entry, &mut feeds, of)?;
                }
            }
        }
        self.roll(&mut feeds, &mut parts)?;
        parts.retain(|(start, _)| *start >= self.settled);
        parts.append(&mut settled);
        Ok(parts)
    }

    /// Rolls samples up.
    fn roll(
        &mut self,
        feeds: &mut Feeds<Vec<f64>>,
        parts: &mut Vec<Window>,
    ) -> Result<(), BlockError> {
        let mut windows = RollupWindows::new(self.window_us);
        while let Some(rows) = self.scan.values(feeds)? {
            let values = rows.values.iter().copied();
            for point in points(&rows.times, values, &rows.starts) {
                parts.extend(windows.push(point));
            }
        }
        parts.extend(windows.finish());
        Ok(())
    }

    fn put_together(&self, series: &Series, parts: &[Window]) -> Result<Vec<Window>, BlockError> {
        let mut windows = Vec::new();
        for same in parts.chunk_by(|a, b| a.0 == b.0) {
            let Some(((start, first), rest)) = same.split_first() else { continue };
            let follows = |pair: &[Window]| match pair {
                [before, after] => before.1.last.at < after.1.first.at,
                _ => true,
            };
            let rollup = if same.windows(2).all(follows) {
                let mut joined = *first;
                rest.iter().for_each(|(_, part)| joined.join(part));
                Some(joined)
            } else {
                self.recompute(series, *start)?
            };
            windows.extend(
                rollup.map(|rollup| (*start, without_sums_of_totals(&series.metric, rollup))),
            );
        }
        Ok(windows)
    }

    /// A window computed from its samples.
    fn recompute(&self, series: &Series, start: Timestamp) -> Result<Option<Rollup>, BlockError> {
        let selector = Selector::of(series);
        let to = start.0.saturating_add(self.window_us - 1);
        let query = ScanQuery { selector, filter: None, from: start.0, to };
        let mut windows = RollupWindows::new(self.window_us);
        for chunk in Scan::new(&self.shared, &self.view, self.visible, query) {
            let chunk = chunk?;
            for (at, value, start) in chunk.rows() {
                windows.push(Point { at, value, start });
            }
        }
        Ok(windows.finish().map(|(_, rollup)| rollup))
    }
}

impl Iterator for WindowScan {
    type Item = Result<Windows, BlockError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let next = self.read().transpose();
        self.done = !matches!(next, Some(Ok(_)));
        next
    }
}
