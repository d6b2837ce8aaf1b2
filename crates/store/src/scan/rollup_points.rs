//! The windows of rollups, and samples as the points that they are built from.

use crate::senders::series_table::NO_START;
use model::{Point, Timestamp};

/// The lengths of stored windows, in microseconds; each is a multiple of the one before.
pub(crate) const WINDOWS_US: [i64; 2] = [300 * Timestamp::SECOND, 3600 * Timestamp::SECOND];

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
