//! The manifest as the store's threads share it: each change is written completely before it counts.

use crate::blocks::{Block, BlockNote};
use crate::files::disk::Disk;
use crate::files::errors::DiskError;
use crate::files::layout::followers_dir;
use crate::state::manifest::Manifest;
use crate::state::points::Points;
use crate::state::rests::{Rest, needed};
use crate::state::shared::Shared;
use model::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The manifest of a data directory, and its location.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dir: PathBuf,
    /// The manifest on the disk.
    manifest: Mutex<Manifest>,
    /// The last swap failed: the manifest on the disk is either of two.
    unsure: AtomicBool,
}

impl Ledger {
    pub(crate) fn new(disk: Arc<dyn Disk>, dir: PathBuf, manifest: Manifest) -> Self {
        Self { disk, dir, manifest: Mutex::new(manifest), unsure: AtomicBool::new(false) }
    }

    /// The manifest on the disk.
    pub(crate) fn manifest(&self) -> MutexGuard<'_, Manifest> {
        self.manifest.lock()
    }

    /// Replaces the manifest by a changed one. `change` receives the new one, with the next generation. No
    /// other thread changes it meanwhile.
    ///
    /// # Errors
    /// Those of `change`, or the disk fails. Then the previous manifest counts, though a restart after a
    /// crash may find the new one.
    /// So no file of either of the two may be removed until a later swap succeeds.
    pub(crate) fn swap<E: From<DiskError>>(
        &self,
        change: impl FnOnce(&mut Manifest) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut manifest = self.manifest();
        let mut new = manifest.clone();
        new.generation += 1;
        change(&mut new)?;
        let written = new.write(&*self.disk, &self.dir);
        self.unsure.store(written.is_err(), Ordering::SeqCst);
        written?;
        *manifest = new;
        Ok(())
    }

    /// Removes finished files that will not be listed after all, to free space. If the manifest on the disk
    /// may list them, they stay until the same work is done again, or until the next start.
    pub(crate) fn discard(&self, files: &[Arc<Block>]) {
        if !self.unsure.load(Ordering::SeqCst) {
            self.remove(files);
        }
    }

    /// Replaces the ranges that followers read instead of a block, if they change.
    ///
    /// # Errors
    /// The manifest cannot be written.
    pub(crate) fn trim_rests(&self, points: &Points) -> Result<(), DiskError> {
        let old = self.manifest().rests.clone();
        let new = needed(&old, points);
        if new != old {
            self.swap(|manifest| {
                manifest.rests = new;
                Ok::<(), DiskError>(())
            })?;
            self.remove_rests(&old);
        }
        Ok(())
    }

    /// Removes the rest files that the manifest no longer lists. If this fails, the next start removes them.
    pub(crate) fn remove_rests(&self, old: &[Rest]) {
        let now = self.manifest().rests.clone();
        let is_listed = |old: &Rest| now.iter().any(|rest| rest == old);
        for rest in old.iter().filter(|rest| !rest.deleted && !is_listed(rest)) {
            self.disk.remove(&followers_dir(&self.dir).join(&rest.note.file)).unwrap_or_default();
        }
    }

    /// Changes the manifest and the view alike, then removes the dropped files.
    ///
    /// # Errors
    /// The manifest cannot be written: everything stays as it was, the new files included, which a manifest
    /// may list after a crash.
    pub(crate) fn exchange(&self, shared: &Shared, change: &Change<'_>) -> Result<(), DiskError> {
        let gone = self.replace(shared, change)?;
        self.remove(&gone);
        Ok(())
    }

    /// Deletes files that no manifest lists. It may wait for an archive.
    pub(crate) fn remove(&self, gone: &[Arc<Block>]) {
        for file in gone {
            // If this fails, the next start removes the file.
            self.disk.remove(&file.path).unwrap_or_default();
        }
    }

    /// Exchanges files in the manifest and in the view. Returns those to delete.
    ///
    /// # Errors
    /// The manifest cannot be written.
    pub(crate) fn replace(
        &self,
        shared: &Shared,
        change: &Change<'_>,
    ) -> Result<Vec<Arc<Block>>, DiskError> {
        let Change { is_gone, block, rollups, settled, removed, rests } = *change;
        let before = rests.map(|_| self.manifest().rests.clone());
        let place = |log_first: u64| block.is_some_and(|new| log_first < new.note.log_first);
        self.swap(|manifest| {
            manifest.blocks.retain(|note| !is_gone(note));
            let at = manifest.blocks.partition_point(|note| place(note.log_first));
            manifest.blocks.splice(at..at, block.map(|new| new.note.clone()));
            manifest.rollups.retain(|note| !is_gone(note));
            manifest.rollups.extend(rollups.iter().map(|file| file.note.clone()));
            if let Some(times) = settled {
                (manifest.settled, manifest.settled_at) = times;
            }
            manifest.samples_removed += removed;
            if let Some(rests) = rests {
                manifest.rests = rests.to_vec();
            }
            Ok::<(), DiskError>(())
        })?;
        let gone: Vec<Arc<Block>> = shared.turn(|view| {
            let mut gone: Vec<_> = view.blocks.extract_if(.., |file| is_gone(&file.note)).collect();
            let at = view.blocks.partition_point(|file| place(file.note.log_first));
            view.blocks.splice(at..at, block.map(Arc::clone));
            gone.extend(view.rollups.extract_if(.., |file| is_gone(&file.note)));
            view.rollups.extend(rollups.iter().map(Arc::clone));
            view.settled = settled.map_or(view.settled, |(settled, _)| settled);
            view.samples_removed += removed;
            gone
        });
        if let Some(old) = before {
            self.remove_rests(&old);
        }
        Ok(gone)
    }
}

/// A change of the files, in the manifest and in the view alike.
#[derive(Clone, Copy)]
pub(crate) struct Change<'a> {
    /// Blocks and files of rollups to drop.
    pub(crate) is_gone: &'a dyn Fn(&BlockNote) -> bool,
    /// A block to add, at the position of its log segments.
    pub(crate) block: Option<&'a Arc<Block>>,
    /// Files of rollups to add.
    pub(crate) rollups: &'a [Arc<Block>],
    /// The new settled time, and the time of settling.
    pub(crate) settled: Option<(Timestamp, Timestamp)>,
    /// Number of deleted samples.
    pub(crate) removed: u64,
    /// The new ranges that followers read instead of a block, if they change.
    pub(crate) rests: Option<&'a [Rest]>,
}

impl<'a> Change<'a> {
    /// Drops these, and adds nothing.
    pub(crate) const fn of(is_gone: &'a dyn Fn(&BlockNote) -> bool) -> Self {
        Self { is_gone, block: None, rollups: &[], settled: None, removed: 0, rests: None }
    }
}
