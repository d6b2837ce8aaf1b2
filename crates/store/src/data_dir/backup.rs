//! Copying a data directory while its server runs.
//!
//! The order makes the copy one moment of the store: first the log, then the manifest, then what the
//! manifest names. A sample that was acknowledged before the copy began is in the copied log, or in a block
//! of the manifest, which is younger. Blocks are never changed, so a link to one is a copy of it where the
//! file system allows. What is gone before it is copied belonged to a manifest that has been replaced:
//! then it begins anew.

use crate::data_dir::open::{FORMAT_FILE, check_format};
use crate::files::disk::RealDisk;
use crate::files::errors::{DiskError, OpenError};
use crate::files::layout::{blocks_dir, log_dir, rollups_dir};
use crate::state::manifest::{MANIFEST, Manifest, write_whole};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::Path;

/// How often a copy is begun anew because the server replaced files meanwhile.
const TRIES_MAX: u32 = 20;

/// What was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Blocks, linked or copied.
    pub blocks: u64,
    /// Samples in them.
    pub samples: u64,
    /// Blocks that stay in the archive: the copy names them where they are.
    pub archived: u64,
    /// Log segments.
    pub segments: u64,
    /// Bytes of all.
    pub bytes: u64,
}

/// Copies a data directory to one that does not exist yet; all of it is on the disk when this returns.
///
/// # Errors
/// It is no data directory, the other exists, or a file cannot be copied: then what was copied is removed.
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
        // The one that was read, not the one that may be there by now.
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

/// Copies or links a file; its bytes.
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
