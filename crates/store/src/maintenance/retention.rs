//! Retention: makes rollups final, and deletes data beyond the limits of age and size.
//!
//! A time range is *settled* when the store accepts no more late samples for it. Its rollups are then written
//! to files of their own, and queries of windows in it read these files alone. Only then may its samples be
//! deleted, since nothing needs them any more.
//! The order makes a crash at any point harmless: first late samples are rejected, then the files are
//! written, then the manifest lists them and the time. The next start removes leftovers of a crash.

use crate::blocks::{Block, BlockFacts, BlockNote};
use crate::files::errors::BlockError;
use crate::files::layout::rollups_dir;
use crate::maintenance::archive::Archive;
use crate::maintenance::rollups::Rolling;
use crate::scan::indexes::extent;
use crate::scan::rollup_scan::WindowScan;
use crate::scan::source::ScanQuery;
use crate::settings::Settings;
use crate::state::ledger::{Change, Ledger};
use crate::state::rests::after_deletion;
use crate::state::shared::Shared;
use crate::state::view::View;
use model::Timestamp;
use std::sync::Arc;
use storage::{Meter, RetentionLimits, Selector, WINDOWS_US, Windows};

/// Times are settled in whole multiples of it: the longest window.
const GRAIN_US: i64 = WINDOWS_US[1];

/// The next step.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    /// Make the rollups between two instants final.
    Settle(Timestamp, Timestamp),
    /// Move a block to the archive.
    Archive(Arc<Block>),
    /// Delete a block.
    Samples(Arc<Block>),
    /// Delete a file of rollups.
    Rollups(Arc<Block>),
}

impl Work {
    /// Whether it is impossible while the archive is unavailable.
    pub(crate) fn is_of_archive(&self) -> bool {
        match self {
            Self::Archive(_) => true,
            Self::Samples(block) => block.note.archived,
            Self::Settle(..) | Self::Rollups(_) => false,
        }
    }
}

/// The step that is due now, if any. `archives`: whether the archive is available.
///
/// A clock that is ahead deletes nothing: the time counts as at most an hour after the newest sample.
pub(crate) fn due(
    view: &View,
    settings: &Settings,
    now: Timestamp,
    archives: bool,
) -> Option<Work> {
    let newest = extent(view).map_or(i64::MIN, |(_, newest)| newest);
    let now = Timestamp(now.0.min(newest.saturating_add(GRAIN_US)));
    let late = floor(now.0.saturating_sub(settings.settle_after_us), settings.settle_step_us);
    if let Some(work) = settle_to(view, settings, late) {
        return Some(work);
    }
    near(view, settings, now, archives)
        .or_else(|| archived(view, settings, now).filter(|_| archives))
        .or_else(|| rollups(view, settings, now))
}

/// The oldest of some files, and whether their limits are exceeded.
struct Excess<'a> {
    oldest: &'a Arc<Block>,
    is_old: bool,
    is_much: bool,
}

impl<'a> Excess<'a> {
    fn of(
        files: impl Iterator<Item = &'a Arc<Block>> + Clone,
        keep: RetentionLimits,
        now: Timestamp,
    ) -> Option<Self> {
        let oldest = files.clone().min_by_key(|file| file.note.to)?;
        let is_old = oldest.note.to.0 < now.0.saturating_sub(keep.age_us);
        let is_much = files.map(|file| file.note.bytes).sum::<u64>() > keep.bytes_max;
        Some(Self { oldest, is_old, is_much })
    }

    /// The oldest file, if it is to be deleted.
    fn file(self) -> Option<Arc<Block>> {
        (self.is_old || self.is_much).then(|| Arc::clone(self.oldest))
    }
}

/// The due step for the samples in the data directory.
fn near(view: &View, settings: &Settings, now: Timestamp, archives: bool) -> Option<Work> {
    let files = view.blocks.iter().filter(|block| !block.note.archived);
    let surplus = Excess::of(files, settings.keep_samples, now)?;
    let oldest = &surplus.oldest.note;
    if oldest.to < view.settled {
        return match settings.archive {
            None => surplus.file().map(Work::Samples),
            Some(_) => surplus.file().filter(|_| archives).map(Work::Archive),
        };
    }
    // Samples of the current hour and the hour before stay, however many there are.
    let to = floor(oldest.to.0, GRAIN_US).saturating_add(GRAIN_US);
    let is_due = surplus.is_much && to <= now.0.saturating_sub(GRAIN_US);
    is_due.then(|| settle_to(view, settings, to)).flatten()
}

fn archived(view: &View, settings: &Settings, now: Timestamp) -> Option<Work> {
    let keep = settings.archive.as_ref()?.keep;
    Excess::of(view.archived(), keep, now)?.file().map(Work::Samples)
}

fn rollups(view: &View, settings: &Settings, now: Timestamp) -> Option<Work> {
    let mut each = settings.keep_rollups.iter().zip(WINDOWS_US);
    let file = each.find_map(|(keep, window_us)| {
        let settled = view.settled_files(window_us);
        Excess::of(settled, *keep, now)?.file()
    });
    file.map(Work::Rollups)
}

/// The next range up to `to` that has samples and is not settled.
fn settle_to(view: &View, settings: &Settings, to: i64) -> Option<Work> {
    let heads = view.heads().flat_map(|head| head.groups());
    let spans = heads.map(|group| group.rows().span());
    let spans = spans.chain(view.blocks.iter().map(|block| (block.note.from.0, block.note.to.0)));
    let ahead = spans.filter(|(from, last)| from <= last && *last >= view.settled.0);
    let first = ahead.map(|(from, _)| from.max(view.settled.0)).min()?;
    let from = floor(first, GRAIN_US).max(view.settled.0);
    let end = floor(from, settings.settle_step_us).saturating_add(settings.settle_step_us).min(to);
    (from < end).then_some(Work::Settle(Timestamp(from), Timestamp(end)))
}

fn floor(at: i64, step: i64) -> i64 {
    at.div_euclid(step.max(1)).saturating_mul(step.max(1))
}

/// Performs a step; false if it had to stop.
///
/// # Errors
/// A block cannot be read, or a file cannot be written. Nothing changed, except that late samples may be
/// rejected for a range that is not settled yet.
pub(crate) fn perform(
    shared: &Arc<Shared>,
    ledger: &Ledger,
    archive: Option<&Archive>,
    work: &Work,
) -> Result<bool, BlockError> {
    let (file, removed) = match work {
        Work::Settle(from, to) => return settle(shared, ledger, *from, *to),
        Work::Archive(block) => {
            return archive.map_or(Ok(false), |archive| archive.take(shared, ledger, block));
        }
        Work::Samples(block) => (block, block.note.rows),
        Work::Rollups(file) => (file, 0),
    };
    if let Some(archive) = archive.filter(|_| file.note.archived) {
        archive.ready(&*ledger.disk)?;
    }
    let is_it = |note: &BlockNote| note.file == file.note.file;
    // Locked until no manifest lists the block: the record of its samples counts those that each follower lacks at this moment.
    let positions = (removed > 0).then(|| shared.positions());
    let points = positions.as_ref().map(|positions| positions.points()).unwrap_or_default();
    let is_followed = !points.is_empty();
    let rests = is_followed.then(|| {
        let old = ledger.manifest().rests.clone();
        after_deletion(&old, &file.note, &shared.view().0.blocks, &points)
    });
    let rests = rests.as_deref();
    let gone = ledger.replace(shared, &Change { removed, rests, ..Change::of(&is_it) })?;
    // The archive may hang: nothing else waits for it.
    drop(positions);
    ledger.remove(&gone);
    Ok(true)
}

fn settle(
    shared: &Arc<Shared>,
    ledger: &Ledger,
    from: Timestamp,
    to: Timestamp,
) -> Result<bool, BlockError> {
    // Batches accepted after this lose earlier samples; batches accepted before are visible.
    shared.books().settled = to;
    let at = shared.now();
    let new = match write(shared, ledger, (from, to)) {
        Ok(Some(files)) => files,
        other => {
            // The ledger knows the settled time: late samples are accepted again.
            shared.books().settled = ledger.manifest().settled;
            return other.map(|_| false);
        }
    };
    // From now on, these files alone answer for earlier windows.
    let is_reported =
        |note: &BlockNote| note.window_us > 0 && note.settled.is_none() && note.to < to;
    let change = Change { rollups: &new, settled: Some((to, at)), ..Change::of(&is_reported) };
    ledger.exchange(shared, &change)?;
    Ok(true)
}

/// Writes the windows between two instants to files, if there are any; `None` if it had to stop.
fn write(
    shared: &Arc<Shared>,
    ledger: &Ledger,
    (from, to): (Timestamp, Timestamp),
) -> Result<Option<Vec<Arc<Block>>>, BlockError> {
    let dir = rollups_dir(&ledger.dir);
    let (view, visible) = shared.view();
    let last = to.0.saturating_sub(1);
    let query = ScanQuery { selector: Selector::default(), filter: None, from: from.0, to: last };
    let of = BlockFacts { log: (0, 0), level: 0, window_us: 0, settled: Some((from.0, to.0)) };
    let mut rolling: Option<Rolling<'_>> = None;
    let meter = Arc::new(Meter::default());
    for found in WindowScan::new(shared, &view, visible, query, WINDOWS_US[0], meter) {
        let Windows { series, windows } = found?;
        if shared.tending.is_closing() {
            return Ok(None);
        }
        let rolling = match &mut rolling {
            Some(rolling) => rolling,
            None => rolling.insert(Rolling::create(shared, ledger, &dir, of)?),
        };
        rolling.windows(windows);
        rolling.end(&series.series)?;
    }
    let files = rolling.map(|rolling| rolling.finish(shared.now())).transpose()?;
    Ok(Some(files.unwrap_or_default()))
}
