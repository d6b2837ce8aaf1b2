//! Scans samples, series by series.

use crate::blocks::{Block, Entry, RawValues, Window};
use crate::files::errors::BlockError;
use crate::head::samples::Head;
use crate::scan::merged_sources::{Columns, Feeds};
use crate::scan::source::{BlockSource, HeadSource, Piece, ScanQuery, Source};
use crate::state::shared::Shared;
use crate::state::view::View;
use model::Timestamp;
use senders::NO_START;
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::fmt;
use std::sync::Arc;
use storage::{Chunk, Meter, ReadCounts, Selector, SeriesInfo};

/// Chunks of a selection, series by series. It ends after an error.
pub struct Scan {
    shared: Arc<Shared>,
    meter: Arc<Meter>,
    query: ScanQuery,
    sources: Vec<Source>,
    /// The next series of each started source.
    next: BinaryHeap<Next>,
    begun: bool,
    /// The current series.
    feeds: Option<(Arc<SeriesInfo>, Feeds<Vec<f64>>)>,
}

impl fmt::Debug for Scan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scan").field("query", &self.query).finish_non_exhaustive()
    }
}

/// The pieces of a series, each with the position of its source.
pub(crate) type Pieces = (Arc<SeriesInfo>, Vec<(usize, Piece)>);

/// A series as some blocks store it.
pub(crate) struct BlockSeries {
    pub(crate) series: Arc<SeriesInfo>,
    /// The divisor of the newest block, used for all rows.
    pub(crate) divisor: u32,
    /// Its rows, read by [`Scan::rows`].
    pub(crate) feeds: Feeds<RawValues>,
}

/// The next series of a source. A heap returns the greatest first, so the order is reversed.
struct Next {
    series: Arc<SeriesInfo>,
    source: usize,
    piece: Piece,
}

impl Ord for Next {
    fn cmp(&self, other: &Self) -> Ordering {
        let series = SeriesInfo::order(&other.series, &self.series);
        series.then(other.source.cmp(&self.source))
    }
}

impl PartialOrd for Next {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Next {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Next {}

impl Scan {
    pub(crate) fn new(shared: &Arc<Shared>, view: &View, visible: u64, query: ScanQuery) -> Self {
        let meter = Meter::below(&shared.meter);
        let (from, to) = (query.from, query.to);
        let blocks = view.blocks.iter().filter(|block| block.touches(from, to));
        Self::over(shared, meter, blocks, (view.heads(), visible), query)
    }

    /// A scan of some whole blocks alone.
    pub(crate) fn blocks(shared: &Arc<Shared>, meter: &Arc<Meter>, blocks: &[Arc<Block>]) -> Self {
        let selector = Selector::default();
        let query = ScanQuery { selector, filter: None, from: i64::MIN, to: i64::MAX };
        Self::over(shared, Arc::clone(meter), blocks.iter(), (std::iter::empty(), 0), query)
    }

    /// A scan of these blocks, and of the batches that arrived in these heads before `visible`.
    pub(crate) fn over<'a>(
        shared: &Arc<Shared>,
        meter: Arc<Meter>,
        blocks: impl Iterator<Item = &'a Arc<Block>>,
        (heads, visible): (impl Iterator<Item = &'a Arc<Head>>, u64),
        query: ScanQuery,
    ) -> Self {
        let blocks = blocks.map(|block| Source::Block(Box::new(BlockSource::new(block, &meter))));
        let heads = heads
            .map(|head| Source::Head(Box::new(HeadSource::new(head, visible, &query.selector))));
        let sources = blocks.chain(heads).collect();
        let (shared, next) = (Arc::clone(shared), BinaryHeap::new());
        Self { shared, meter, query, sources, next, begun: false, feeds: None }
    }

    /// What this scan has read from blocks so far.
    pub fn read_counts(&self) -> ReadCounts {
        self.meter.counts()
    }

    /// The pieces of the next series, in the order of their sources.
    pub(crate) fn pieces(&mut self) -> Result<Option<Pieces>, BlockError> {
        if !self.begun {
            self.begun = true;
            (0..self.sources.len()).try_for_each(|source| self.advance(source))?;
        }
        let Some(first) = self.next.pop() else { return Ok(None) };
        let (series, mut pieces) = (first.series, vec![(first.source, first.piece)]);
        while let Some(same) = self.next.peek()
            && SeriesInfo::same(&same.series, &series)
        {
            let Some(same) = self.next.pop() else { break };
            pieces.push((same.source, same.piece));
        }
        let sources: Vec<usize> = pieces.iter().map(|(source, _)| *source).collect();
        sources.into_iter().try_for_each(|source| self.advance(source))?;
        Ok(Some((series, pieces)))
    }

    fn advance(&mut self, source: usize) -> Result<(), BlockError> {
        let Some(from) = self.sources.get_mut(source) else { return Ok(()) };
        if let Some((series, piece)) = from.next(&self.shared, &self.query)? {
            self.next.push(Next { series, source, piece });
        }
        Ok(())
    }

    /// The source of a piece, to read its rows.
    pub(crate) fn source(&mut self, place: usize) -> Option<&mut Source> {
        self.sources.get_mut(place)
    }

    fn chunk(&mut self) -> Result<Option<Chunk>, BlockError> {
        loop {
            if let Some((series, feeds)) = &mut self.feeds {
                if let Some(columns) = feeds.next(&mut self.sources, &self.query)? {
                    return Ok(Some(chunk(series, columns)));
                }
                self.feeds = None;
            }
            let Some((series, pieces)) = self.pieces()? else { return Ok(None) };
            let mut feeds = Feeds::new(Vec::new());
            for (place, piece) in pieces {
                let Some(source) = self.sources.get(place) else { continue };
                match piece {
                    Piece::Columns { times, values, starts } => {
                        feeds.add_columns(place, times, values, starts);
                    }
                    Piece::Rows(entry) => feeds.add_rows(place, source, *entry, &self.query),
                }
            }
            self.feeds = Some((series, feeds));
        }
    }

    /// The next series, of a scan of blocks alone, as they store it.
    ///
    /// # Errors
    /// A block cannot be read.
    pub(crate) fn series(&mut self) -> Result<Option<BlockSeries>, BlockError> {
        let Some((series, pieces)) = self.pieces()? else { return Ok(None) };
        let of = |piece: &Piece| match piece {
            Piece::Rows(entry) => Some(entry.divisor),
            Piece::Columns { .. } => None,
        };
        let divisor = pieces.iter().rev().find_map(|(_, piece)| of(piece)).unwrap_or(1);
        let mut feeds = Feeds::new(RawValues::new(divisor));
        for (place, piece) in pieces {
            if let (Some(source), Piece::Rows(entry)) = (self.sources.get(place), piece) {
                feeds.add_rows(place, source, *entry, &self.query);
            }
        }
        Ok(Some(BlockSeries { series, divisor, feeds }))
    }

    /// Whether a source has final windows.
    pub(crate) fn is_settled(&self, place: usize) -> bool {
        matches!(self.sources.get(place), Some(Source::Block(block)) if block.is_settled())
    }

    /// Adds a block's part of a series: samples to the feeds, windows to the parts.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn add(
        &mut self,
        place: usize,
        entry: Entry,
        feeds: &mut Feeds<Vec<f64>>,
        parts: &mut Vec<Window>,
    ) -> Result<(), BlockError> {
        match self.sources.get_mut(place) {
            Some(Source::Block(block)) if block.has_windows() => {
                block.windows(&entry, &self.query, parts)
            }
            Some(source) => {
                feeds.add_rows(place, source, entry, &self.query);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// The next rows of a series as values.
    ///
    /// # Errors
    /// A block cannot be read.
    pub(crate) fn values(
        &mut self,
        feeds: &mut Feeds<Vec<f64>>,
    ) -> Result<Option<Columns<Vec<f64>>>, BlockError> {
        feeds.next(&mut self.sources, &self.query)
    }

    /// The next rows of a series from [`Self::series`].
    ///
    /// # Errors
    /// A block cannot be read.
    pub(crate) fn rows(
        &mut self,
        feeds: &mut Feeds<RawValues>,
    ) -> Result<Option<Columns<RawValues>>, BlockError> {
        feeds.next(&mut self.sources, &self.query)
    }

    fn end(&mut self) {
        self.begun = true;
        self.next.clear();
        self.feeds = None;
        self.sources.clear();
    }
}

fn chunk(series: &Arc<SeriesInfo>, columns: Columns<Vec<f64>>) -> Chunk {
    let Columns { times, values, starts } = columns;
    let known = |start: i64| (start != NO_START).then_some(Timestamp(start));
    let starts = starts.into_iter().map(|(row, start)| (row, known(start))).collect();
    Chunk { series: Arc::clone(series), times, values, starts }
}

impl Iterator for Scan {
    type Item = Result<Chunk, BlockError>;

    fn next(&mut self) -> Option<Self::Item> {
        let chunk = self.chunk().transpose();
        if !matches!(chunk, Some(Ok(_))) {
            self.end();
        }
        chunk
    }
}

impl Drop for Scan {
    fn drop(&mut self) {
        self.shared.close_unused();
    }
}
