//! The samples of one series from several sources, merged in the order of time without reading more of
//! any than is needed for the next chunk.

use crate::answer::{Chunk, SeriesInfo};
use crate::block::Entry;
use crate::error::BlockError;
use crate::source::{Piece, Question, Source};
use crate::table::NO_START;
use model::Timestamp;
use std::ops::Range;
use std::sync::Arc;

/// Samples of one series from one source; of one instant, those of the earlier source come first.
#[derive(Debug)]
struct Feed {
    /// The source's place among all.
    source: usize,
    times: Vec<i64>,
    values: Vec<f64>,
    /// First row of each run of one start, counted as `base` is.
    starts: Vec<(usize, i64)>,
    /// The number of the first row in `times` among the piece's rows.
    base: usize,
    /// The next row in `times`.
    at: usize,
    /// What of a block is not read yet, and where the piece begins in it.
    rest: Option<Rest>,
}

#[derive(Debug)]
struct Rest {
    rows: Range<u64>,
    first: u64,
    divisor: u32,
    /// No sample is earlier.
    from: i64,
}

/// The columns of a chunk being filled.
#[derive(Debug, Default)]
struct Columns {
    times: Vec<i64>,
    values: Vec<f64>,
    starts: Vec<(usize, Option<Timestamp>)>,
}

/// The samples of one series.
#[derive(Debug)]
pub(crate) struct Feeds {
    series: Arc<SeriesInfo>,
    feeds: Vec<Feed>,
}

impl Feeds {
    pub(crate) fn new(series: Arc<SeriesInfo>) -> Self {
        Self { series, feeds: Vec::new() }
    }

    /// Adds what a source has; sources are added in their order.
    pub(crate) fn add(&mut self, place: usize, source: &Source, piece: Piece, ask: &Question) {
        let (times, values, starts, rest) = match piece {
            Piece::Columns { times, values, starts } => (times, values, starts, None),
            Piece::Rows(entry) => {
                let rows = source.narrow(&entry, ask);
                let Entry { row: first, divisor, from, starts, .. } = *entry;
                let from = from.max(ask.from);
                (Vec::new(), Vec::new(), starts, Some(Rest { rows, first, divisor, from }))
            }
        };
        self.feeds.push(Feed { source: place, times, values, starts, base: 0, at: 0, rest });
    }

    /// The next chunk; `None` when all is told.
    ///
    /// # Errors
    /// A block cannot be read.
    pub(crate) fn chunk(
        &mut self,
        sources: &mut [Source],
        ask: &Question,
    ) -> Result<Option<Chunk>, BlockError> {
        let mut out = Columns::default();
        while out.times.len() < Chunk::ROWS_MAX {
            self.feeds.retain(|feed| feed.next().is_some());
            let Some(place) = self.earliest(None) else { break };
            let limit = self.earliest(Some(place)).and_then(|other| self.feeds.get(other));
            let limit = limit.and_then(|other| Some((other.next()?, other.source)));
            let Some(feed) = self.feeds.get_mut(place) else { break };
            if feed.at >= feed.times.len() {
                feed.fill(sources, ask)?;
                continue;
            }
            let room = Chunk::ROWS_MAX - out.times.len();
            feed.give(limit, room, &mut out);
        }
        let series = Arc::clone(&self.series);
        let Columns { times, values, starts } = out;
        Ok((!times.is_empty()).then_some(Chunk { series, times, values, starts }))
    }

    /// The feed whose next sample comes first, but for one of them.
    fn earliest(&self, except: Option<usize>) -> Option<usize> {
        let others = self.feeds.iter().enumerate().filter(|(place, _)| Some(*place) != except);
        let first = others.min_by_key(|(_, feed)| (feed.next(), feed.source));
        first.map(|(place, _)| place)
    }
}

impl Feed {
    /// An instant that its next sample is not before; `None` when it has no more.
    fn next(&self) -> Option<i64> {
        let read = self.times.get(self.at).copied();
        read.or_else(|| self.rest.as_ref().map(|rest| rest.from))
    }

    /// Reads more of the block.
    fn fill(&mut self, sources: &mut [Source], ask: &Question) -> Result<(), BlockError> {
        let Some(mut rest) = self.rest.take() else { return Ok(()) };
        let end = rest.rows.end.min(rest.rows.start + Chunk::ROWS_MAX as u64);
        let rows = rest.rows.start..end;
        self.base = usize::try_from(rows.start - rest.first).unwrap_or(usize::MAX);
        rest.rows.start = end;
        self.times.clear();
        self.values.clear();
        if let Some(source) = sources.get_mut(self.source) {
            source.read(rows, rest.divisor, &mut self.times, &mut self.values)?;
        }
        self.at = self.times.partition_point(|time| *time < ask.from);
        let end = self.times.partition_point(|time| *time <= ask.to);
        let ended = end < self.times.len();
        self.times.truncate(end);
        self.values.truncate(end);
        if !ended && !rest.rows.is_empty() {
            rest.from = self.times.last().copied().unwrap_or(rest.from).max(rest.from);
            self.rest = Some(rest);
        }
        Ok(())
    }

    /// Moves rows out: those before `limit`, another feed's next sample, and no more than there is room.
    fn give(
        &mut self,
        limit: Option<(i64, usize)>,
        room: usize,
        Columns { times, values, starts }: &mut Columns,
    ) {
        let left = self.times.get(self.at..).unwrap_or_default();
        let before = match limit {
            Some((at, source)) if self.source < source => left.partition_point(|t| *t <= at),
            Some((at, _)) => left.partition_point(|t| *t < at),
            None => left.len(),
        };
        let end = self.at + before.min(room);
        let first_out = times.len();
        times.extend_from_slice(self.times.get(self.at..end).unwrap_or_default());
        values.extend_from_slice(self.values.get(self.at..end).unwrap_or_default());
        let (first, last) = (self.base + self.at, self.base + end);
        let run = self.starts.partition_point(|(row, _)| *row <= first).saturating_sub(1);
        for (row, start) in self.starts.iter().skip(run).take_while(|(row, _)| *row < last) {
            let start = (*start != NO_START).then_some(Timestamp(*start));
            if starts.last().is_none_or(|(_, before)| *before != start) {
                starts.push((first_out + row.saturating_sub(first), start));
            }
        }
        self.at = end;
    }
}
