//! Queries that indexes answer: the existing series, an estimate of rows, counter starts.

use crate::blocks::{Block, Entry};
use crate::files::errors::BlockError;
use crate::head::samples::Member;
use crate::scan::by_series::Scan;
use crate::scan::source::{BlockSource, Piece, ScanQuery, Source};
use crate::state::shared::Shared;
use crate::state::view::{View, devices_of};
use model::{Kind, Timestamp};
use senders::NO_START;
use std::sync::Arc;
use storage::{CounterStart, Meter, SeriesInfo, share_of_rows};

/// The first and the last instant of all samples and rollups; `None` if there are none.
pub(crate) fn extent(view: &View) -> Option<(i64, i64)> {
    let blocks = view.blocks.iter().map(|block| (block.note.from.0, block.note.to.0));
    let blocks = blocks.chain(view.rollups.iter().map(|f| (f.note.from.0, f.note.to.0)));
    let groups = view.heads().flat_map(|head| head.groups());
    let heads = groups.map(|group| group.rows().span());
    let spans = blocks.chain(heads).filter(|(from, to)| from <= to);
    spans.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
}

/// Shows the relevant index entries of the blocks.
fn entries(
    shared: &Arc<Shared>,
    view: &View,
    query: &ScanQuery,
    mut show: impl FnMut(Arc<SeriesInfo>, &Entry),
) -> Result<(), BlockError> {
    let meter = Meter::below(&shared.meter);
    let touched = |block: &&Arc<Block>| block.touches(query.from, query.to);
    for block in view.blocks.iter().filter(touched) {
        let mut source = Source::Block(Box::new(BlockSource::new(block, &meter)));
        while let Some((info, piece)) = source.next(shared, query)? {
            if let Piece::Rows(entry) = piece {
                show(info, &entry);
            }
        }
    }
    shared.close_unused();
    Ok(())
}

/// Shows the relevant positions in memory, with their samples and the span of their group.
fn members(view: &View, query: &ScanQuery, mut show: impl FnMut(Member, usize, (i64, i64))) {
    for head in view.heads() {
        for device in devices_of(head, &query.selector) {
            let keep = |info: &SeriesInfo| query.matches(&info.series);
            for member in head.members(&device, keep) {
                let (samples, span) = {
                    let rows = member.group.rows();
                    (rows.samples(member.place), rows.span())
                };
                if samples > 0 && span.0 <= query.to && span.1 >= query.from {
                    show(member, samples, span);
                }
            }
        }
    }
}

/// The series of a query, in order.
pub(crate) fn series(
    shared: &Arc<Shared>,
    view: &View,
    query: &ScanQuery,
) -> Result<Vec<Arc<SeriesInfo>>, BlockError> {
    let mut found = Vec::new();
    entries(shared, view, query, |info, _| found.push(info))?;
    members(view, query, |member, _, _| found.push(member.series));
    found.sort_by(SeriesInfo::order);
    found.dedup_by(|a, b| SeriesInfo::same(a, b));
    Ok(found)
}

/// An estimate of a query's rows.
pub(crate) fn rows(
    shared: &Arc<Shared>,
    view: &View,
    query: &ScanQuery,
) -> Result<u64, BlockError> {
    let mut all = 0;
    entries(shared, view, query, |_, entry| {
        all += share_of_rows(entry.rows, (entry.from, entry.to), (query.from, query.to));
    })?;
    members(view, query, |_, samples, span| {
        all += share_of_rows(samples as u64, span, (query.from, query.to))
    });
    Ok(all)
}

/// The counter starts of a query.
pub(crate) fn counter_starts(
    mut scan: Scan,
    query: &ScanQuery,
) -> Result<Vec<CounterStart>, BlockError> {
    let mut found: Vec<CounterStart> = Vec::new();
    while let Some((series, pieces)) = scan.pieces()? {
        if series.kind != Kind::Counter {
            continue;
        }
        let mut runs = Vec::new();
        for (place, piece) in pieces {
            match piece {
                Piece::Columns { times, starts, .. } => {
                    let at = |row: usize| times.get(row).copied();
                    runs.extend(starts.iter().filter_map(|(row, start)| Some((at(*row)?, *start))));
                }
                Piece::Rows(entry) => runs.extend(block_runs(&mut scan, place, &entry, query)?),
            }
        }
        runs.sort_by_key(|(at, _)| *at);
        runs.dedup_by_key(|(_, start)| *start);
        let known = runs.into_iter().filter(|(_, start)| *start != NO_START);
        found.extend(known.map(|(at, start)| CounterStart {
            series: Arc::clone(&series),
            at: Timestamp(at),
            start: Timestamp(start),
        }));
    }
    Ok(found)
}

/// The runs of one start in a block that overlap the query's interval, each with its first instant.
fn block_runs(
    scan: &mut Scan,
    place: usize,
    entry: &Entry,
    query: &ScanQuery,
) -> Result<Vec<(i64, i64)>, BlockError> {
    let mut runs = Vec::new();
    let (mut times, mut values) = (vec![entry.from], Vec::new());
    for (row, start) in &entry.starts {
        if *row > 0
            && let Some(source) = scan.source(place)
        {
            times.clear();
            let row = entry.row + *row as u64;
            source.read(row..row + 1, entry.divisor, &mut times, &mut values)?;
        }
        runs.extend(times.first().map(|at| (*at, *start)));
    }
    // A run ends before the next one begins.
    let ends = runs.iter().skip(1).map(|(at, _)| at.saturating_sub(1)).chain([entry.to]);
    let ends: Vec<i64> = ends.collect();
    let mut reaching = runs.into_iter().zip(ends);
    let inside = |at: i64, end: i64| at <= query.to && end >= query.from;
    Ok(reaching.by_ref().filter(|((at, _), end)| inside(*at, *end)).map(|(run, _)| run).collect())
}
