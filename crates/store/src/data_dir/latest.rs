//! The newest samples of live series, from the indexes of the blocks when a data directory is opened.

use crate::blocks::{Block, Entry, Opened};
use crate::files::errors::BlockError;
use crate::state::view::{LastInBlock, LatestSamples};
use model::Timestamp;
use senders::{NO_START, Registry};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::sync::Arc;
use storage::{LastValue, Meter};

/// The newest sample of each series in some blocks, given in their order.
///
/// The indexes are read part by part and merged, so that a series is looked up and built once, however many blocks
/// have it. There may be a million.
///
/// # Errors
/// A block is damaged or cannot be read.
pub(super) fn latest_in_blocks<'a>(
    blocks: impl Iterator<Item = &'a Arc<Block>>,
    registry: &mut Registry,
) -> Result<LatestSamples, BlockError> {
    let meter = Arc::new(Meter::default());
    let mut next = BinaryHeap::new();
    for (place, block) in blocks.enumerate() {
        let opened = block.opened(&meter)?;
        let mut rest = IndexReader { block, opened, part: 0, entries: Vec::new().into_iter() };
        next.extend(rest.next(&meter)?.map(|entry| Next { entry, place, rest }));
    }
    let mut latest = LatestSamples::default();
    let mut newest: Option<(Entry, Timestamp)> = None;
    while let Some(mut first) = next.peek_mut() {
        let received = first.rest.block.note.received;
        let entry = match first.rest.next(&meter)? {
            Some(next) => std::mem::replace(&mut first.entry, next),
            None => PeekMut::pop(first).entry,
        };
        match &mut newest {
            Some((before, latest)) if before.series == entry.series => {
                *latest = received.max(*latest);
                if entry.to >= before.to {
                    *before = entry;
                }
            }
            _ => {
                let done = newest.replace((entry, received));
                done.into_iter().for_each(|done| latest.add(last_of(done, registry)));
            }
        }
    }
    newest.into_iter().for_each(|done| latest.add(last_of(done, registry)));
    Ok(latest)
}

fn last_of((entry, received): (Entry, Timestamp), registry: &mut Registry) -> LastInBlock {
    let start = entry.starts.last().map_or(NO_START, |(_, start)| *start);
    let last = LastValue {
        series: registry.restore(entry.series, entry.divisor),
        at: Timestamp(entry.to),
        value: entry.last,
        start: (start != NO_START).then_some(Timestamp(start)),
    };
    LastInBlock { last, received }
}

/// The series of a block, in order.
struct IndexReader<'a> {
    block: &'a Arc<Block>,
    opened: Arc<Opened>,
    /// The next part.
    part: usize,
    entries: std::vec::IntoIter<Entry>,
}

impl IndexReader<'_> {
    fn next(&mut self, meter: &Meter) -> Result<Option<Entry>, BlockError> {
        loop {
            if let Some(entry) = self.entries.next() {
                return Ok(Some(entry));
            }
            let Some(part) = self.opened.parts.get(self.part) else { return Ok(None) };
            self.entries = self.block.entries(part, meter)?.into_iter();
            self.part += 1;
        }
    }
}

/// The next series of a block. A heap returns the greatest first, so the order is reversed: by series, then block.
struct Next<'a> {
    entry: Entry,
    place: usize,
    rest: IndexReader<'a>,
}

impl Ord for Next<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let series = other.entry.series.cmp(&self.entry.series);
        series.then(other.place.cmp(&self.place))
    }
}

impl PartialOrd for Next<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Next<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Next<'_> {}
