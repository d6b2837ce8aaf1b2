//! The windows of rollups, and samples as the points that they are built from.

use model::{Point, Timestamp};
use senders::NO_START;

/// Samples with their starts.
pub(crate) fn points<'a>(
    times: &'a [i64],
    values: impl Iterator<Item = f64> + 'a,
    starts: &'a [(usize, i64)],
) -> impl Iterator<Item = Point> + 'a {
    let mut runs = starts.iter().peekable();
    let mut start = NO_START;
    times.iter().zip(values).enumerate().map(move |(row, (at, value))| {
        while let Some((_, next)) = runs.next_if(|(first, _)| *first <= row) {
            start = *next;
        }
        let start = (start != NO_START).then_some(Timestamp(start));
        Point { at: Timestamp(*at), value, start }
    })
}
