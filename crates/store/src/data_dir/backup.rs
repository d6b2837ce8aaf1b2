//! Copies a data directory while its server runs.
//!
//! The order makes the copy consistent: first the log, then the manifest, then the files of the manifest.
//! A sample acknowledged before the copy began is in the copied log, or in a block of the later manifest.
//! Blocks never change, so a hard link is a copy where the file system supports it.
//! A file that disappears before it is copied belonged to a replaced manifest: then the copy restarts.

use crate::data_dir::open::{FORMAT_FILE, check_format};
use crate::files::disk::RealDisk;
use crate::files::errors::{DiskError, OpenError};
use crate::files::layout::{blocks_dir, log_dir, rollups_dir};
use crate::state::manifest::{MANIFEST, Manifest, write_whole};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::Path;

/// How often a copy restarts because the server replaced files.
const TRIES_MAX: u32 = 20;

/// A finished copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Blocks, linked or copied.
    pub blocks: u64,
    /// Samples in them.
    pub samples: u64,
    /// Blocks in the archive: the copy refers to them there.
    pub archived: u64,
    /// Log segments.
    pub segments: u64,
    /// Bytes of all.
    pub bytes: u64,
}

/// Copies a data directory to one that does not exist yet, and syncs all of it.
///
/// # Errors
/// The source is not a data directory, the target exists, or a file cannot be copied: then the copy is removed.
pub fn backup(dir: &Path, to: &Path) -> Result<Copied, OpenError> {
    check_format(&RealDisk, dir)?;
    let mut tries = 0;
    loop {
        tries += 1;
        fs::create_dir(to).map_err(DiskError::of("make the directory", to))?;
        match copy(dir, to) {
            Ok(copied) => return Ok(copied),
            Err(error) => {
                fs::remove_dir_all(to).map_err(DiskError::of("remove", to))?;
                let replaced =
                    matches!(&error, OpenError::Disk(e) if e.error.kind() == ErrorKind::NotFound);
                if !replaced || tries == TRIES_MAX {
                    return Err(error);
                }
            }
        }
    }
}

fn copy(dir: &Path, to: &Path) -> Result<Copied, OpenError> {
    let mut copied = Copied::default();
    let (log, blocks) = (log_dir(dir), blocks_dir(dir));
    for inner in [log_dir(to), blocks_dir(to), rollups_dir(to)] {
        fs::create_dir(&inner).map_err(DiskError::of("make the directory", &inner))?;
    }
    let names = fs::read_dir(&log).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    for entry in names.map_err(DiskError::of("list", &log))? {
        copied.bytes += one(&log, &log_dir(to), &entry.file_name(), false)?;
        copied.segments += 1;
    }
    if let Some(manifest) = Manifest::read(&RealDisk, dir)? {
        if let Some(gaps) = &manifest.gaps {
            copied.bytes += one(dir, to, gaps.file.as_ref(), false)?;
        }
        let (archived, near): (Vec<_>, Vec<_>) =
            manifest.blocks.iter().partition(|note| note.archived);
        copied.archived = archived.len() as u64;
        for note in near {
            copied.bytes += one(&blocks, &blocks_dir(to), note.file.as_ref(), true)?;
            copied.samples += note.rows;
            copied.blocks += 1;
        }
        for note in &manifest.rollups {
            copied.bytes += one(&rollups_dir(dir), &rollups_dir(to), note.file.as_ref(), true)?;
        }
        // The manifest that was read: the current one may be newer.
        manifest.write(&RealDisk, to)?;
        copied.bytes += size(&to.join(MANIFEST))?;
    }
    let format = fs::read(dir.join(FORMAT_FILE)).map_err(DiskError::of("read", dir))?;
    write_whole(&RealDisk, to, FORMAT_FILE, &format)?;
    for inner in [log_dir(to), blocks_dir(to), rollups_dir(to), to.to_owned()] {
        let sync = File::open(&inner).and_then(|dir| dir.sync_all());
        sync.map_err(DiskError::of("sync", &inner))?;
    }
    Ok(copied)
}

/// Copies or links a file; returns its bytes.
fn one(from: &Path, to: &Path, name: &std::ffi::OsStr, link: bool) -> Result<u64, OpenError> {
    let (from, to) = (from.join(name), to.join(name));
    if !(link && fs::hard_link(&from, &to).is_ok()) {
        fs::copy(&from, &to).map_err(DiskError::of("copy", &from))?;
        File::open(&to).and_then(|file| file.sync_all()).map_err(DiskError::of("sync", &to))?;
    }
    size(&to)
}

fn size(path: &Path) -> Result<u64, OpenError> {
    Ok(fs::metadata(path).map_err(DiskError::of("read", path))?.len())
}
