//! The file system interface of the store. Tests let any call fail, cut a write short, or stop the machine
//! between two calls.

use rustix::fs::OFlags;
use std::fmt::Debug;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

/// The files of a store. Every path is in the data directory or in the archive.
pub trait Disk: Send + Sync + Debug {
    /// Creates a directory and its parents, and syncs their names.
    ///
    /// # Errors
    /// The system's.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;

    /// The names in a directory, unordered; none if it does not exist.
    ///
    /// # Errors
    /// The system's.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;

    /// Creates or truncates a file for writing.
    ///
    /// # Errors
    /// The system's.
    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>>;

    /// Opens a file for reading.
    ///
    /// # Errors
    /// The system's.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>>;

    /// Truncates a file to a length, and syncs it.
    ///
    /// # Errors
    /// The system's.
    fn truncate(&self, path: &Path, length: u64) -> io::Result<()>;

    /// Renames a file; a file of the new name is replaced.
    ///
    /// # Errors
    /// The system's.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// The system's.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Syncs a directory's names.
    ///
    /// # Errors
    /// The system's.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Locks a file for this process alone, creating it if necessary; dropping the value unlocks it.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if another process has it; else the system's.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync + Debug>>;
}

/// A file written sequentially.
pub trait WriteFile: Send + Debug {
    /// Appends bytes.
    ///
    /// # Errors
    /// The system's; a part of the bytes may have been written.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Syncs the bytes to the disk (fdatasync).
    ///
    /// # Errors
    /// The system's. The state of the bytes written since the last success is then unknown.
    fn sync(&mut self) -> io::Result<()>;
}

/// A file with random reads.
pub trait ReadFile: Send + Sync + Debug {
    /// Its length in bytes.
    ///
    /// # Errors
    /// The system's.
    fn length(&self) -> io::Result<u64>;

    /// Fills the buffer from an offset of the file.
    ///
    /// # Errors
    /// The system's; [`io::ErrorKind::UnexpectedEof`] if the file ends before.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;
}

/// The machine's own file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        if dir.try_exists()? {
            return Ok(());
        }
        // The parent of a bare name is the empty path, which is not a directory.
        let Some(above) = dir.parent() else { return Ok(()) };
        let above = if above == Path::new("") { Path::new(".") } else { above };
        self.create_dir(above)?;
        match std::fs::create_dir(dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => self.sync_dir(above),
        }
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let entries = match std::fs::read_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other?,
        };
        entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        let mut options = OpenOptions::new();
        Ok(Box::new(regular(options.create(true).truncate(true).write(true), path)?))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        Ok(Arc::new(regular(OpenOptions::new().read(true), path)?))
    }

    fn truncate(&self, path: &Path, length: u64) -> io::Result<()> {
        let file = regular(OpenOptions::new().write(true), path)?;
        file.set_len(length)?;
        file.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync + Debug>> {
        let mut options = OpenOptions::new();
        let file = regular(options.create(true).truncate(false).write(true), path)?;
        match file.try_lock() {
            Ok(()) => Ok(Box::new(file)),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

/// Opens a regular file. Root may work in a data directory that belongs to another user: a link there could lead to any
/// file of the machine, and a pipe would block.
fn regular(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = options.custom_flags(flags.bits().cast_signed()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not a regular file"));
    }
    Ok(file)
}

impl WriteFile for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}

impl ReadFile for File {
    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(buf, offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_links_nor_pipes_are_opened() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link, pipe) =
            (dir.path().join("file"), dir.path().join("link"), dir.path().join("pipe"));
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        for other in [&link, &pipe] {
            assert!(RealDisk.create(other).is_err() && RealDisk.lock(other).is_err(), "{other:?}");
            assert!(RealDisk.open(other).is_err() && RealDisk.truncate(other, 0).is_err());
        }
        assert!(!file.try_exists().unwrap());
        RealDisk.create(&file).unwrap();
        RealDisk.open(&file).unwrap();
        RealDisk.lock(&file).unwrap();
    }

    #[test]
    fn directories_are_created_level_by_level_also_for_a_bare_name() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("a/b/c");
        RealDisk.create_dir(&deep).unwrap();
        RealDisk.create_dir(&deep).unwrap();
        assert!(deep.is_dir());
        let name = Path::new("made-by-a-test-of-the-store");
        RealDisk.create_dir(name).unwrap();
        std::fs::remove_dir(name).unwrap();
    }
}
