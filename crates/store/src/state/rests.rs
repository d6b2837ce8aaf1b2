//! Ranges that followers read instead of a block: rest files, and records of deleted samples (decision 0060).

use crate::blocks::{Block, BlockNote};
use crate::files::point::Point;
use crate::state::points::Points;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::Arc;

/// The samples between two points.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rest {
    pub(crate) start: Point,
    pub(crate) end: Point,
    /// The rest file, or the deleted file.
    pub(crate) note: BlockNote,
    /// Whether retention deleted the samples.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) deleted: bool,
}

/// The name of the rest file of a range. Another range of the same block has another name: a manifest may list either.
pub(crate) fn rest_file(range: &Range<Point>) -> String {
    let Range { start, end } = range;
    format!("rest-{:016x}-{}-{:016x}-{}.parquet", start.place, start.row, end.place, end.row)
}

/// Whether a file is a rest file, complete or not.
pub(crate) fn is_rest_file(name: &str) -> bool {
    name.starts_with("rest-") || name.ends_with(".parquet.tmp")
}

/// The points of a block.
pub(crate) const fn points_of(block: &BlockNote) -> Range<Point> {
    Point::of_segments(block.log_first, block.log_last)
}

impl Rest {
    /// Whether it is that of a range.
    pub(crate) fn is_of(&self, range: &Range<Point>) -> bool {
        self.start == range.start && self.end == range.end
    }

    /// Whether it belongs to a part of a block.
    pub(crate) fn is_part(&self) -> bool {
        self.start > points_of(&self.note).start
    }

    /// Whether a follower with a position among these points may need it.
    fn is_needed(&self, points: &Points) -> bool {
        match self.is_part() {
            true => points.is_between(points_of(&self.note).start, self.start),
            false => points.is_before(self.start),
        }
    }
}

/// Those that a follower with a position among these points may need.
pub(crate) fn needed(rests: &[Rest], points: &Points) -> Vec<Rest> {
    rests.iter().filter(|rest| rest.is_needed(points)).cloned().collect()
}

/// The ranges after the deletion of a block.
pub(crate) fn after_deletion(
    rests: &[Rest],
    block: &BlockNote,
    blocks: &[Arc<Block>],
    points: &Points,
) -> Vec<Rest> {
    let Range { start, end } = points_of(block);
    let mut rests = rests.to_vec();
    let inside = |rest: &&mut Rest| start < rest.start && rest.start < end;
    rests.iter_mut().filter(inside).for_each(|rest| rest.deleted = true);
    rests.push(Rest { start, end, note: block.clone(), deleted: true });
    rests.sort_by_key(|rest| rest.start);
    let mut joined: Vec<Rest> = Vec::new();
    for rest in needed(&rests, points) {
        let has_block_between = |before: &Rest| {
            let is_live = |note: &BlockNote| {
                let at = points_of(note).start;
                note.file != block.file && before.start <= at && at <= rest.start
            };
            blocks.iter().any(|block| is_live(&block.note))
        };
        match joined.last_mut() {
            Some(before)
                if before.deleted
                    && rest.deleted
                    && !before.is_part()
                    && !rest.is_part()
                    && !points.is_between(before.start, rest.start)
                    && !has_block_between(before) =>
            {
                before.end = rest.end;
                before.note.log_last = rest.note.log_last;
                before.note.rows += rest.note.rows;
                before.note.from = before.note.from.min(rest.note.from);
                before.note.to = before.note.to.max(rest.note.to);
            }
            _ => joined.push(rest),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Timestamp;

    fn note(first: u64, last: u64) -> BlockNote {
        BlockNote {
            file: format!("{first}-{last}"),
            rows: last - first + 1,
            series: 1,
            bytes: 1,
            from: Timestamp(1),
            to: Timestamp(2),
            received: Timestamp(0),
            tail: 0,
            tail_crc: 0,
            log_first: first,
            log_last: last,
            level: 0,
            window_us: 0,
            settled: None,
            archived: false,
        }
    }

    fn part(first: u64, last: u64, start: Point) -> Rest {
        let end = Point::of_segment(last + 1);
        Rest { start, end, note: note(first, last), deleted: false }
    }

    #[test]
    fn a_rest_file_is_needed_by_positions_within_its_block_alone() {
        let rests = [part(3, 5, Point::of_record(4, 50))];
        for (point, is_needed) in [
            (Point::START, false),
            (Point::of_segment(3), false),
            (Point::of_record(3, 16), true),
            (Point::of_record(4, 50), true),
            (Point::of_record(4, 51), false),
        ] {
            let points = Points::new(vec![point], None);
            assert_eq!(needed(&rests, &points).len(), usize::from(is_needed), "{point:?}");
        }
        for (until, is_needed) in [(3, false), (4, true), (6, true)] {
            let unknown = Points::new(Vec::new(), Some(Point::of_segment(until)));
            assert_eq!(needed(&rests, &unknown).len(), usize::from(is_needed), "{until}");
        }
    }

    #[test]
    fn deleted_ranges_are_joined_unless_a_point_separates_them() {
        let delete_with = |points: Points| {
            let mut rests = vec![part(3, 5, Point::of_record(4, 50))];
            for block in [note(1, 2), note(3, 5), note(6, 6)] {
                rests = after_deletion(&rests, &block, &[], &points);
            }
            let ranges = rests.iter().inspect(|rest| assert!(rest.deleted));
            ranges.map(|rest| (rest.start, rest.note.rows)).collect::<Vec<_>>()
        };
        let delete = |points: &[Point]| delete_with(Points::new(points.to_vec(), None));
        let [first, second, third] = [1, 3, 6].map(Point::of_segment);
        let within = Point::of_record(4, 50);
        assert_eq!(delete(&[Point::START]), [(first, 6)]);
        assert_eq!(delete(&[first]), [(first, 6)]);
        assert_eq!(delete(&[second]), [(second, 4)]);
        assert_eq!(delete(&[first, second]), [(first, 2), (second, 4)]);
        assert_eq!(delete(&[within]), [(within, 3), (third, 1)]);
        assert_eq!(delete(&[Point::of_segment(7)]), []);
        assert_eq!(delete(&[]), []);
        // While the points are unknown, none is lost to a record.
        let unknown = |until| delete_with(Points::new(Vec::new(), Some(until)));
        assert_eq!(unknown(third), [(first, 2), (second, 3), (within, 3), (third, 1)]);
        assert_eq!(unknown(first), [(first, 6)]);
    }
}
