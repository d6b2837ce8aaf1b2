//! The archive: a directory on another file system that receives blocks beyond the limits of the data
//! directory. Queries read it like other blocks.
//!
//! Its file `ARCHIVE` identifies the data directory of the archive. So neither another archive nor an empty
//! mount point is mistaken for it:
//!
//! ```text
//! jobmeter archive 1 1750000000000000
//! ```
//!
//! A block is copied completely before the manifest lists it there, and is deleted from the data directory after that.
//! While the archive is unavailable, queries of its time range fail, and everything else continues.

use crate::blocks::{Block, BlockNote};
use crate::files::disk::Disk;
use crate::files::errors::{BlockError, DiskError, OpenError};
use crate::state::ledger::{Change, Ledger};
use crate::state::manifest::{ArchiveNote, Manifest, read_whole, write_whole};
use crate::state::shared::Shared;
use model::Timestamp;
use parking_lot::Mutex;
use std::fmt::Debug;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const ARCHIVE_FILE: &str = "ARCHIVE";
const ARCHIVE_PREFIX: &str = "jobmeter archive 1 ";
const LOCK_FILE: &str = "LOCK";
/// Bytes copied at a time.
const COPY_BYTES: usize = 1 << 20;

/// The archive of a store.
#[derive(Debug)]
pub(crate) struct Archive {
    note: ArchiveNote,
    /// Held since it was first found.
    lock: Mutex<Option<Box<dyn Send + Sync + Debug>>>,
}

impl Archive {
    /// Begins an archive in an empty directory, or finds the one of the manifest. Also returns whether it is available.
    ///
    /// # Errors
    /// It has no block yet, and the directory is missing or not empty; it belongs to another data directory;
    /// or the disk fails.
    /// The manifest then refers to the previous one.
    pub(crate) fn open(
        ledger: &Ledger,
        dir: &Path,
        now: Timestamp,
    ) -> Result<(Self, bool), OpenError> {
        let disk = &*ledger.disk;
        let (known, begins) = {
            let manifest = ledger.manifest();
            (manifest.archive.clone(), begins(disk, &manifest, dir)?)
        };
        let id = known.as_ref().map_or(now.0, |note| note.id);
        let archive =
            Self { note: ArchiveNote { id, dir: dir.to_owned() }, lock: Mutex::default() };
        if begins {
            // The manifest first: a mark unknown to any manifest would belong to no store.
            archive.name(ledger, known)?;
            let text = format!("{ARCHIVE_PREFIX}{id}\n");
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

    /// Records its location in the manifest, unless it is there already.
    fn name(&self, ledger: &Ledger, known: Option<ArchiveNote>) -> Result<(), DiskError> {
        if known.as_ref() == Some(&self.note) {
            return Ok(());
        }
        ledger.swap(|manifest| {
            manifest.archive = Some(self.note.clone());
            Ok(())
        })
    }

    /// Checks that it is available and belongs to this store.
    ///
    /// # Errors
    /// It is unavailable or another's, or the disk fails.
    pub(crate) fn ready(&self, disk: &dyn Disk) -> Result<(), DiskError> {
        identify(disk, &self.note.dir, Some(self.note.id))?;
        let mut held = self.lock.lock();
        if held.is_none() {
            let path = self.note.dir.join(LOCK_FILE);
            *held = Some(disk.lock(&path).map_err(DiskError::of("lock", &path))?);
        }
        Ok(())
    }

    /// Moves a block here; false if it had to stop.
    ///
    /// # Errors
    /// The archive is unavailable or full, or the block cannot be read: it stays where it is.
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
                // If this fails, the next try overwrites it.
                disk.remove(&other).unwrap_or_default();
                return Ok(copied?);
            }
            disk.rename(&other, &path).map_err(DiskError::of("rename", &path))?;
            disk.sync_dir(&self.note.dir).map_err(DiskError::of("sync", &self.note.dir))?;
        }
        // An existing file is this block, copied before a crash. Or a server with a copy of this data
        // directory wrote it, with other samples: it is never overwritten.
        new.check()?;
        let is_it = |note: &BlockNote| note.file == block.note.file && note.window_us == 0;
        ledger.exchange(shared, &Change { block: Some(&new), ..Change::of(&is_it) })?;
        Ok(true)
    }
}

/// Whether a store would begin its archive in this directory, without changes. Finds the errors of `Archive::open`.
///
/// # Errors
/// As for `Archive::open`.
pub fn check_archive(disk: &dyn Disk, data: &Path, dir: &Path) -> Result<bool, OpenError> {
    let manifest = Manifest::read(disk, data)?.unwrap_or_default();
    if begins(disk, &manifest, dir)? {
        return Ok(true);
    }
    match identify(disk, dir, manifest.archive.map(|note| note.id)) {
        Err(error) if error.error.kind() != ErrorKind::NotFound => Err(error.into()),
        _ => Ok(false),
    }
}

/// Whether the archive begins in this directory: it has no block yet, and the directory belongs to no store.
fn begins(disk: &dyn Disk, manifest: &Manifest, dir: &Path) -> Result<bool, OpenError> {
    let holds_some = manifest.blocks.iter().any(|block| block.archived);
    if holds_some || read_id(disk, &dir.join(ARCHIVE_FILE))?.is_some() {
        return Ok(false);
    }
    may_begin(disk, dir)?;
    Ok(true)
}

/// Checks that a directory is the archive with this ID.
fn identify(disk: &dyn Disk, dir: &Path, id: Option<i64>) -> Result<(), DiskError> {
    let path = dir.join(ARCHIVE_FILE);
    let not = |kind, why: &str| {
        Err(DiskError::of("use the archive", &path)(io::Error::new(kind, why.to_owned())))
    };
    match read_id(disk, &path)? {
        None => not(ErrorKind::NotFound, "it is missing; is its file system mounted?"),
        Some(found) if found.is_none() || found != id => {
            not(ErrorKind::InvalidData, "it belongs to another data directory")
        }
        Some(_) => Ok(()),
    }
}

/// Directory of the manifest's archived blocks.
pub(crate) fn archive_dir(manifest: &Manifest) -> PathBuf {
    manifest.archive.as_ref().map_or_else(PathBuf::new, |note| note.dir.clone())
}

/// Files in the archive that no manifest lists: incomplete copies, blocks with failed deletion, and blocks of
/// another backup of the data directory. Empty if the archive is unavailable.
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

/// Whether an archive may begin in a directory: it exists, and contains at most the files of a new file
/// system or of an interrupted start.
fn may_begin(disk: &dyn Disk, dir: &Path) -> Result<(), OpenError> {
    let not = |why: String| OpenError::NotOurs { path: dir.to_owned(), why };
    let names = match disk.list(dir) {
        Ok(names) => names,
        Err(error) => return Err(not(format!("it cannot be the archive: {error}"))),
    };
    let is_new =
        |name: &String| name == LOCK_FILE || name == "lost+found" || name.starts_with(ARCHIVE_FILE);
    match names.iter().find(|name| !is_new(name)) {
        Some(name) => Err(not(format!("it cannot become the archive: it contains `{name}`"))),
        None if names.is_empty() && disk.sync_dir(dir).is_err() => {
            Err(not("it cannot become the archive: create the folder first".to_owned()))
        }
        None => Ok(()),
    }
}

/// The ID in a file `ARCHIVE`, if the file exists and has one.
fn read_id(disk: &dyn Disk, path: &Path) -> Result<Option<Option<i64>>, DiskError> {
    let Some(bytes) = read_whole(disk, path)? else { return Ok(None) };
    let text = String::from_utf8(bytes).unwrap_or_default();
    Ok(Some(text.strip_prefix(ARCHIVE_PREFIX).and_then(|id| id.trim_end().parse().ok())))
}

/// Copies a block's file and syncs it. False if it had to stop.
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
