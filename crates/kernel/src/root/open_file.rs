//! A file that stays open for repeated reads.

use super::within;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, RwLock};

/// Largest kernel file that is read: all are much smaller, but a recorded tree may contain any file.
const FILE_BYTES_MAX: usize = 16 << 20;

/// A file that stays open. On a recorded machine it is opened at each reading, as the next tick is in
/// another folder.
#[derive(Debug)]
pub struct OpenFile(Kept);

#[derive(Debug)]
enum Kept {
    Live(OwnedFd),
    Recorded { dir: Arc<RwLock<OwnedFd>>, path: String },
}

impl OpenFile {
    pub(super) const fn live(fd: OwnedFd) -> Self {
        Self(Kept::Live(fd))
    }

    pub(super) const fn recorded(dir: Arc<RwLock<OwnedFd>>, path: String) -> Self {
        Self(Kept::Recorded { dir, path })
    }

    /// The descriptor, to wait on; `None` on a recorded machine, which has no events.
    pub fn live_fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.0 {
            Kept::Live(fd) => Some(fd.as_fd()),
            Kept::Recorded { .. } => None,
        }
    }

    /// Reads the whole file from its start into `buf`, which is cleared first and keeps its memory.
    ///
    /// # Errors
    /// The system's: `ENODEV` if a cgroup file's cgroup was removed, `ESRCH` if the process has ended.
    pub fn read(&self, buf: &mut Vec<u8>) -> Result<(), Errno> {
        match &self.0 {
            Kept::Live(fd) => read_whole(fd.as_fd(), buf, Records::Many),
            Kept::Recorded { dir, path } => {
                let flags = OFlags::RDONLY | OFlags::CLOEXEC;
                let fd = within(dir, |dir| rustix::fs::openat(dir, path, flags, Mode::empty()))?;
                read_whole(fd.as_fd(), buf, Records::Many)
            }
        }
    }

    /// As [`Self::read`], for a file that the kernel prints at once: a read that does not fill the memory has the whole
    /// file, and no second call asks for its end. Not for files of many records (`vmstat`, `diskstats`, `mounts`,
    /// `cgroup.procs`): the kernel cuts these between two records where its own buffer is full
    /// (Documentation/filesystems/seq_file.rst).
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_single(&self, buf: &mut Vec<u8>) -> Result<(), Errno> {
        match &self.0 {
            Kept::Live(fd) => read_whole(fd.as_fd(), buf, Records::One),
            Kept::Recorded { .. } => self.read(buf),
        }
    }

    /// Reads the start of the file, `most` bytes at most, into `buf`, which is cleared first and keeps its
    /// memory. Returns whether the file ends there.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_start(&self, buf: &mut Vec<u8>, most: usize) -> Result<bool, Errno> {
        match &self.0 {
            Kept::Live(fd) => read_most(fd.as_fd(), buf, most),
            Kept::Recorded { dir, path } => {
                let flags = OFlags::RDONLY | OFlags::CLOEXEC;
                let fd = within(dir, |dir| rustix::fs::openat(dir, path, flags, Mode::empty()))?;
                read_most(fd.as_fd(), buf, most)
            }
        }
    }

    /// Shows the whole file from its start, in parts of at most the size of `part`, for files that may
    /// be too large to hold.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_in_parts(&self, part: &mut [u8], mut show: impl FnMut(&[u8])) -> Result<(), Errno> {
        match &self.0 {
            Kept::Live(fd) => read_parts(fd.as_fd(), part, &mut show),
            Kept::Recorded { dir, path } => {
                let flags = OFlags::RDONLY | OFlags::CLOEXEC;
                let fd = within(dir, |dir| rustix::fs::openat(dir, path, flags, Mode::empty()))?;
                read_parts(fd.as_fd(), part, &mut show)
            }
        }
    }
}

fn read_parts(
    fd: BorrowedFd<'_>,
    part: &mut [u8],
    show: &mut impl FnMut(&[u8]),
) -> Result<(), Errno> {
    let mut offset = 0_u64;
    loop {
        match rustix::io::pread(fd, &mut *part, offset) {
            Ok(0) => return Ok(()),
            Ok(bytes) => {
                show(part.get(..bytes).unwrap_or_default());
                offset = offset.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

fn read_most(fd: BorrowedFd<'_>, buf: &mut Vec<u8>, most: usize) -> Result<bool, Errno> {
    buf.clear();
    let mut part = [0; 4096];
    while buf.len() < most {
        let free = part.len().min(most - buf.len());
        let part = part.get_mut(..free).unwrap_or_default();
        let offset = u64::try_from(buf.len()).unwrap_or(u64::MAX);
        match rustix::io::pread(fd, &mut *part, offset) {
            Ok(0) => return Ok(true),
            Ok(bytes) => buf.extend_from_slice(part.get(..bytes).unwrap_or_default()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(false)
}

/// How the kernel prints a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Records {
    /// At once.
    One,
    /// Record by record.
    Many,
}

fn read_whole(fd: BorrowedFd<'_>, buf: &mut Vec<u8>, records: Records) -> Result<(), Errno> {
    buf.clear();
    if buf.capacity() == 0 {
        buf.reserve(4096);
    }
    loop {
        if buf.len() == buf.capacity() {
            if buf.len() >= FILE_BYTES_MAX {
                return Err(Errno::FBIG);
            }
            buf.reserve(buf.len());
        }
        let offset = u64::try_from(buf.len()).unwrap_or(u64::MAX);
        match rustix::io::pread(fd, rustix::buffer::spare_capacity(buf), offset) {
            Ok(0) => return Ok(()),
            Ok(_) if records == Records::One && buf.len() < buf.capacity() => return Ok(()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Root;

    #[test]
    fn a_file_that_is_printed_at_once_is_whole_whatever_the_memory() {
        let root = Root::live().unwrap();
        let (mut whole, mut single) = (Vec::new(), Vec::new());
        // Files of one record, the first of them longer than the memory at first.
        for path in ["proc/self/status", "proc/stat", "proc/meminfo", "proc/self/stat"] {
            let file = root.open(path).unwrap();
            for capacity in [16, 4096] {
                single = Vec::with_capacity(capacity);
                file.read_single(&mut single).unwrap();
                file.read(&mut whole).unwrap();
                let lines = |text: &[u8]| text.split(|byte| *byte == b'\n').count();
                assert_eq!(lines(&single), lines(&whole), "{path}");
                assert!(single.ends_with(b"\n"), "{path}");
            }
        }
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("large"), "x".repeat(10_000)).unwrap();
        let recorded = Root::recorded(dir.path()).unwrap().open("large").unwrap();
        recorded.read_single(&mut single).unwrap();
        assert_eq!(single.len(), 10_000);
    }

    #[test]
    fn parts_of_a_file_are_the_file() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("large"), "x".repeat(10_000)).unwrap();
        let large = dir.path().join("large").to_str().unwrap().to_owned();
        let live = Root::live().unwrap().open(large.trim_start_matches('/')).unwrap();
        for file in [Root::recorded(dir.path()).unwrap().open("large").unwrap(), live] {
            let (mut whole, mut parts) = (Vec::new(), 0);
            file.read_in_parts(&mut [0; 999], |part| {
                whole.extend_from_slice(part);
                parts += 1;
            })
            .unwrap();
            assert_eq!((whole.len(), parts), (10_000, 11));
            for (most, end) in [(0, false), (5_000, false), (10_000, false), (10_001, true)] {
                assert_eq!(file.read_start(&mut whole, most), Ok(end), "{most}");
                assert_eq!(whole.len(), most.min(10_000));
            }
        }
    }
}
