//! Questions that indexes answer: which series there are, about how many rows, where counters began.

use crate::answer::{CounterStart, SeriesInfo};
use crate::blocks::{Block, Entry, Meter};
use crate::files::errors::BlockError;
use crate::head::samples::Member;
use crate::scan::by_series::Scan;
use crate::scan::source::{BlockSource, Piece, Question, Source};
use crate::senders::series_table::NO_START;
use crate::state::shared::Shared;
use crate::state::view::{View, devices_of};
use model::{Kind, Timestamp};
use std::sync::Arc;

/// The first and the last instant of all samples and rollups; none when there are none.
pub(crate) fn extent(view: &View) -> Option<(i64, i64)> {
    let blocks = view.blocks.iter().map(|block| (block.note.from.0, block.note.to.0));
    let blocks = blocks.chain(view.rollups.iter().map(|f| (f.note.from.0, f.note.to.0)));
    let groups = view.heads().flat_map(|head| head.groups());
    let heads = groups.map(|group| group.rows().span());
    let spans = blocks.chain(heads).filter(|(from, to)| from <= to);
    spans.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
}

/// Shows the index entries of the blocks that a question is about.
fn entries(
    shared: &Arc<Shared>,
    view: &View,
    question: &Question,
    mut show: impl FnMut(Arc<SeriesInfo>, &Entry),
) -> Result<(), BlockError> {
    let meter = Meter::below(&shared.meter);
    let touched = |block: &&Arc<Block>| block.touches(question.from, question.to);
    for block in view.blocks.iter().filter(touched) {
        let mut source = Source::Block(Box::new(BlockSource::new(block, &meter)));
        while let Some((info, piece)) = source.next(shared, question)? {
            if let Piece::Rows(entry) = piece {
                show(info, &entry);
            }
        }
    }
    shared.close_unused();
    Ok(())
}

/// Shows the places in memory that a question may be about, with their samples and the span of their
/// group.
fn members(view: &View, question: &Question, mut show: impl FnMut(Member, usize, (i64, i64))) {
    for head in view.heads() {
        for device in devices_of(head, &question.selector) {
            let keep = |info: &SeriesInfo| question.selector.matches(&info.series);
            for member in head.members(&device, keep) {
                let (samples, span) = {
                    let rows = member.group.rows();
                    (rows.samples(member.place), rows.span())
                };
                if samples > 0 && span.0 <= question.to && span.1 >= question.from {
                    show(member, samples, span);
                }
            }
        }
    }
}

/// The series of a question, in order.
pub(crate) fn series(
    shared: &Arc<Shared>,
    view: &View,
    question: &Question,
) -> Result<Vec<Arc<SeriesInfo>>, BlockError> {
    let mut found = Vec::new();
    entries(shared, view, question, |info, _| found.push(info))?;
    members(view, question, |member, _, _| found.push(member.series));
    found.sort_by(SeriesInfo::order);
    found.dedup_by(|a, b| SeriesInfo::same(a, b));
    Ok(found)
}

/// About how many rows a question has.
pub(crate) fn rows(
    shared: &Arc<Shared>,
    view: &View,
    question: &Question,
) -> Result<u64, BlockError> {
    let mut all = 0;
    entries(shared, view, question, |_, entry| {
        all += share(entry.rows, (entry.from, entry.to), question);
    })?;
    members(view, question, |_, samples, span| all += share(samples as u64, span, question));
    Ok(all)
}

/// The part of some rows that a question asks for, when they are spread evenly over their span; one at
/// least.
fn share(rows: u64, (from, to): (i64, i64), question: &Question) -> u64 {
    let whole = i128::from(to) - i128::from(from) + 1;
    let part = i128::from(to.min(question.to)) - i128::from(from.max(question.from)) + 1;
    let share = i128::from(rows) * part / whole.max(1);
    u64::try_from(share).unwrap_or(rows).clamp(1, rows.max(1))
}

/// Where the counters of a question began.
pub(crate) fn counter_starts(
    mut scan: Scan,
    question: &Question,
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
                Piece::Rows(entry) => runs.extend(block_runs(&mut scan, place, &entry, question)?),
            }
        }
        runs.sort_by_key(|(at, _)| *at);
        runs.dedup_by_key(|(_, start)| *start);
        let told = runs.into_iter().filter(|(_, start)| *start != NO_START);
        found.extend(told.map(|(at, start)| CounterStart {
            series: Arc::clone(&series),
            at: Timestamp(at),
            start: Timestamp(start),
        }));
    }
    Ok(found)
}

/// The runs of one start in a block that reach into the question's interval, each with its first instant.
fn block_runs(
    scan: &mut Scan,
    place: usize,
    entry: &Entry,
    question: &Question,
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
    let inside = |at: i64, end: i64| at <= question.to && end >= question.from;
    Ok(reaching.by_ref().filter(|((at, _), end)| inside(*at, *end)).map(|(run, _)| run).collect())
}
