//! The archive: a directory on another file system, to which blocks are moved that have no room in the data
//! directory. They are asked as all others.
//!
//! A file `ARCHIVE` in it names the data directory it belongs to, so that neither another archive nor the
//! empty place where none is mounted is taken for it:
//!
//! ```text
//! jobmeter archive 1 1750000000000000
//! ```
//!
//! A block is copied whole before the manifest says that it is there, and goes from the data directory
//! after that. Where the archive is away, questions of its time fail, and all else goes on.

use crate::blocks::{Block, BlockNote};
use crate::files::disk::Disk;
use crate::files::errors::{BlockError, DiskError, OpenError};
use crate::files::lock::lock;
use crate::state::ledger::{Change, Ledger};
use crate::state::manifest::{ArchiveNote, Manifest, read_whole, write_whole};
use crate::state::shared::Shared;
use model::Timestamp;
use std::fmt::Debug;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

const ARCHIVE_FILE: &str = "ARCHIVE";
const ARCHIVE_WORDS: &str = "jobmeter archive 1 ";
const LOCK_FILE: &str = "LOCK";
/// Bytes copied at a time.
const COPY_BYTES: usize = 1 << 20;

/// The archive of a store.
#[derive(Debug)]
pub(crate) struct Archive {
    note: ArchiveNote,
    /// Held from when it was first found.
    lock: Mutex<Option<Box<dyn Send + Sync + Debug>>>,
}

impl Archive {
    /// Begins an archive in an empty directory, or finds the one that the manifest names; whether it is
    /// there.
    ///
    /// # Errors
    /// It holds no block of ours yet and the directory is not there or not empty; it is another's; or the
    /// disk fails. The manifest names the one before then.
    pub(crate) fn open(
        ledger: &Ledger,
        dir: &Path,
        now: Timestamp,
    ) -> Result<(Self, bool), OpenError> {
        let disk = &*ledger.disk;
        let (known, holds_some) = {
            let manifest = ledger.manifest();
            (manifest.archive.clone(), manifest.blocks.iter().any(|block| block.archived))
        };
        let id = known.as_ref().map_or(now.0, |note| note.id);
        let archive =
            Self { note: ArchiveNote { id, dir: dir.to_owned() }, lock: Mutex::default() };
        let path = dir.join(ARCHIVE_FILE);
        if !holds_some && read_id(disk, &path)?.is_none() {
            may_begin(disk, dir)?;
            // First the manifest: a mark that no manifest knows would be nobody's.
            archive.name(ledger, known)?;
            let text = format!("{ARCHIVE_WORDS}{id}\n");
            write_whole(disk, dir, ARCHIVE_FILE, text.as_bytes())?;
            archive.ready(disk)?;
            return Ok((archive, true));
        }
        match archive.ready(disk) {
            Ok(()) => {
                archive.name(ledger, known)?;
                Ok((archive, true))
            }
            Err(error) if error.error.kind() == ErrorKind::NotFound => Ok((archive, false)),
            Err(error) => Err(error.into()),
        }
    }

    /// Says in the manifest where it is, unless it says so already.
    fn name(&self, ledger: &Ledger, known: Option<ArchiveNote>) -> Result<(), DiskError> {
        if known.as_ref() == Some(&self.note) {
            return Ok(());
        }
        ledger.swap(|manifest| {
            manifest.archive = Some(self.note.clone());
            Ok(())
        })
    }

    /// Whether it is there, and ours alone.
    ///
    /// # Errors
    /// It is not, or the disk fails.
    pub(crate) fn ready(&self, disk: &dyn Disk) -> Result<(), DiskError> {
        let path = self.note.dir.join(ARCHIVE_FILE);
        let not = |kind, why: &str| {
            DiskError::of("use the archive", &path)(io::Error::new(kind, why.to_owned()))
        };
        match read_id(disk, &path)? {
            None => Err(not(ErrorKind::NotFound, "it is not there; is its file system mounted?")),
            Some(id) if id != Some(self.note.id) => {
                Err(not(ErrorKind::InvalidData, "it belongs to another data directory"))
            }
            Some(_) => {
                let mut held = lock(&self.lock);
                if held.is_none() {
                    let path = self.note.dir.join(LOCK_FILE);
                    *held = Some(disk.lock(&path).map_err(DiskError::of("lock", &path))?);
                }
                Ok(())
            }
        }
    }

    /// Moves a block here; false when it had to stop.
    ///
    /// # Errors
    /// The archive is away or full, or the block cannot be read: it stays where it is.
    pub(crate) fn take(
        &self,
        shared: &Shared,
        ledger: &Ledger,
        block: &Block,
    ) -> Result<bool, BlockError> {
        let disk = &ledger.disk;
        self.ready(&**disk)?;
        let path = self.note.dir.join(&block.note.file);
        let other = self.note.dir.join(format!("{}.tmp", block.note.file));
        let note = BlockNote { archived: true, ..block.note.clone() };
        let new = Arc::new(Block::archived(disk, &self.note.dir, note));
        if disk.open(&path).is_err() {
            let copied = copy(shared, &**disk, block, &other);
            if !matches!(copied, Ok(true)) {
                // Where this fails the next try writes over it.
                disk.remove(&other).unwrap_or_default();
                return Ok(copied?);
            }
            disk.rename(&other, &path).map_err(DiskError::of("rename", &path))?;
            disk.sync_dir(&self.note.dir).map_err(DiskError::of("sync", &self.note.dir))?;
        }
        // One that was there is this one, copied before a crash; or of a server that was started with a
        // copy of this data directory, and has other samples: it is never written over.
        new.check()?;
        let is_it = |note: &BlockNote| note.file == block.note.file && note.window_us == 0;
        ledger.exchange(shared, &Change { block: Some(&new), ..Change::of(&is_it) })?;
        Ok(true)
    }
}

/// Where the blocks lie that a manifest says are in the archive.
pub(crate) fn archive_dir(manifest: &Manifest) -> PathBuf {
    manifest.archive.as_ref().map_or_else(PathBuf::new, |note| note.dir.clone())
}

/// Files in the archive that no manifest names: copies that did not end, and blocks whose removal failed or
/// that another backup of the data directory names. Nothing where it is away.
pub(crate) fn strays(disk: &dyn Disk, manifest: &Manifest) -> Vec<PathBuf> {
    let Some(ArchiveNote { dir, .. }) = &manifest.archive else { return Vec::new() };
    let ours = [ARCHIVE_FILE, LOCK_FILE, "lost+found"];
    let is_named = |name: &str| {
        ours.contains(&name)
            || manifest.blocks.iter().any(|note| note.archived && note.file == name)
    };
    let names = disk.list(dir).unwrap_or_default();
    names.iter().filter(|name| !is_named(name)).map(|name| dir.join(name)).collect()
}

/// Whether an archive may begin in a directory: it is there, and nothing is in it but what a file system has
/// when it is new, or a start that did not end left.
fn may_begin(disk: &dyn Disk, dir: &Path) -> Result<(), OpenError> {
    let not = |why: String| OpenError::NotOurs { path: dir.to_owned(), why };
    let names = match disk.list(dir) {
        Ok(names) => names,
        Err(error) => return Err(not(format!("it cannot be the archive: {error}"))),
    };
    let is_new =
        |name: &String| name == LOCK_FILE || name == "lost+found" || name.starts_with(ARCHIVE_FILE);
    match names.iter().find(|name| !is_new(name)) {
        Some(name) => Err(not(format!("it cannot become the archive: it has `{name}` in it"))),
        None if names.is_empty() && disk.sync_dir(dir).is_err() => {
            Err(not("it cannot become the archive: make the folder first".to_owned()))
        }
        None => Ok(()),
    }
}

/// The number in a file `ARCHIVE`, if it is there, and one.
fn read_id(disk: &dyn Disk, path: &Path) -> Result<Option<Option<i64>>, DiskError> {
    let Some(bytes) = read_whole(disk, path)? else { return Ok(None) };
    let text = String::from_utf8(bytes).unwrap_or_default();
    Ok(Some(text.strip_prefix(ARCHIVE_WORDS).and_then(|id| id.trim_end().parse().ok())))
}

/// Copies a block's file; all of it is on the disk when this returns. False when it had to stop.
fn copy(shared: &Shared, disk: &dyn Disk, block: &Block, to: &Path) -> Result<bool, DiskError> {
    let mut buf = vec![0; COPY_BYTES];
    let mut at = 0;
    let mut file = disk.create(to).map_err(DiskError::of("write", to))?;
    while at < block.note.bytes {
        if shared.tending.is_closing() {
            return Ok(false);
        }
        let left = usize::try_from(block.note.bytes - at).unwrap_or(usize::MAX);
        buf.truncate(left);
        block.read_at(&mut buf, at)?;
        file.write(&buf).map_err(DiskError::of("write", to))?;
        at += buf.len() as u64;
    }
    file.sync().map_err(DiskError::of("sync", to))?;
    Ok(true)
}
