//! Merges the samples of one series from several sources by time. It reads no more of a source than the next
//! chunk needs.

use crate::blocks::{Entry, Lane};
use crate::files::errors::BlockError;
use crate::scan::source::{ScanQuery, Source};
use std::ops::Range;
use storage::Chunk;

/// Samples of one series from one source; at one instant, those of the earlier source come first.
#[derive(Debug)]
struct Feed<L> {
    /// The source's position.
    source: usize,
    times: Vec<i64>,
    values: L,
    /// First row of each run of one start, counted like `base`.
    starts: Vec<(usize, i64)>,
    /// The number of the first row in `times` among the piece's rows.
    base: usize,
    /// The next row in `times`.
    at: usize,
    /// The unread rows of a block, and the start of the piece in it.
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

/// Rows of a series, ordered by time.
#[derive(Debug)]
pub(crate) struct Columns<L> {
    pub(crate) times: Vec<i64>,
    pub(crate) values: L,
    /// First row of each run of one start; neighbours differ.
    pub(crate) starts: Vec<(usize, i64)>,
}

/// The samples of one series.
#[derive(Debug)]
pub(crate) struct Feeds<L> {
    feeds: Vec<Feed<L>>,
    /// An empty column.
    empty: L,
}

impl<L: Lane> Feeds<L> {
    /// No feeds yet; their values go to columns like this empty one.
    pub(crate) const fn new(empty: L) -> Self {
        Self { feeds: Vec::new(), empty }
    }

    /// Adds rows of a block; sources are added in order.
    pub(crate) fn add_rows(
        &mut self,
        place: usize,
        source: &Source,
        entry: Entry,
        query: &ScanQuery,
    ) {
        let rows = source.narrow(&entry, query);
        let Entry { row: first, divisor, from, starts, .. } = entry;
        let from = from.max(query.from);
        let rest = Some(Rest { rows, first, divisor, from });
        self.feeds.push(Feed { rest, ..Feed::new(place, self.empty.clone(), starts) });
    }

    /// Adds rows that are in memory already.
    pub(crate) fn add_columns(
        &mut self,
        place: usize,
        times: Vec<i64>,
        values: L,
        starts: Vec<(usize, i64)>,
    ) {
        self.feeds.push(Feed { times, ..Feed::new(place, values, starts) });
    }

    /// The next rows, at most [`Chunk::ROWS_MAX`]; `None` at the end.
    ///
    /// # Errors
    /// A block cannot be read.
    pub(crate) fn next(
        &mut self,
        sources: &mut [Source],
        query: &ScanQuery,
    ) -> Result<Option<Columns<L>>, BlockError> {
        let (times, starts) = (Vec::new(), Vec::new());
        let mut out = Columns { times, values: self.empty.clone(), starts };
        while out.times.len() < Chunk::ROWS_MAX {
            self.feeds.retain(|feed| feed.next().is_some());
            let Some(place) = self.earliest(None) else { break };
            let limit = self.earliest(Some(place)).and_then(|other| self.feeds.get(other));
            let limit = limit.and_then(|other| Some((other.next()?, other.source)));
            let Some(feed) = self.feeds.get_mut(place) else { break };
            if feed.at >= feed.times.len() {
                feed.fill(sources, query)?;
                continue;
            }
            let free = Chunk::ROWS_MAX - out.times.len();
            feed.give(limit, free, &mut out);
        }
        Ok((!out.times.is_empty()).then_some(out))
    }

    /// The feed with the earliest next sample, except one of them.
    fn earliest(&self, except: Option<usize>) -> Option<usize> {
        let others = self.feeds.iter().enumerate().filter(|(place, _)| Some(*place) != except);
        let first = others.min_by_key(|(_, feed)| (feed.next(), feed.source));
        first.map(|(place, _)| place)
    }
}

impl<L: Lane> Feed<L> {
    const fn new(source: usize, values: L, starts: Vec<(usize, i64)>) -> Self {
        Self { source, times: Vec::new(), values, starts, base: 0, at: 0, rest: None }
    }

    /// A lower bound of its next sample's instant; `None` at the end.
    fn next(&self) -> Option<i64> {
        let read = self.times.get(self.at).copied();
        read.or_else(|| self.rest.as_ref().map(|rest| rest.from))
    }

    /// Reads more of the block.
    fn fill(&mut self, sources: &mut [Source], query: &ScanQuery) -> Result<(), BlockError> {
        let Some(mut rest) = self.rest.take() else { return Ok(()) };
        let end = rest.rows.end.min(rest.rows.start + Chunk::ROWS_MAX as u64);
        let rows = rest.rows.start..end;
        self.base = usize::try_from(rows.start - rest.first).unwrap_or(usize::MAX);
        rest.rows.start = end;
        self.times.clear();
        self.times.reserve_exact(usize::try_from(end - rows.start).unwrap_or(0));
        self.values.truncate(0);
        if let Some(source) = sources.get_mut(self.source) {
            source.read(rows, rest.divisor, &mut self.times, &mut self.values)?;
        }
        self.at = self.times.partition_point(|time| *time < query.from);
        let end = self.times.partition_point(|time| *time <= query.to);
        let ended = end < self.times.len();
        self.times.truncate(end);
        self.values.truncate(end);
        if !ended && !rest.rows.is_empty() {
            rest.from = self.times.last().copied().unwrap_or(rest.from).max(rest.from);
            self.rest = Some(rest);
        }
        Ok(())
    }

    /// Moves rows out: those before `limit` (another feed's next sample), at most `free`.
    fn give(
        &mut self,
        limit: Option<(i64, usize)>,
        free: usize,
        Columns { times, values, starts }: &mut Columns<L>,
    ) {
        let left = self.times.get(self.at..).unwrap_or_default();
        let before = match limit {
            Some((at, source)) if self.source < source => left.partition_point(|t| *t <= at),
            Some((at, _)) => left.partition_point(|t| *t < at),
            None => left.len(),
        };
        let end = self.at + before.min(free);
        let first_out = times.len();
        let (first, last) = (self.base + self.at, self.base + end);
        let run = self.starts.partition_point(|(row, _)| *row <= first).saturating_sub(1);
        for (row, start) in self.starts.iter().skip(run).take_while(|(row, _)| *row < last) {
            if starts.last().is_none_or(|(_, before)| before != start) {
                starts.push((first_out + row.saturating_sub(first), *start));
            }
        }
        if times.is_empty() && self.at == 0 && end == self.times.len() {
            // The usual case: one block has all rows of the chunk.
            std::mem::swap(times, &mut self.times);
            std::mem::swap(values, &mut self.values);
            return;
        }
        times.extend_from_slice(self.times.get(self.at..end).unwrap_or_default());
        values.take(&self.values, self.at..end);
        self.at = end;
    }
}
