//! Rollups beside the blocks: what every series did in five minutes, and in an hour.
//!
//! They are built while a merge reads a block's samples anyway. Samples in memory or in unmerged blocks are rolled up
//! during queries ([`crate::scan::rollup_scan`]).

use crate::blocks::{Block, BlockFacts, BlockNote, NewBlock, RawValues, Window};
use crate::files::errors::BlockError;
use crate::files::layout::rollups_dir;
use crate::head::samples::RawValue;
use crate::maintenance::merging::{level_above, newest};
use crate::scan::by_series::{BlockSeries, Scan};
use crate::scan::merged_sources::{Columns, Feeds};
use crate::scan::rollup_points::points;
use crate::scan::source::Piece;
use crate::state::ledger::{Change, Ledger};
use crate::state::shared::Shared;
use model::{Rollup, RollupWindows, Series, Timestamp};
use std::path::Path;
use std::sync::Arc;
use storage::{Meter, WINDOWS_US};

/// Rolls series up, and writes the windows.
#[derive(Debug)]
pub(crate) struct Rolling<'a> {
    ledger: &'a Ledger,
    files: Vec<NewBlock<'a>>,
    windows: RollupWindows,
    /// The windows of the current series, of the shortest length.
    fine: Vec<Window>,
    coarse: Vec<Window>,
}

impl<'a> Rolling<'a> {
    /// Begins the files of rollups beside a block; `dir` is the directory of the rollups.
    ///
    /// # Errors
    /// The disk fails.
    pub(crate) fn create(
        shared: &Shared,
        ledger: &'a Ledger,
        dir: &'a Path,
        of: BlockFacts,
    ) -> Result<Self, BlockError> {
        let file = |window_us| {
            NewBlock::create(&*ledger.disk, dir, &shared.settings, BlockFacts { window_us, ..of })
        };
        Ok(Self {
            ledger,
            files: WINDOWS_US.into_iter().map(file).collect::<Result<_, _>>()?,
            windows: RollupWindows::new(WINDOWS_US[0]),
            fine: Vec::new(),
            coarse: Vec::new(),
        })
    }

    /// Adds rows of the current series, ordered by time.
    pub(crate) fn rows(&mut self, rows: &Columns<RawValues>, divisor: u32) {
        let Columns { times, values, starts } = rows;
        let raws = values.bits.iter().zip(&values.reals);
        let values = raws.map(|(bits, real)| RawValue { bits: *bits, real: *real }.value(divisor));
        for point in points(times, values, starts) {
            self.fine.extend(self.windows.push(point));
        }
    }

    /// Adds windows of the current series, of the shortest length, ordered by time.
    pub(crate) fn windows(&mut self, windows: Vec<Window>) {
        self.fine.extend(windows);
    }

    /// Ends a series.
    ///
    /// # Errors
    /// The disk fails.
    pub(crate) fn end(&mut self, series: &Series) -> Result<(), BlockError> {
        self.fine.extend(self.windows.finish());
        for (file, window_us) in self.files.iter_mut().zip(WINDOWS_US) {
            if window_us == WINDOWS_US[0] {
                file.windows(series, &self.fine)?;
            } else {
                self.coarse.clear();
                widen(&self.fine, window_us, &mut self.coarse);
                file.windows(series, &self.coarse)?;
            }
        }
        self.fine.clear();
        Ok(())
    }

    /// Writes the rest, and syncs it.
    ///
    /// # Errors
    /// The disk fails: then no file is left.
    pub(crate) fn finish(self, received: Timestamp) -> Result<Vec<Arc<Block>>, BlockError> {
        let mut finished = Vec::new();
        for file in self.files {
            let file = file.finish(received).inspect_err(|_| self.ledger.discard(&finished))?;
            finished.push(Arc::new(file));
        }
        Ok(finished)
    }
}

/// Joins consecutive windows to longer ones.
fn widen(windows: &[Window], window_us: i64, wide: &mut Vec<Window>) {
    let long = |start: Timestamp| Timestamp(start.0.div_euclid(window_us) * window_us);
    for same in windows.chunk_by(|a, b| long(a.0) == long(b.0)) {
        let Some(((start, first), rest)) = same.split_first() else { continue };
        let mut joined: Rollup = *first;
        rest.iter().for_each(|(_, rollup)| joined.join(rollup));
        wide.push((long(*start), joined));
    }
}

/// Builds the rollups of a block that has none; false if it had to stop.
///
/// # Errors
/// The block cannot be read, or the files cannot be written.
pub(crate) fn roll(
    shared: &Arc<Shared>,
    ledger: &Ledger,
    block: &Arc<Block>,
) -> Result<bool, BlockError> {
    let note = &block.note;
    let dir = rollups_dir(&ledger.dir);
    let of = BlockFacts {
        log: (note.log_first, note.log_last),
        level: note.level,
        window_us: 0,
        settled: None,
    };
    let mut rolling = Rolling::create(shared, ledger, &dir, of)?;
    let one = std::slice::from_ref(block);
    let mut scan = Scan::blocks(shared, &Arc::new(Meter::default()), one);
    while let Some(BlockSeries { series, divisor, mut feeds }) = scan.series()? {
        while let Some(rows) = scan.rows(&mut feeds)? {
            if shared.tending.is_closing() {
                return Ok(false);
            }
            rolling.rows(&rows, divisor);
        }
        rolling.end(&series.series)?;
    }
    let rollups = rolling.finish(note.received)?;
    let change = Change { rollups: &rollups, ..Change::of(&|_| false) };
    ledger.exchange(shared, &change)?;
    Ok(true)
}

/// Joins consecutive final rollup files into one; false if it had to stop.
///
/// # Errors
/// One of them cannot be read, or the new one cannot be written: the old ones stay.
pub(crate) fn join(
    shared: &Arc<Shared>,
    ledger: &Ledger,
    old: &[Arc<Block>],
) -> Result<bool, BlockError> {
    let (Some(first), Some(last)) = (old.first(), old.last()) else { return Ok(true) };
    let window_us = first.note.window_us;
    let settled = first.note.settled.zip(last.note.settled).map(|(from, to)| (from.0, to.1));
    let dir = rollups_dir(&ledger.dir);
    let of = BlockFacts { log: (0, 0), level: level_above(old), window_us, settled };
    let mut new = NewBlock::create(&*ledger.disk, &dir, &shared.settings, of)?;
    let mut scan = Scan::blocks(shared, &Arc::new(Meter::default()), old);
    let (mut samples, mut windows) = (Feeds::new(Vec::new()), Vec::new());
    while let Some((series, pieces)) = scan.pieces()? {
        for (place, piece) in pieces {
            if shared.tending.is_closing() {
                return Ok(false);
            }
            if let Piece::Rows(entry) = piece {
                scan.add(place, *entry, &mut samples, &mut windows)?;
                new.windows(&series.series, &windows)?;
                windows.clear();
            }
        }
    }
    let new = [Arc::new(new.finish(newest(old))?)];
    let is_old = |note: &BlockNote| old.iter().any(|file| file.note.file == note.file);
    let change = Change { rollups: &new, ..Change::of(&is_old) };
    ledger.exchange(shared, &change)?;
    Ok(true)
}
