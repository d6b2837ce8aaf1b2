//! A machine's files: at `/`, or under a recorded copy of them.

mod environment;
mod open_file;

pub use environment::environments_given_up;
pub use open_file::OpenFile;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// The machine's files. Every path is given without its leading `/`.
///
/// On a recorded tree the live kernel is never queried: replies that are not files (netlink, statfs) come from
/// `.jobmeter/`.
#[derive(Clone, Debug)]
pub struct Root {
    /// Directory of the files; another one after [`Root::step_to`].
    dir: Arc<RwLock<OwnedFd>>,
    path: PathBuf,
    live: bool,
    recorder: Option<Arc<Recorder>>,
    environments: Arc<environment::Owners>,
}

/// The files and replies read so far, for `jobmeter capture`.
#[derive(Debug, Default)]
struct Recorder {
    seen: Mutex<Recorded>,
}

#[derive(Debug, Default)]
struct Recorded {
    paths: BTreeSet<String>,
    replies: BTreeMap<String, Vec<u8>>,
}

/// Why a file of the machine could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// It does not exist: no such hardware, kernel option or process.
    #[error("{path}: not there")]
    Absent {
        /// The file, with its leading `/`.
        path: String,
    },
    /// Permission is missing.
    #[error("{path}: permission denied")]
    Denied {
        /// The file, with its leading `/`.
        path: String,
    },
    /// Any other error: of the device behind it, or a file without end.
    #[error("{path}: {why}")]
    Failed {
        /// The file, with its leading `/`.
        path: String,
        /// The system's message.
        why: String,
    },
}

/// Whether an error means that the object does not exist, or no longer: a process that ends between
/// list and read gives `ESRCH`; a removed cgroup or an unplugged device gives `ENODEV`.
pub const fn is_gone(errno: Errno) -> bool {
    matches!(errno, Errno::NOENT | Errno::NOTDIR | Errno::SRCH | Errno::NODEV | Errno::NXIO)
}

/// Whether an error means that permission is missing.
pub const fn is_denied(errno: Errno) -> bool {
    matches!(errno, Errno::ACCESS | Errno::PERM)
}

/// Whether a device reports that it has no value now: a sensor that sleeps or is not ready (`EAGAIN`,
/// `ENODATA`), a link that is down and so has no speed (`EINVAL`).
pub const fn is_silent(errno: Errno) -> bool {
    matches!(errno, Errno::AGAIN | Errno::NODATA | Errno::INVAL)
}

impl ReadError {
    fn new(path: &str, errno: Errno) -> Self {
        let path = format!("/{path}");
        match errno {
            errno if is_gone(errno) => Self::Absent { path },
            errno if is_denied(errno) => Self::Denied { path },
            other => Self::Failed { path, why: other.to_string() },
        }
    }

    /// Whether the file does not exist.
    pub const fn is_absent(&self) -> bool {
        matches!(self, Self::Absent { .. })
    }
}

/// The type of a directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// A directory.
    Directory,
    /// A regular file.
    File,
    /// A symbolic link.
    Link,
    /// Anything else.
    Other,
}

impl From<FileType> for NodeKind {
    fn from(kind: FileType) -> Self {
        match kind {
            FileType::Directory => Self::Directory,
            FileType::RegularFile => Self::File,
            FileType::Symlink => Self::Link,
            _ => Self::Other,
        }
    }
}

/// An entry of a directory, valid while it is shown.
#[derive(Clone, Copy, Debug)]
pub struct DirEntry<'a> {
    /// Its name; entries with names that are not UTF-8 are skipped.
    pub name: &'a str,
    /// Its type.
    pub kind: NodeKind,
}

/// The reply of `stat` for a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeStat {
    /// Its type.
    pub kind: NodeKind,
    /// Its owner.
    pub uid: u32,
    /// Its inode number: another number means another file.
    pub inode: u64,
    /// Microseconds since 1970 of its last status change; for a cgroup's directory, of its creation.
    pub changed_us: i64,
}

impl Root {
    /// The machine itself.
    ///
    /// # Errors
    /// `/` cannot be opened.
    pub fn live() -> Result<Self, ReadError> {
        Self::open_dir(Path::new("/"), true)
    }

    /// A recorded copy of a machine's files.
    ///
    /// # Errors
    /// The directory cannot be opened.
    pub fn recorded(dir: &Path) -> Result<Self, ReadError> {
        Self::open_dir(dir, false)
    }

    fn open_dir(path: &Path, live: bool) -> Result<Self, ReadError> {
        let dir = Arc::new(RwLock::new(dir(path)?));
        Ok(Self { dir, path: path.to_owned(), live, recorder: None, environments: Arc::default() })
    }

    /// Steps to the next tick of the same recorded machine. Open files are then read
    /// there, as a live machine's open files show the current state.
    ///
    /// # Errors
    /// The directory cannot be opened, or this is the live machine.
    pub fn step_to(&mut self, path: &Path) -> Result<(), ReadError> {
        if self.live {
            let why = "the live machine has no other tick".to_owned();
            return Err(ReadError::Failed { path: path.display().to_string(), why });
        }
        *self.dir.write().unwrap_or_else(PoisonError::into_inner) = dir(path)?;
        self.path = path.to_owned();
        Ok(())
    }

    /// Makes a call with the directory.
    fn within<T>(&self, call: impl FnOnce(BorrowedFd<'_>) -> Result<T, Errno>) -> Result<T, Errno> {
        within(&self.dir, call)
    }

    /// Whether this is the running machine, so that netlink, inotify and statfs may be used.
    pub const fn is_live(&self) -> bool {
        self.live
    }

    /// Path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The same root, recording every path read, for `jobmeter capture`.
    #[must_use]
    pub fn recording(mut self) -> Self {
        self.recorder = Some(Arc::default());
        self
    }

    /// The paths recorded so far, each once, sorted.
    pub fn paths_read(&self) -> Vec<String> {
        self.noted(|seen| seen.paths.iter().cloned().collect()).unwrap_or_default()
    }

    /// The recorded replies that are not files: path on a recorded machine, and bytes.
    pub fn replies(&self) -> Vec<(String, Vec<u8>)> {
        let all = |seen: &mut Recorded| seen.replies.clone().into_iter().collect();
        self.noted(all).unwrap_or_default()
    }

    /// Whether reads are recorded; otherwise there is no need to build a reply's bytes.
    pub const fn is_recording(&self) -> bool {
        self.recorder.is_some()
    }

    /// Records a reply of the live kernel that is not a file, at its path on a recorded machine.
    pub fn note_reply(&self, path: &str, bytes: &[u8]) {
        self.noted(|seen| seen.replies.insert(path.to_owned(), bytes.to_owned()));
    }

    fn note(&self, path: &str) {
        self.noted(|seen| seen.paths.insert(path.to_owned()));
    }

    fn noted<T>(&self, act: impl FnOnce(&mut Recorded) -> T) -> Option<T> {
        let recorder = self.recorder.as_ref()?;
        Some(act(&mut recorder.seen.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Reads a whole file into `buf`, which is cleared first and keeps its memory. Kernel files change
    /// between two reads of their parts, so the buffer is large enough for most of them in one read.
    ///
    /// # Errors
    /// It is absent, denied, or fails.
    pub fn read(&self, path: &str, buf: &mut Vec<u8>) -> Result<(), ReadError> {
        self.open(path)?.read(buf).map_err(|errno| ReadError::new(path, errno))
    }

    /// As [`Self::read`], for a file that the kernel prints at once, see [`OpenFile::read_single`].
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_single(&self, path: &str, buf: &mut Vec<u8>) -> Result<(), ReadError> {
        self.open(path)?.read_single(buf).map_err(|errno| ReadError::new(path, errno))
    }

    /// Reads a whole small file as text, trimmed; for startup and other rare moments, as it allocates.
    ///
    /// # Errors
    /// It is absent, denied, fails, or is not UTF-8.
    pub fn read_text(&self, path: &str) -> Result<String, ReadError> {
        let mut buf = Vec::new();
        self.read(path, &mut buf)?;
        let text = String::from_utf8(buf).map_err(|_| ReadError::Failed {
            path: format!("/{path}"),
            why: "not UTF-8".to_owned(),
        })?;
        Ok(text.trim().to_owned())
    }

    /// Opens a file for repeated reads from its start.
    ///
    /// Not for cgroup v1's `tasks` and `cgroup.procs`: an open descriptor of these shows a list up to a
    /// second old for ever (kernel/cgroup/cgroup-v1.c, `CGROUP_PIDLIST_DESTROY_DELAY`).
    ///
    /// # Errors
    /// It is absent, denied, or fails.
    pub fn open(&self, path: &str) -> Result<OpenFile, ReadError> {
        self.note(path);
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
        let fd = self
            .within(|dir| rustix::fs::openat(dir, path, flags, Mode::empty()))
            .map_err(|errno| ReadError::new(path, errno))?;
        if self.live {
            return Ok(OpenFile::live(fd));
        }
        let path = path.to_owned();
        Ok(OpenFile::recorded(Arc::clone(&self.dir), path))
    }

    /// Shows every entry of a directory but `.` and `..`, in the kernel's order, without allocating.
    ///
    /// # Errors
    /// It is absent, denied, or fails.
    pub fn list(&self, path: &str, mut show: impl FnMut(DirEntry<'_>)) -> Result<(), ReadError> {
        self.note(path);
        let failed = |errno| ReadError::new(path, errno);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let path_or_dot = if path.is_empty() { "." } else { path };
        let fd = self
            .within(|dir| rustix::fs::openat(dir, path_or_dot, flags, Mode::empty()))
            .map_err(failed)?;
        let mut space = [MaybeUninit::<u8>::uninit(); 8192];
        let mut entries = RawDir::new(&fd, &mut space);
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(failed)?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            if name != "." && name != ".." {
                show(DirEntry { name, kind: entry.file_type().into() });
            }
        }
        Ok(())
    }

    /// Whether a directory of control groups may contain others: their number is in its count of links, which costs
    /// a tenth of a list with all its files (fs/kernfs/inode.c, `kernfs_refresh_inode`, Linux 6.18). Other file
    /// systems, which recorded machines are on, need not count so.
    pub fn may_have_subdirectories(&self, path: &str) -> bool {
        let stat = || self.within(|dir| rustix::fs::statat(dir, path, AtFlags::SYMLINK_NOFOLLOW));
        // Its name in its parent, and its own `.`.
        !self.live || stat().is_ok_and(|stat| stat.st_nlink != 2)
    }

    /// The reply of `stat` for a path; for a link, of the link itself.
    ///
    /// # Errors
    /// It is absent, denied, or fails.
    pub fn stat(&self, path: &str) -> Result<NodeStat, ReadError> {
        self.note(path);
        let stat = self
            .within(|dir| rustix::fs::statat(dir, path, AtFlags::SYMLINK_NOFOLLOW))
            .map_err(|errno| ReadError::new(path, errno))?;
        let micros = i64::try_from(stat.st_ctime_nsec).unwrap_or(0) / 1000;
        Ok(NodeStat {
            kind: FileType::from_raw_mode(stat.st_mode).into(),
            uid: stat.st_uid,
            inode: stat.st_ino,
            changed_us: stat.st_ctime.saturating_mul(1_000_000).saturating_add(micros),
        })
    }

    /// The target of a short symbolic link, without allocating. `None` if it is absent, denied, not a link, longer than
    /// `target`, or not UTF-8: processes end between two readings, so errors are not formatted.
    pub fn read_short_link<'a>(&self, path: &str, target: &'a mut [u8]) -> Option<&'a str> {
        self.note(path);
        let length = self.within(|dir| rustix::fs::readlinkat_raw(dir, path, &mut *target)).ok()?;
        let text = target.get(..length).filter(|_| length < target.len())?;
        std::str::from_utf8(text).ok()
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// It is absent, denied, not a link, or not UTF-8.
    pub fn read_link(&self, path: &str) -> Result<String, ReadError> {
        self.note(path);
        let target = self
            .within(|dir| rustix::fs::readlinkat(dir, path, Vec::new()))
            .map_err(|errno| ReadError::new(path, errno))?;
        target.into_string().map_err(|_| ReadError::Failed {
            path: format!("/{path}"),
            why: "not UTF-8".to_owned(),
        })
    }
}

fn dir(path: &Path) -> Result<OwnedFd, ReadError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
        .map_err(|errno| ReadError::new(path.to_string_lossy().trim_start_matches('/'), errno))
}

fn within<T>(
    dir: &RwLock<OwnedFd>,
    call: impl FnOnce(BorrowedFd<'_>) -> Result<T, Errno>,
) -> Result<T, Errno> {
    call(dir.read().unwrap_or_else(PoisonError::into_inner).as_fd())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("proc/1")).unwrap();
        std::fs::write(dir.path().join("proc/stat"), "cpu 1 2\n").unwrap();
        std::fs::write(dir.path().join("proc/large"), "x".repeat(10_000)).unwrap();
        std::os::unix::fs::symlink("proc/stat", dir.path().join("link")).unwrap();
        let root = Root::recorded(dir.path()).unwrap();
        (dir, root)
    }

    #[test]
    fn reads_whole_files_and_reuses_the_buffer() {
        let (_dir, root) = tree();
        let mut buf = b"old".to_vec();
        root.read("proc/stat", &mut buf).unwrap();
        assert_eq!(buf, b"cpu 1 2\n");
        root.read("proc/large", &mut buf).unwrap();
        assert_eq!(buf.len(), 10_000);
        let kept = root.open("proc/stat").unwrap();
        kept.read(&mut buf).unwrap();
        kept.read(&mut buf).unwrap();
        assert_eq!(buf, b"cpu 1 2\n");
        assert_eq!(root.read_text("proc/stat").unwrap(), "cpu 1 2");
    }

    #[test]
    fn a_recorded_machine_steps_to_its_next_tick() {
        let (_dir, mut root) = tree();
        let (next, _) = tree();
        std::fs::write(next.path().join("proc/stat"), "cpu 3 4\n").unwrap();
        let kept = root.open("proc/stat").unwrap();
        let copy = root.clone();
        root.step_to(next.path()).unwrap();
        let mut buf = Vec::new();
        kept.read(&mut buf).unwrap();
        assert_eq!(buf, b"cpu 3 4\n");
        assert_eq!(copy.read_text("proc/stat").unwrap(), "cpu 3 4");
        assert!(Root::live().unwrap().step_to(next.path()).is_err());
    }

    #[test]
    fn absence_is_typed() {
        let (_dir, root) = tree();
        let mut buf = Vec::new();
        assert!(root.read("proc/none", &mut buf).unwrap_err().is_absent());
        assert!(root.read("proc/stat/x", &mut buf).unwrap_err().is_absent());
        let error = root.read("proc", &mut buf).unwrap_err();
        assert!(matches!(error, ReadError::Failed { .. }), "{error}");
    }

    #[test]
    fn lists_and_stats() {
        let (_dir, root) = tree();
        let mut names = Vec::new();
        root.list("proc", |entry| names.push((entry.name.to_owned(), entry.kind))).unwrap();
        names.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(names[0], ("1".to_owned(), NodeKind::Directory));
        assert_eq!(names[2], ("stat".to_owned(), NodeKind::File));
        assert_eq!(root.stat("link").unwrap().kind, NodeKind::Link);
        assert_eq!(root.read_link("link").unwrap(), "proc/stat");
        let mut top = 0;
        root.list("", |_| top += 1).unwrap();
        assert_eq!(top, 2);
    }

    #[test]
    fn a_recording_root_records_reads() {
        let (_dir, root) = tree();
        let root = root.recording();
        let mut buf = Vec::new();
        root.read("proc/stat", &mut buf).unwrap();
        root.read("proc/none", &mut buf).unwrap_err();
        assert_eq!(root.paths_read(), ["proc/none", "proc/stat"]);
    }
}
