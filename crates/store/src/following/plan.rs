//! The range that a follower reads next: a block, a rest file, a record of deleted samples, or batches in memory.

use crate::blocks::{Block, BlockNote};
use crate::files::point::Point;
use crate::head::samples::Head;
use crate::state::positions::{Cursor, Position};
use crate::state::rests::{Rest, points_of};
use crate::state::shared::Shared;
use crate::state::view::View;
use model::Gap;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::sync::Arc;

/// A range of the order of storing.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) source: Source,
    pub(super) points: Range<Point>,
    /// The progress in a file.
    pub(super) cursor: Option<Cursor>,
    /// The gaps of the range.
    pub(super) gaps: Vec<Gap>,
}

/// The location of the samples.
#[derive(Debug)]
pub(super) enum Source {
    Block(Arc<Block>),
    RestFile(BlockNote),
    Deleted(BlockNote),
    Memory(Arc<View>),
}

impl Plan {
    /// The next range after a position; `None` if it has neither samples nor gaps. The positions are locked.
    pub(super) fn after(
        shared: &Shared,
        (rests, covered): (&[Rest], u64),
        from: Position,
        rows_max: u32,
    ) -> Option<Self> {
        let (view, visible) = shared.view();
        if let Some((points, source)) = next_file(&view, rests, from.point) {
            let is_of_file =
                |cursor: &Cursor| from.point == points.start && cursor.end == points.end;
            let cursor = from.cursor.filter(is_of_file);
            let gaps = match cursor {
                Some(_) => Vec::new(),
                None => gaps_of(shared, &(from.point..points.end)),
            };
            return Some(Self { source, points, cursor, gaps });
        }
        let until = Point { place: visible, row: 0 };
        let until = first_open_gap(shared, from.point..until, covered).map_or(until, |place| {
            // A replay may find this gap again, so nothing after it may be confirmed yet.
            Point { place, row: 0 }
        });
        let (end, has_rows) = fitting_end(view.heads(), &(from.point..until), rows_max);
        let points = from.point..end;
        let gaps = gaps_of(shared, &points);
        let source = Source::Memory(view);
        (has_rows || !gaps.is_empty()).then_some(Self { source, points, cursor: None, gaps })
    }

    /// A position that protects the range from merges and flushes while it is read.
    pub(super) fn reserved(&self) -> Position {
        let Range { start: point, end } = self.points;
        match self.source {
            Source::Memory(_) => Position::of(end),
            _ => {
                let start = Cursor { end, at: i64::MIN, skip: 0, rows: 0 };
                Position { point, cursor: Some(self.cursor.unwrap_or(start)) }
            }
        }
    }
}

/// The first file that begins at a point or after it. All files precede the batches in memory.
fn next_file(view: &View, rests: &[Rest], from: Point) -> Option<(Range<Point>, Source)> {
    let rest = rests.iter().filter(|rest| rest.start >= from).min_by_key(|rest| rest.start);
    let blocks = view.blocks.iter().map(|block| (points_of(&block.note), block));
    let block =
        blocks.filter(|(points, _)| points.start >= from).min_by_key(|(points, _)| points.start);
    match (rest, block) {
        (Some(rest), block)
            if block.as_ref().is_none_or(|(points, _)| rest.start < points.start) =>
        {
            let note = rest.note.clone();
            let source = if rest.deleted { Source::Deleted(note) } else { Source::RestFile(note) };
            Some((rest.start..rest.end, source))
        }
        (_, block) => block.map(|(points, block)| (points, Source::Block(Arc::clone(block)))),
    }
}

/// The start of the block that contains a point, if there is one.
pub(super) fn block_of(view: &View, point: Point) -> Option<Point> {
    let mut blocks = view.blocks.iter().map(|block| points_of(&block.note));
    blocks.find(|block| block.contains(&point)).map(|block| block.start)
}

/// The number of samples after a position.
pub(super) fn behind(shared: &Shared, rests: &[Rest], position: Position) -> u64 {
    let (view, _) = shared.view();
    let (mut from, mut rows) = (position.point, 0);
    while let Some((points, source)) = next_file(&view, rests, from) {
        rows += match source {
            Source::Block(block) => block.note.rows,
            Source::RestFile(note) | Source::Deleted(note) => note.rows,
            Source::Memory(_) => 0,
        };
        from = points.end;
    }
    let points = from..Point { place: u64::MAX, row: 0 };
    let groups = view.heads().flat_map(|head| head.groups());
    let in_memory =
        groups.map(|group| group.rows().sizes(&points).map(|(_, rows)| rows as u64).sum::<u64>());
    rows += in_memory.sum::<u64>();
    rows.saturating_sub(position.cursor.map_or(0, |cursor| cursor.rows))
}

fn gaps_of(shared: &Shared, points: &Range<Point>) -> Vec<Gap> {
    let books = shared.books();
    let placed = books.gaps.placed();
    let inside = placed.filter(|(_, place)| points.contains(&Point { place: *place, row: 0 }));
    inside.map(|(gap, _)| gap.clone()).collect()
}

/// The place of the first gap between two points that the store itself found and no manifest has.
fn first_open_gap(shared: &Shared, points: Range<Point>, covered: u64) -> Option<u64> {
    let books = shared.books();
    let places = books.gaps.placed().map(|(_, place)| Point { place, row: 0 });
    let is_open = |point: &Point| {
        let segment = point.segment();
        segment > covered && *point == Point::end_of_segment(segment) && points.contains(point)
    };
    places.filter(is_open).min().map(|point| point.place)
}

/// A point after at most `rows_max` rows, at least one if there is any; and whether there is any.
fn fitting_end<'a>(
    heads: impl Iterator<Item = &'a Arc<Head>> + Clone,
    points: &Range<Point>,
    rows_max: u32,
) -> (Point, bool) {
    // The earliest batches, as many as fit and one more: never more entries than rows.
    let mut earliest: BinaryHeap<(u64, usize)> = BinaryHeap::new();
    let (mut rows, limit, mut is_all) = (0, rows_max as usize, true);
    for group in heads.clone().flat_map(|head| head.groups()) {
        for (place, of_batch) in group.rows().sizes(points) {
            if rows > limit && earliest.peek().is_some_and(|(last, _)| *last < place) {
                is_all = false;
                break;
            }
            earliest.push((place, of_batch));
            rows += of_batch;
            while let Some((_, last)) = earliest.peek()
                && rows - last > limit
            {
                (rows, is_all) = (rows - last, false);
                earliest.pop();
            }
        }
    }
    let has_rows = !earliest.is_empty();
    if is_all && rows <= limit {
        return (points.end, has_rows);
    }
    let mut taken = 0;
    for (place, of_batch) in earliest.into_sorted_vec() {
        if taken + of_batch <= limit {
            taken += of_batch;
            continue;
        }
        let within = || {
            let mut groups = heads.flat_map(|head| head.groups());
            groups.find_map(|group| group.rows().point_after(points.start, place, limit))
        };
        let end = if taken == 0 { within() } else { None };
        return (end.unwrap_or(Point { place, row: 0 }), has_rows);
    }
    (points.end, has_rows)
}
