//! Maintenance of blocks: merges, rollups, settling, deletion.

use crate::blocks::{Block, BlockNote};
use crate::files::errors::BlockError;
use crate::maintenance::archive::Archive;
use crate::maintenance::merging::{due, is_done, merge};
use crate::maintenance::retention;
use crate::maintenance::rollups::{join, roll};
use crate::state::ledger::Ledger;
use crate::state::points::Points;
use crate::state::shared::Shared;
use model::Timestamp;
use parking_lot::Mutex;
use std::sync::Arc;
use storage::WINDOWS_US;

/// How long an unreadable block is skipped.
const APART_US: i64 = 3600 * Timestamp::SECOND;

/// Maintains the blocks of a store.
#[derive(Debug)]
pub(crate) struct Compactor {
    shared: Arc<Shared>,
    ledger: Arc<Ledger>,
    /// Blocks that could not be read or merged, and since when; they are tried again after
    /// [`APART_US`]. Locked during maintenance, so that only one runs.
    apart: Mutex<Vec<(String, Timestamp)>>,
    archive: Option<Archive>,
}

impl Compactor {
    pub(crate) fn new(shared: Arc<Shared>, ledger: Arc<Ledger>, archive: Option<Archive>) -> Self {
        Self { shared, ledger, apart: Mutex::default(), archive }
    }

    /// Works until the store is closed.
    pub(crate) fn run(&self) {
        while self.shared.tending.wait() {
            let done = self.maintain();
            self.shared.counts().maintenance_error = done.err().map(|error| error.to_string());
        }
    }

    /// Does all due maintenance.
    ///
    /// # Errors
    /// The disk fails; maintenance is retried later. An unreadable block does not stop the others: it is
    /// skipped for an hour, and reported after the other work.
    pub(crate) fn maintain(&self) -> Result<(), BlockError> {
        let mut apart = self.apart.lock();
        let now = self.shared.now();
        apart.retain(|(_, since)| now.since(*since) < APART_US);
        let (mut failed, mut retained) = (None, Ok(()));
        let mut retain = || {
            if retained.is_ok() {
                retained = self.retain();
            }
        };
        while !self.shared.tending.is_closing()
            && let Some(work) = self.next(&apart).or_else(|| {
                // Newly settled rollups may be joined.
                retain();
                self.next(&apart)
            })
        {
            let done = match &*work {
                [block] => roll(&self.shared, &self.ledger, block),
                old if old.iter().all(|file| file.note.settled.is_some()) => {
                    join(&self.shared, &self.ledger, old)
                }
                old => merge(&self.shared, &self.ledger, old),
            };
            self.count(&work, &done);
            if let Err(error) = done {
                let of = work.iter().find(|block| error.is_damage_of(&block.path));
                let damaged = of.map(|block| apart.push((block.note.file.clone(), now)));
                failed = Some(error);
                // Another merge would find the disk full too; deletion frees space.
                if damaged.is_none() {
                    break;
                }
            }
            // Keeps deletion timely, however fast blocks arrive.
            retain();
        }
        retain();
        let followed = self.followers();
        retained.and(followed).and(failed.map_or(Ok(()), Err))
    }

    /// Deletes the positions of followers that were removed long ago, and the files that only they needed.
    fn followers(&self) -> Result<(), BlockError> {
        let mut positions = self.shared.positions();
        let kept = positions.unexpired(self.shared.now());
        let Ledger { disk, dir, .. } = &*self.ledger;
        if kept.len() < positions.followers.len() {
            positions.replace(&**disk, dir, kept)?;
        }
        Ok(self.ledger.trim_rests(&positions.points())?)
    }

    /// Settles old time ranges, and archives or deletes data beyond its limits. An unavailable or full
    /// archive does not stop the rest.
    fn retain(&self) -> Result<(), BlockError> {
        let settings = &self.shared.settings;
        let mut archived_now = None;
        while !self.shared.tending.is_closing()
            && let Some(work) = retention::due(
                &self.shared.view().0,
                settings,
                self.shared.now(),
                archived_now.is_none(),
            )
        {
            let archive = self.archive.as_ref();
            let done = retention::perform(&self.shared, &self.ledger, archive, &work);
            self.shared.counts().stats.retain_errors += u64::from(done.is_err());
            match done {
                Err(error) if work.is_of_archive() => archived_now = Some(error),
                Err(error) => return Err(error),
                Ok(_) => {}
            }
        }
        archived_now.map_or(Ok(()), Err)
    }

    fn count(&self, work: &[Arc<Block>], done: &Result<bool, BlockError>) {
        let mut counts = self.shared.counts();
        counts.stats.merge_errors += u64::from(done.is_err());
        if matches!(done, Ok(true)) && work.len() > 1 {
            counts.stats.merges += 1;
            counts.stats.merged_bytes += work.iter().map(|block| block.note.bytes).sum::<u64>();
        }
    }

    /// The blocks to merge next, or final rollup files to join, or one block to roll up: one that is merged
    /// no more or was merged, and has no rollups.
    fn next(&self, apart: &[(String, Timestamp)]) -> Option<Vec<Arc<Block>>> {
        let (view, _) = self.shared.view();
        let settings = &self.shared.settings;
        let is_apart = |note: &BlockNote| apart.iter().any(|(file, _)| *file == note.file);
        let neighbours = |files: &[Arc<Block>], points: &Points| {
            let notes: Vec<BlockNote> = files.iter().map(|file| file.note.clone()).collect();
            files.get(due(&notes, points, is_apart, settings)?).map(<[_]>::to_vec)
        };
        let points = self.shared.positions().points();
        if let Some(blocks) = neighbours(&view.blocks, &points) {
            return Some(blocks);
        }
        for window_us in WINDOWS_US {
            let mut files: Vec<Arc<Block>> = view.settled_files(window_us).cloned().collect();
            files.sort_by_key(|file| file.note.settled);
            if let Some(files) = neighbours(&files, &Points::default()) {
                return Some(files);
            }
        }
        let is_due = |block: &&Arc<Block>| {
            (block.note.level > 0 || is_done(&block.note, settings))
                && !is_apart(&block.note)
                && block.note.to >= view.settled
                && !view.is_rolled(&block.note, WINDOWS_US[0])
        };
        view.blocks.iter().find(is_due).map(|block| vec![Arc::clone(block)])
    }
}
