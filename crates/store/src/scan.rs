//! Walking through samples, series by series.

use crate::answer::{Chunk, ReadCounts, SeriesInfo};
use crate::block::Meter;
use crate::error::BlockError;
use crate::feed::Feeds;
use crate::shared::Shared;
use crate::source::{BlockSource, HeadSource, Piece, Question, Source};
use crate::view::View;
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::fmt;
use std::sync::Arc;

/// Chunks of a selection, series by series. After an error it ends.
pub struct Scan {
    shared: Arc<Shared>,
    meter: Arc<Meter>,
    question: Question,
    sources: Vec<Source>,
    /// The next series of each source, once it was begun.
    next: BinaryHeap<Next>,
    begun: bool,
    feeds: Option<Feeds>,
}

impl fmt::Debug for Scan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scan").field("question", &self.question).finish_non_exhaustive()
    }
}

/// What the sources have of a series, each with its source's place.
pub(crate) type Pieces = (Arc<SeriesInfo>, Vec<(usize, Piece)>);

/// The next series of a source. The greatest, which a heap gives first, is the first in order.
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
    pub(crate) fn new(shared: &Arc<Shared>, view: &View, visible: u64, question: Question) -> Self {
        let meter = Meter::below(&shared.meter);
        let blocks = view.blocks.iter().filter(|block| block.touches(question.from, question.to));
        let blocks = blocks.map(|block| Source::Block(Box::new(BlockSource::new(block, &meter))));
        let mut sources: Vec<Source> = blocks.collect();
        for head in view.heads() {
            let head = HeadSource::new(head, visible, &question.selector);
            sources.push(Source::Head(Box::new(head)));
        }
        let (shared, next) = (Arc::clone(shared), BinaryHeap::new());
        Self { shared, meter, question, sources, next, begun: false, feeds: None }
    }

    /// What this scan has read from blocks so far.
    pub fn read_counts(&self) -> ReadCounts {
        self.meter.counts()
    }

    /// The pieces of the next series, with the places of their sources, in the order of these.
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
        if let Some((series, piece)) = from.next(&self.shared, &self.question)? {
            self.next.push(Next { series, source, piece });
        }
        Ok(())
    }

    /// Reads rows of a piece that a source gave.
    pub(crate) fn source(&mut self, place: usize) -> Option<&mut Source> {
        self.sources.get_mut(place)
    }

    fn chunk(&mut self) -> Result<Option<Chunk>, BlockError> {
        loop {
            if let Some(feeds) = &mut self.feeds {
                if let Some(chunk) = feeds.chunk(&mut self.sources, &self.question)? {
                    return Ok(Some(chunk));
                }
                self.feeds = None;
            }
            let Some((series, pieces)) = self.pieces()? else { return Ok(None) };
            let mut feeds = Feeds::new(series);
            for (place, piece) in pieces {
                if let Some(source) = self.sources.get(place) {
                    feeds.add(place, source, piece, &self.question);
                }
            }
            self.feeds = Some(feeds);
        }
    }

    fn end(&mut self) {
        self.begun = true;
        self.next.clear();
        self.feeds = None;
        self.sources.clear();
    }
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
