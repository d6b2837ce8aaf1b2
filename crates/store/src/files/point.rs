//! Points in the order of storing: the places of batches in the log, which a replay and a block do not change.

use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Bits of a place for the offset in its segment: 64 GiB, far beyond the log's limit. The number of the segment has the
/// others: a segment a second for 8 years.
const OFFSET_BITS: u32 = 36;
const OFFSET_MAX: u64 = (1 << OFFSET_BITS) - 1;

/// A point between two samples: after all batches at lower places, and after some samples of the batch at its place.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub(crate) struct Point {
    /// The batch's record in the log: the number of the segment, and the offset in it.
    pub(crate) place: u64,
    /// Samples of this batch before the point, as received: those that were rejected count, since a replay may keep them.
    pub(crate) row: u32,
}

impl Point {
    /// Before everything.
    pub(crate) const START: Self = Self { place: 0, row: 0 };

    /// Before the record at an offset of a segment.
    pub(crate) const fn of_record(segment: u64, offset: u64) -> Self {
        let offset = if offset < OFFSET_MAX { offset } else { OFFSET_MAX };
        Self { place: segment << OFFSET_BITS | offset, row: 0 }
    }

    /// Before the first record of a segment.
    pub(crate) const fn of_segment(segment: u64) -> Self {
        Self::of_record(segment, 0)
    }

    /// After the last record of a segment. No record has this place.
    pub(crate) const fn end_of_segment(segment: u64) -> Self {
        Self::of_record(segment, OFFSET_MAX)
    }

    /// The segment of the place.
    pub(crate) const fn segment(self) -> u64 {
        self.place >> OFFSET_BITS
    }

    /// The points of these segments, both included.
    pub(crate) const fn of_segments(first: u64, last: u64) -> Range<Self> {
        Self::of_segment(first)..Self::of_segment(last.saturating_add(1))
    }

    /// Everything before a place.
    pub(crate) const fn before(place: u64) -> Range<Self> {
        Self::START..Self { place, row: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_ordered_by_segment_then_offset() {
        let points = [
            Point::START,
            Point::of_segment(1),
            Point::of_record(1, 16),
            Point { row: 7, ..Point::of_record(1, 16) },
            Point::of_record(1, 90),
            Point::end_of_segment(1),
            Point::of_segment(2),
        ];
        assert!(points.is_sorted());
        assert_eq!(points.map(Point::segment), [0, 1, 1, 1, 1, 1, 2]);
        assert_eq!(Point::of_segments(1, 1), points[1]..points[6]);
    }
}
