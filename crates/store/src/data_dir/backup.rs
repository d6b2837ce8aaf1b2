//! Copies a data directory while its server runs.
//!
//! The order makes the copy consistent: first the followers' positions, then the log, then the manifest, then its files.
//! So no position is ahead of the copied samples.
//! A sample acknowledged before the copy began is in the copied log, or in a block of the later manifest.
//! Blocks never change, so a hard link is a copy where the file system supports it.
//! Root may copy the directory of another user, who could replace files by links meanwhile: no link is followed.
//! A file that disappears before it is copied belonged to a replaced manifest: then the copy restarts.

use crate::data_dir::open::{FORMAT_FILE, check_format};
use crate::files::disk::RealDisk;
use crate::files::errors::{DiskError, OpenError};
use crate::files::layout::{blocks_dir, followers_dir, log_dir, rollups_dir};
use crate::state::manifest::{MANIFEST, Manifest, write_whole};
use crate::state::positions::POSITIONS;
use rustix::fs::{Mode, OFlags, open, openat};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

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
    let (dir, is_own) = &located(dir).map_err(DiskError::of("read", dir))?;
    // Read first by that function: nothing here may be a link or a pipe of another user.
    match open_plain(&dir.join(FORMAT_FILE)) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(DiskError::of("read", dir)(error).into());
        }
        _ => check_format(&RealDisk, dir)?,
    }
    let mut tries = 0;
    loop {
        tries += 1;
        fs::create_dir(to).map_err(DiskError::of("make the directory", to))?;
        match copy(dir, to, *is_own) {
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

/// The real path of a directory, and whether the folder that contains it is the caller's own. Another user could
/// replace the directory by a link at any time, so none is followed there.
fn located(dir: &Path) -> io::Result<(PathBuf, bool)> {
    let real = std::path::absolute(dir)?;
    let (Some(parent), Some(name)) = (real.parent(), real.file_name()) else {
        return Ok((fs::canonicalize(dir)?, true));
    };
    let parent = fs::canonicalize(parent)?;
    let is_own = fs::metadata(&parent)?.uid() == rustix::process::geteuid().as_raw();
    Ok((if is_own { fs::canonicalize(dir)? } else { parent.join(name) }, is_own))
}

/// `is_own`: its files are the caller's, so a block may be linked. A link shares owner and mode.
fn copy(dir: &Path, to: &Path, is_own: bool) -> Result<Copied, OpenError> {
    let mut copied = Copied::default();
    let (log, blocks) = (log_dir(dir), blocks_dir(dir));
    for inner in [log_dir(to), blocks_dir(to), rollups_dir(to)] {
        fs::create_dir(&inner).map_err(DiskError::of("make the directory", &inner))?;
    }
    let (followers, own) = (followers_dir(dir), followers_dir(to));
    if exists(&followers)? {
        fs::create_dir(&own).map_err(DiskError::of("make the directory", &own))?;
        let positions = followers.join(POSITIONS);
        // A folder without positions is that of a follower that is being added.
        if exists(&positions)? {
            copied.bytes += one(&followers, &own, POSITIONS.as_ref(), false)?;
        }
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
            copied.bytes += one(&blocks, &blocks_dir(to), note.file.as_ref(), is_own)?;
            copied.samples += note.rows;
            copied.blocks += 1;
        }
        for rest in manifest.rests.iter().filter(|rest| !rest.deleted) {
            match one(&followers, &own, rest.note.file.as_ref(), is_own) {
                // A follower begins at the block without it.
                Err(OpenError::Disk(error)) if error.error.kind() == ErrorKind::NotFound => {}
                bytes => copied.bytes += bytes?,
            }
        }
        for note in &manifest.rollups {
            copied.bytes += one(&rollups_dir(dir), &rollups_dir(to), note.file.as_ref(), is_own)?;
        }
        // The manifest that was read: the current one may be newer.
        manifest.write(&RealDisk, to)?;
        let written = to.join(MANIFEST);
        copied.bytes += fs::metadata(&written).map_err(DiskError::of("read", &written))?.len();
    }
    let mut format = Vec::new();
    let read =
        open_plain(&dir.join(FORMAT_FILE)).and_then(|mut file| file.read_to_end(&mut format));
    read.map_err(DiskError::of("read", dir))?;
    write_whole(&RealDisk, to, FORMAT_FILE, &format)?;
    let has_followers = own.try_exists().is_ok_and(|exists| exists);
    let inner = [log_dir(to), blocks_dir(to), rollups_dir(to), to.to_owned()].into_iter();
    for inner in inner.chain(has_followers.then_some(own)) {
        let sync = File::open(&inner).and_then(|dir| dir.sync_all());
        sync.map_err(DiskError::of("sync", &inner))?;
    }
    Ok(copied)
}

/// Whether a file exists, of any kind.
fn exists(path: &Path) -> Result<bool, DiskError> {
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(DiskError::of("read", path)(error)),
    }
}

/// Copies or links a file; returns its bytes.
fn one(from: &Path, to: &Path, name: &OsStr, link: bool) -> Result<u64, OpenError> {
    let (path, to) = (from.join(name), to.join(name));
    if Path::new(name).file_name() != Some(name) {
        let error = io::Error::new(ErrorKind::InvalidData, "not the name of a file in this folder");
        return Err(DiskError::of("copy", &path)(error).into());
    }
    if !(link && fs::hard_link(&path, &to).is_ok()) {
        copy_file(&path, &to).map_err(DiskError::of("copy", &path))?;
    }
    Ok(fs::symlink_metadata(&to).map_err(DiskError::of("read", &to))?.len())
}

/// Copies a regular file to one that does not exist, and syncs it. Follows no link.
///
/// # Errors
/// The original is no regular file, or the operating system fails.
pub fn copy_file(from: &Path, to: &Path) -> io::Result<()> {
    let mut original = open_plain(from)?;
    let mut copy = File::options().write(true).create_new(true).mode(0o600).open(to)?;
    io::copy(&mut original, &mut copy)?;
    copy.sync_all()
}

/// Opens a regular file by its absolute path. No part of it may be a link. `openat2` could do this in one call, but Linux 4.18 of
/// Enterprise Linux 8 does not have it.
///
/// # Errors
/// It is no regular file, a part of the path is a link, or the operating system fails.
pub fn open_plain(path: &Path) -> io::Result<File> {
    let same = OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let (folder, read) =
        (same | OFlags::PATH | OFlags::DIRECTORY, same | OFlags::NONBLOCK | OFlags::NOCTTY);
    let mut dir = open("/", folder, Mode::empty())?;
    let mut names = path.components().skip_while(|part| *part == Component::RootDir).peekable();
    let mut file = None;
    while let Some(Component::Normal(name)) = names.next() {
        if names.peek().is_some() {
            dir = openat(&dir, name, folder, Mode::empty())?;
        } else {
            file = Some(openat(&dir, name, read, Mode::empty())?);
        }
    }
    let wrong = || io::Error::new(ErrorKind::InvalidInput, "not an absolute path of a file");
    let file = File::from(file.ok_or_else(wrong)?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidData, "not a regular file"));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_regular_files_without_links_in_their_path_are_copied() {
        let dir = tempfile::tempdir().unwrap();
        let dir = fs::canonicalize(dir.path()).unwrap();
        let (real, file) = (dir.join("real"), dir.join("real/file"));
        fs::create_dir(&real).unwrap();
        fs::write(&file, "text").unwrap();
        symlink(&real, dir.join("folder-link")).unwrap();
        symlink(&file, dir.join("file-link")).unwrap();
        for other in ["folder-link/file", "file-link", "real", "real/../real/file", "none"] {
            assert!(copy_file(&dir.join(other), &dir.join("copy")).is_err(), "{other}");
            assert!(!dir.join("copy").try_exists().unwrap(), "{other}");
        }
        assert!(copy_file(Path::new("Cargo.toml"), &dir.join("copy")).is_err(), "not absolute");
        copy_file(&file, &dir.join("copy")).unwrap();
        assert_eq!(fs::read(dir.join("copy")).unwrap(), b"text");
        assert!(copy_file(&file, &dir.join("copy")).is_err(), "it exists");
    }
}
