//! Merging: adjacent blocks become one larger block. That limits the number of files, and of places with
//! samples of a series.
//!
//! Blocks are ordered by their log segments, and only neighbours are merged. So of two samples of one series
//! and instant, the later one stays the later one.
//! The new block is synced before the manifest replaces the old ones by it, in one swap. Readers of the old
//! ones continue, since the files are open.
//! The next start removes leftovers of a crash.

use crate::blocks::{Block, BlockFacts, BlockNote, NewBlock};
use crate::files::errors::BlockError;
use crate::files::layout::{blocks_dir, rollups_dir};
use crate::head::series_builder::SeriesRows;
use crate::maintenance::rollups::Rolling;
use crate::scan::by_series::{BlockSeries, Scan};
use crate::settings::Settings;
use crate::state::ledger::{Change, Ledger};
use crate::state::points::Points;
use crate::state::rests::points_of;
use crate::state::shared::Shared;
use model::Timestamp;
use std::ops::Range;
use std::sync::Arc;
use storage::Meter;

/// Most runs of one start in a series of a block: its index is read as a whole.
const STARTS_MAX: usize = 1 << 20;

/// The adjacent blocks to merge next, by position; `None` if no merge is due. No merge spans one of the followers' points.
pub(crate) fn due(
    notes: &[BlockNote],
    points: &Points,
    is_apart: impl Fn(&BlockNote) -> bool,
    settings: &Settings,
) -> Option<Range<usize>> {
    let mut first = 0;
    notes.chunk_by(|a, b| !are_apart(a, b, points)).find_map(|section| {
        let place = first;
        first += section.len();
        due_of(section, &is_apart, settings).map(|due| place + due.start..place + due.end)
    })
}

/// The blocks of a section to merge next.
///
/// [`Settings::merge_blocks`] of one level make one of the next. A block of half the largest size is done.
/// Blocks before a done one do not wait for more: two of them are enough.
fn due_of(
    notes: &[BlockNote],
    is_apart: impl Fn(&BlockNote) -> bool,
    settings: &Settings,
) -> Option<Range<usize>> {
    let max = settings.block_bytes_max;
    let open = |place: usize| {
        let note = notes.get(place);
        note.is_some_and(|note| !is_done(note, settings) && !note.archived && !is_apart(note))
    };
    let mut first = 0;
    while first < notes.len() {
        let end = (first..notes.len()).find(|place| !open(*place)).unwrap_or(notes.len());
        let run = notes.get(first..end).unwrap_or_default();
        let mut place = first;
        for level in run.chunk_by(|a, b| a.level == b.level) {
            if level.len() >= settings.merge_blocks.max(2) {
                return fitting(level, max, settings).map(|count| place..place + count);
            }
            place += level.len();
        }
        if run.len() > 1 && end < notes.len() {
            return fitting(run, max, settings).map(|count| first..first + count);
        }
        first = end + 1;
    }
    None
}

/// Whether a block is too large for further merges.
pub(crate) fn is_done(note: &BlockNote, settings: &Settings) -> bool {
    note.bytes >= settings.block_bytes_max / 2
}

/// How many of these, from the first on, fit into one block; at least two, since each is less than half.
fn fitting(notes: &[BlockNote], max: u64, settings: &Settings) -> Option<usize> {
    let mut bytes = 0;
    let fit = notes.iter().take(settings.merge_blocks.max(2)).take_while(|note| {
        bytes += note.bytes;
        bytes <= max
    });
    Some(fit.count()).filter(|count| *count > 1)
}

/// The level of the merged block.
pub(crate) fn level_above(old: &[Arc<Block>]) -> u8 {
    old.iter().map(|file| file.note.level).max().unwrap_or(0).saturating_add(1)
}

/// Time of receipt of the newest batch in these blocks.
pub(crate) fn newest(old: &[Arc<Block>]) -> Timestamp {
    old.iter().map(|file| file.note.received).max().unwrap_or(Timestamp(i64::MIN))
}

/// Whether a point separates two of these blocks.
fn is_separated(old: &[Arc<Block>], points: &Points) -> bool {
    old.array_windows().any(|[a, b]| are_apart(&a.note, &b.note, points))
}

/// Whether a point separates two neighbours.
fn are_apart(before: &BlockNote, next: &BlockNote, points: &Points) -> bool {
    points.is_between(points_of(before).start, points_of(next).start)
}

/// Merges adjacent blocks and replaces them by the new one; false if it had to stop.
///
/// # Errors
/// A block cannot be read, or the new one cannot be written: the old ones stay.
pub(crate) fn merge(
    shared: &Arc<Shared>,
    ledger: &Ledger,
    old: &[Arc<Block>],
) -> Result<bool, BlockError> {
    let (Some(first), Some(last)) = (old.first(), old.last()) else { return Ok(true) };
    let dir = blocks_dir(&ledger.dir);
    let level = level_above(old);
    let of = BlockFacts {
        log: (first.note.log_first, last.note.log_last),
        level,
        window_us: 0,
        settled: None,
    };
    let mut new = NewBlock::create(&*ledger.disk, &dir, &shared.settings, of)?;
    let rolled = rollups_dir(&ledger.dir);
    let mut rolling = Rolling::create(shared, ledger, &rolled, of)?;
    let mut scan = Scan::blocks(shared, &Arc::new(Meter::default()), old);
    while let Some(BlockSeries { series, divisor, mut feeds }) = scan.series()? {
        let mut starts = 0;
        while let Some(rows) = scan.rows(&mut feeds)? {
            starts += rows.starts.len();
            if shared.tending.is_closing() {
                return Ok(false);
            }
            if starts > STARTS_MAX {
                let why = format!("{series:?} restarted more than {STARTS_MAX} times");
                return Err(BlockError::Index { path: last.path.clone(), why });
            }
            new.series(SeriesRows {
                series: &series,
                times: &rows.times,
                bits: &rows.values.bits,
                reals: &rows.values.reals,
                starts: &rows.starts,
                divisor,
            })?;
            rolling.rows(&rows, divisor);
        }
        rolling.end(&series.series)?;
    }
    let received = newest(old);
    let new = Arc::new(new.finish(received)?);
    // All blocks that contain a part of its log segments.
    let is_old = |note: &BlockNote| {
        of.log.0 <= note.log_first && note.log_last <= of.log.1 && note.settled.is_none()
    };
    let rollups = rolling.finish(received);
    let rollups = rollups.inspect_err(|_| ledger.discard(std::slice::from_ref(&new)))?;
    // Locked after everything is written: a flush would wait.
    let positions = shared.positions();
    if is_separated(old, &positions.points()) {
        // A follower reads one of them by now: the neighbours are merged without it.
        ledger.discard(std::slice::from_ref(&new));
        ledger.discard(&rollups);
        return Ok(false);
    }
    let change = Change { block: Some(&new), rollups: &rollups, ..Change::of(&is_old) };
    ledger.exchange(shared, &change)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::point::Point;
    use proptest::prelude::*;

    fn note(level: u8, bytes: u64) -> BlockNote {
        BlockNote {
            file: String::new(),
            rows: 1,
            series: 1,
            bytes,
            from: Timestamp(0),
            to: Timestamp(0),
            received: Timestamp(0),
            tail: 0,
            tail_crc: 0,
            log_first: 0,
            log_last: 0,
            level,
            window_us: 0,
            settled: None,
            archived: false,
        }
    }

    fn settings() -> Settings {
        Settings { merge_blocks: 4, block_bytes_max: 100, ..Settings::default() }
    }

    fn next(blocks: &[(u8, u64)]) -> Option<Range<usize>> {
        let notes: Vec<BlockNote> =
            blocks.iter().map(|(level, bytes)| note(*level, *bytes)).collect();
        due(&notes, &Points::default(), |_| false, &settings())
    }

    #[test]
    fn four_of_a_level_are_merged_as_far_as_they_fit() {
        assert_eq!(next(&[(0, 1), (0, 1), (0, 1)]), None);
        assert_eq!(next(&[(1, 1), (0, 1), (0, 1), (0, 1), (0, 1), (0, 1)]), Some(1..5));
        assert_eq!(next(&[(0, 40), (0, 40), (0, 40), (0, 1)]), Some(0..2));
    }

    #[test]
    fn blocks_before_a_done_one_do_not_wait() {
        assert_eq!(next(&[(2, 10), (1, 9), (3, 60), (0, 1)]), Some(0..2));
        assert_eq!(next(&[(2, 10), (3, 60), (0, 1)]), None);
    }

    #[test]
    fn an_unreadable_block_is_skipped() {
        let notes: Vec<BlockNote> = (0..6).map(|bytes| note(0, bytes + 1)).collect();
        let none = Points::default();
        assert_eq!(due(&notes, &none, |note| note.bytes == 3, &settings()), Some(0..2));
        assert_eq!(due(&notes[2..], &none, |note| note.bytes == 3, &settings()), None);
    }

    proptest! {
        /// Blocks of any sizes end up in few in each section between two points, and no block spans a point.
        #[test]
        fn the_number_of_blocks_remains_bounded(
            sizes in prop::collection::vec(1_u64..60, 1..600),
            points in prop::collection::btree_set(0_u64..600, 0..3),
        ) {
            let points: Vec<Point> = points.into_iter().map(Point::of_segment).collect();
            let (all, sections) = (Points::new(points.clone(), None), points.len() as u64 + 1);
            let mut notes: Vec<BlockNote> = Vec::new();
            let mut written = 0;
            for (size, segment) in sizes.iter().zip(0..) {
                notes.push(BlockNote { log_first: segment, log_last: segment, ..note(0, *size) });
                while let Some(range) = due(&notes, &all, |_| false, &settings()) {
                    prop_assert!(range.len() > 1);
                    let old: Vec<BlockNote> = notes.drain(range.clone()).collect();
                    let (log_first, log_last) = (old[0].log_first, old[old.len() - 1].log_last);
                    let inside = |point: &Point| log_first < point.segment() && point.segment() <= log_last;
                    prop_assert!(!points.iter().any(inside));
                    let bytes = old.iter().map(|note| note.bytes).sum();
                    prop_assert!(bytes <= 100);
                    written += bytes;
                    let level = old.iter().map(|note| note.level).max().unwrap_or(0) + 1;
                    let merged = note(level, bytes);
                    notes.insert(range.start, BlockNote { log_first, log_last, ..merged });
                }
            }
            let bytes: u64 = sizes.iter().sum();
            prop_assert_eq!(notes.iter().map(|note| note.bytes).sum::<u64>(), bytes);
            // Done ones have half the largest size. Between two of them is one that is not done, and after
            // the last up to three of each level.
            let done = notes.iter().filter(|note| note.bytes >= 50).count() as u64;
            prop_assert!(done <= bytes / 50);
            let most = 2 * done + sections * (1 + 3 * 7);
            prop_assert!(notes.len() as u64 <= most, "{} of {bytes}", notes.len());
            prop_assert!(written <= 7 * bytes, "{written} of {bytes}");
        }
    }
}
