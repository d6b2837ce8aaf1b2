//! Reads a planned range: batches in memory in order of arrival, files by time.

use super::plan::{Plan, Source};
use crate::blocks::{Block, BlockNote};
use crate::files::disk::Disk;
use crate::files::errors::BlockError;
use crate::files::layout::followers_dir;
use crate::files::point::Point;
use crate::head::samples::RawValue;
use crate::snapshot::Snapshot;
use crate::state::positions::{Cursor, Position};
use crate::state::shared::Shared;
use crate::state::view::View;
use model::Timestamp;
use parquet::errors::ParquetError;
use rustc_hash::FxHashMap;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::sync::Arc;
use storage::{Bounded, Chunk, OutputGap, Selector, SeriesInfo, StorageError, TimeSlice};

/// What a range contains.
#[derive(Debug)]
pub(super) struct Contents {
    pub(super) samples: TimeSlice,
    pub(super) lost: Option<OutputGap>,
    /// The position after it.
    pub(super) to: Position,
    /// Whether they are lost from a rest file: a block may have them.
    pub(super) is_rest_damaged: bool,
}

impl Contents {
    pub(super) const fn of(samples: TimeSlice, to: Position) -> Self {
        Self { samples, lost: None, to, is_rest_damaged: false }
    }

    fn lost(lost: Option<OutputGap>, to: Position) -> Self {
        Self { lost, ..Self::of(TimeSlice::of_chunks(&[]), to) }
    }
}

/// Reads the samples of a range from an instant on, at most `rows_max`.
///
/// # Errors
/// A file cannot be read now. A damaged one is an output gap.
pub(super) fn read(
    shared: &Arc<Shared>,
    disk: &dyn Disk,
    plan: &Plan,
    since: i64,
    rows_max: u32,
) -> Result<Contents, StorageError> {
    let end = Position::of(plan.points.end);
    let (note, block) = match &plan.source {
        Source::Memory(view) => {
            return Ok(Contents::of(from_memory(view, &plan.points, since), end));
        }
        Source::Deleted(note) => {
            let lost = lost(note, plan.cursor, since, "retention deleted them");
            return Ok(Contents::lost(lost, end));
        }
        Source::Block(block) => (&block.note, Ok(Arc::clone(block))),
        Source::RestFile(note) => {
            let dir = followers_dir(&shared.dir);
            (note, Block::open(disk, &dir, note.clone()).map(Arc::new))
        }
    };
    let read = block.map_err(StorageError::from).and_then(|block| {
        let view = Arc::new(View { blocks: vec![block], ..View::default() });
        let snapshot = Snapshot { shared: Arc::clone(shared), view, visible: 0, filter: None };
        from_file(snapshot, plan, since, rows_max)
    });
    shared.close_unused();
    match read {
        Err(error) if is_damage(&error, note) => {
            let lost = lost(note, plan.cursor, since, &error.to_string());
            let is_rest_damaged = matches!(plan.source, Source::RestFile(_));
            Ok(Contents { is_rest_damaged, ..Contents::lost(lost, end) })
        }
        read => read,
    }
}

/// Whether an error will not pass: the file is damaged, cut short, or no longer in the data directory.
fn is_damage(error: &StorageError, note: &BlockNote) -> bool {
    let StorageError::Failed(error) = error else { return false };
    let of_disk = match error.downcast_ref::<BlockError>() {
        Some(BlockError::Disk(error)) => Some(&error.error),
        // The library wraps the errors of the disk.
        Some(BlockError::Parquet { error: ParquetError::External(error), .. }) => {
            error.downcast_ref::<io::Error>()
        }
        Some(BlockError::Parquet { .. } | BlockError::Index { .. }) => None,
        None => return false,
    };
    of_disk.is_none_or(|error| match error.kind() {
        ErrorKind::UnexpectedEof | ErrorKind::InvalidData => true,
        // In the archive, its file system may be missing.
        ErrorKind::NotFound => !note.archived,
        _ => false,
    })
}

/// The undelivered samples of a file.
fn lost(note: &BlockNote, cursor: Option<Cursor>, since: i64, why: &str) -> Option<OutputGap> {
    let (at, rows) = cursor.map_or((i64::MIN, 0), |cursor| (cursor.at, cursor.rows));
    let samples = note.rows.saturating_sub(rows);
    (samples > 0 && note.to.0 >= since).then(|| OutputGap {
        from: Timestamp(note.from.0.max(at).max(since)),
        to: note.to,
        samples,
        why: why.to_owned(),
    })
}

fn from_file(
    snapshot: Snapshot,
    plan: &Plan,
    since: i64,
    rows_max: u32,
) -> Result<Contents, StorageError> {
    let Range { start: point, end } = plan.points;
    let cursor = plan.cursor.unwrap_or(Cursor { end, at: i64::MIN, skip: 0, rows: 0 });
    let from = cursor.at.max(since);
    let skip = if from == cursor.at { cursor.skip } else { 0 };
    let all = (Timestamp(from), Timestamp(i64::MAX));
    let mut by_time = snapshot.scan_by_time(&Selector::default(), all.0, all.1, rows_max as usize);
    let bounded =
        if skip > 0 { Some(Bounded::Crowded(Timestamp(from))) } else { by_time.next_bounded()? };
    let (samples, rest) = match bounded {
        None => (TimeSlice::of_chunks(&[]), None),
        Some(Bounded::Slice(samples)) => (samples, by_time.rest().map(|at| (at.0, 0))),
        Some(Bounded::Crowded(at)) => {
            let (samples, has_more) = of_instant(&snapshot, at, skip, rows_max)?;
            let read = samples.times.len() as u64;
            let next = if has_more { (at.0, skip + read) } else { (at.0.saturating_add(1), 0) };
            let last = snapshot.extent().map_or(i64::MIN, |(_, last)| last.0);
            (samples, Some(next).filter(|(at, _)| *at <= last))
        }
    };
    let rows = cursor.rows + samples.times.len() as u64;
    let to = rest.map_or(Position::of(end), |(at, skip)| Position {
        point,
        cursor: Some(Cursor { end, at, skip, rows }),
    });
    Ok(Contents::of(samples, to))
}

/// At most `rows_max` samples of one instant, after some others; and whether more follow.
fn of_instant(
    snapshot: &Snapshot,
    at: Timestamp,
    mut skip: u64,
    rows_max: u32,
) -> Result<(TimeSlice, bool), StorageError> {
    let (mut chunks, mut free) = (Vec::new(), rows_max as usize);
    for chunk in snapshot.scan(&Selector::default(), at, at) {
        let chunk = chunk?;
        let rows = chunk.times.len();
        let first = usize::try_from(skip).unwrap_or(usize::MAX).min(rows);
        skip = skip.saturating_sub(rows as u64);
        if first == rows {
            continue;
        }
        let taken = (rows - first).min(free);
        if taken > 0 {
            chunks.push(part(&chunk, first..first + taken));
        }
        free -= taken;
        if taken < rows - first {
            return Ok((TimeSlice::of_chunks(&chunks), true));
        }
    }
    Ok((TimeSlice::of_chunks(&chunks), false))
}

/// Some rows of a chunk.
fn part(chunk: &Chunk, rows: Range<usize>) -> Chunk {
    let (mut times, mut values, mut starts) = (Vec::new(), Vec::new(), Vec::new());
    for (at, value, start) in chunk.rows().skip(rows.start).take(rows.len()) {
        if starts.last().is_none_or(|(_, before)| *before != start) {
            starts.push((times.len(), start));
        }
        times.push(at.0);
        values.push(value);
    }
    Chunk { series: Arc::clone(&chunk.series), times, values, starts }
}

/// A sample in memory, in the order of a slice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    at: i64,
    /// The position of its series.
    series: u32,
    /// Its order of arrival.
    place: u64,
    row: usize,
}

/// The samples of batches in memory, without those before an instant.
fn from_memory(view: &View, points: &Range<Point>, since: i64) -> TimeSlice {
    let mut found: Vec<Arc<SeriesInfo>> = Vec::new();
    let mut numbers: FxHashMap<*const SeriesInfo, u32> = FxHashMap::default();
    let (mut rows, mut values, mut starts) = (Vec::new(), Vec::new(), Vec::new());
    for group in view.heads().flat_map(|head| head.groups()) {
        group.rows().each(points, |place, of_table, at, raw: RawValue| {
            let slot = group.table.places.get(of_table as usize);
            let Some((slot, info)) = slot.and_then(|slot| Some((slot, slot.series.as_ref()?)))
            else {
                return;
            };
            if at < since {
                return;
            }
            let series = *numbers.entry(Arc::as_ptr(info)).or_insert_with(|| {
                found.push(Arc::clone(info));
                u32::try_from(found.len() - 1).unwrap_or(u32::MAX)
            });
            rows.push(Row { at, series, place, row: values.len() });
            values.push(raw.value(slot.divisor));
            starts.push(slot.start);
        });
    }
    // Equal series of several tables become one.
    let mut order: Vec<(u32, Arc<SeriesInfo>)> = (0..).zip(found).collect();
    order.sort_by(|(_, a), (_, b)| SeriesInfo::order(a, b));
    let mut ranks = vec![0; order.len()];
    let mut series: Vec<Arc<SeriesInfo>> = Vec::with_capacity(order.len());
    for (number, info) in order {
        if series.last().is_none_or(|last| !SeriesInfo::same(last, &info)) {
            series.push(info);
        }
        let rank = u32::try_from(series.len() - 1).unwrap_or(u32::MAX);
        ranks.get_mut(number as usize).into_iter().for_each(|of| *of = rank);
    }
    for row in &mut rows {
        row.series = ranks.get(row.series as usize).copied().unwrap_or(u32::MAX);
    }
    rows.sort_unstable();
    TimeSlice {
        series,
        places: rows.iter().map(|row| row.series).collect(),
        times: rows.iter().map(|row| row.at).collect(),
        values: rows.iter().filter_map(|row| values.get(row.row).copied()).collect(),
        starts: rows.iter().filter_map(|row| starts.get(row.row).copied()).collect(),
    }
}
