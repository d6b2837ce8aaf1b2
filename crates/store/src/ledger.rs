//! The manifest as the store's threads share it: each change of it is written whole before it counts.

use crate::disk::Disk;
use crate::error::DiskError;
use crate::manifest::Manifest;
use crate::shared::lock;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

/// The manifest of a data directory, and where it lies.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dir: PathBuf,
    /// The manifest on the disk.
    manifest: Mutex<Manifest>,
}

impl Ledger {
    pub(crate) fn new(disk: Arc<dyn Disk>, dir: PathBuf, manifest: Manifest) -> Self {
        Self { disk, dir, manifest: Mutex::new(manifest) }
    }

    /// The manifest on the disk.
    pub(crate) fn manifest(&self) -> MutexGuard<'_, Manifest> {
        lock(&self.manifest)
    }

    /// Puts a changed manifest in the place of the one there is; `change` is given the new one, whose
    /// generation is the next. Nobody else changes it meanwhile.
    ///
    /// # Errors
    /// Those of `change`, or the disk fails: then the one before counts, though after a crash the new one
    /// may be found. So no file that either of the two names may be removed until a later swap succeeds.
    pub(crate) fn swap<E: From<DiskError>>(
        &self,
        change: impl FnOnce(&mut Manifest) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut manifest = self.manifest();
        let mut new = manifest.clone();
        new.generation += 1;
        change(&mut new)?;
        new.write(&*self.disk, &self.dir)?;
        *manifest = new;
        Ok(())
    }
}
