//! A disk in memory that fails on request, and shows the result of a crash: for the tests of the store and
//! for the simulation.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![expect(clippy::indexing_slicing, reason = "small and known")]

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use store::{Disk, ReadFile, WriteFile};

/// The effect of a planned fault on a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call fails without effect; a write fails after its first half.
    Once,
    /// This call fails the same way, and so does every later one: the process is dead.
    Dead,
    /// The disk is full: this call and every later one fail if they need space. Reads, removals and truncations work.
    Full,
}

#[derive(Debug, Default)]
struct Content {
    bytes: Vec<u8>,
    /// Number of synced bytes.
    synced: usize,
}

type File = Arc<Mutex<Content>>;

#[derive(Debug, Default)]
struct Names {
    now: BTreeMap<PathBuf, File>,
    /// The names as of the last sync of their directory.
    synced: BTreeMap<PathBuf, File>,
}

/// A disk in memory.
#[derive(Debug, Default)]
pub struct MemDisk {
    names: Mutex<Names>,
    plan: Arc<Plan>,
    /// A directory with failing calls.
    rejected: Mutex<Option<PathBuf>>,
}

/// The calls that fail.
#[derive(Debug, Default)]
pub struct Plan {
    calls: AtomicU64,
    fault: Mutex<Option<(u64, Fault)>>,
}

impl Plan {
    /// Plans a fault for the n-th call from now (counted from 1).
    pub fn set(&self, n: u64, fault: Fault) {
        let now = self.calls.load(Ordering::SeqCst);
        *self.fault.lock().unwrap() = Some((now + n, fault));
    }

    /// Cancels all faults.
    pub fn clear(&self) {
        *self.fault.lock().unwrap() = None;
    }

    /// Number of calls so far.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// Counts a call.
    fn meet(&self, change: bool) -> io::Result<()> {
        let call = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        let failed = match *self.fault.lock().unwrap() {
            Some((n, Fault::Once)) => call == n,
            Some((n, Fault::Dead)) => call >= n,
            Some((n, Fault::Full)) => call >= n && change,
            None => false,
        };
        let full = matches!(*self.fault.lock().unwrap(), Some((_, Fault::Full)));
        match (failed, full) {
            (false, _) => Ok(()),
            (true, true) => Err(io::ErrorKind::StorageFull.into()),
            (true, false) => Err(io::Error::other("the test's fault")),
        }
    }
}

impl MemDisk {
    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap()
    }

    /// The calls that fail.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// From now on every call for this directory and its files fails; `None`: none does.
    pub fn reject(&self, dir: Option<&str>) {
        *self.rejected.lock().unwrap() = dir.map(PathBuf::from);
    }

    /// Counts a call for a path.
    fn meet(&self, path: &Path, change: bool) -> io::Result<()> {
        self.plan.meet(change)?;
        match self.rejected.lock().unwrap().as_ref().is_some_and(|dir| path.starts_with(dir)) {
            true => Err(io::ErrorKind::PermissionDenied.into()),
            false => Ok(()),
        }
    }

    /// The disk as another process finds it after this one was killed.
    pub fn after_kill(&self) -> Self {
        let copy = |files: &BTreeMap<PathBuf, File>| -> BTreeMap<PathBuf, File> {
            let copied = files.iter().map(|(path, file)| {
                let bytes = file.lock().unwrap().bytes.clone();
                let synced = bytes.len();
                (path.clone(), Arc::new(Mutex::new(Content { bytes, synced })))
            });
            copied.collect()
        };
        let now = copy(&self.names().now);
        let synced = now.clone();
        Self { names: Mutex::new(Names { now, synced }), ..Self::default() }
    }

    /// The disk after a power cut: names as of the last sync of their directory, contents as of the
    /// last sync of the file, plus `torn` quarters of the later bytes.
    pub fn after_power_cut(&self, torn: usize) -> Self {
        let cut = Self::default();
        {
            let (names, mut other) = (self.names(), cut.names());
            for (path, file) in &names.synced {
                let content = file.lock().unwrap();
                let length = content.synced + (content.bytes.len() - content.synced) * torn / 4;
                let bytes = content.bytes[..length].to_vec();
                let file = Arc::new(Mutex::new(Content { synced: length, bytes }));
                other.now.insert(path.clone(), Arc::clone(&file));
                other.synced.insert(path.clone(), file);
            }
        }
        cut
    }

    /// The disk after a power cut that reordered writes. Each name changed since
    /// the last sync of its directory is the old or the new one. Of the bytes written to a file since its last
    /// sync a part is there, and a part of that may be zeros. `below(n)` draws a number below `n`.
    pub fn after_reordered_power_cut(&self, below: &mut dyn FnMut(usize) -> usize) -> Self {
        let cut = Self::default();
        {
            let (names, mut other) = (self.names(), cut.names());
            let paths: BTreeSet<_> = names.now.keys().chain(names.synced.keys()).collect();
            for path in paths {
                let (new, old) = (names.now.get(path), names.synced.get(path));
                let Some(file) = (if below(2) == 0 { new } else { old }) else { continue };
                let content = file.lock().unwrap();
                let length = content.synced + below(content.bytes.len() - content.synced + 1);
                let mut bytes = content.bytes[..length].to_vec();
                let zeros = content.synced + below(length - content.synced + 1);
                bytes[content.synced..zeros].fill(0);
                let file = Arc::new(Mutex::new(Content { synced: length, bytes }));
                other.now.insert(path.clone(), Arc::clone(&file));
                other.synced.insert(path.clone(), file);
            }
        }
        cut
    }

    /// The files in a directory, with their bytes.
    pub fn files(&self, dir: &str) -> BTreeMap<PathBuf, Vec<u8>> {
        let names = self.names();
        let inside = names.now.iter().filter(|(path, _)| path.parent() == Some(Path::new(dir)));
        inside.map(|(path, file)| (path.clone(), file.lock().unwrap().bytes.clone())).collect()
    }

    /// Unmounts a directory; [`Self::mount`] mounts it again.
    pub fn unmount(&self, dir: &str) -> BTreeMap<PathBuf, Vec<u8>> {
        let files = self.files(dir);
        let mut names = self.names();
        names.now.retain(|path, _| !files.contains_key(path));
        names.synced.retain(|path, _| !files.contains_key(path));
        files
    }

    /// Mounts what [`Self::unmount`] returned.
    pub fn mount(&self, files: BTreeMap<PathBuf, Vec<u8>>) {
        let mut names = self.names();
        for (path, bytes) in files {
            let file = Arc::new(Mutex::new(Content { synced: bytes.len(), bytes }));
            names.now.insert(path.clone(), Arc::clone(&file));
            names.synced.insert(path, file);
        }
    }

    /// Changes a file's bytes without the store's knowledge.
    pub fn damage(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
        let file = Arc::clone(&self.names().now[path]);
        let mut content = file.lock().unwrap();
        change(&mut content.bytes);
        content.synced = content.bytes.len();
    }

    fn file(&self, path: &Path) -> io::Result<File> {
        self.names().now.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Disk for MemDisk {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        self.meet(dir, true)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.meet(dir, false)?;
        let names = self.names();
        let inside = names.now.keys().filter(|path| path.parent() == Some(dir));
        Ok(inside.map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect())
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        self.meet(path, true)?;
        let file = File::default();
        self.names().now.insert(path.to_owned(), Arc::clone(&file));
        Ok(Box::new(Open { file, plan: Arc::clone(&self.plan) }))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        self.meet(path, false)?;
        let (file, plan) = (self.file(path)?, Arc::clone(&self.plan));
        Ok(Arc::new(Open { file, plan }))
    }

    fn truncate(&self, path: &Path, length: u64) -> io::Result<()> {
        self.meet(path, false)?;
        let file = self.file(path)?;
        let mut content = file.lock().unwrap();
        content.bytes.truncate(usize::try_from(length).unwrap());
        content.synced = content.bytes.len();
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.meet(to, true)?;
        let mut names = self.names();
        let file = names.now.remove(from).ok_or(io::ErrorKind::NotFound)?;
        names.now.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.meet(path, false)?;
        let removed = self.names().now.remove(path);
        removed.map(|_| ()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.meet(dir, true)?;
        let mut names = self.names();
        let inside = |path: &PathBuf| path.parent() == Some(dir);
        names.synced.retain(|path, _| !inside(path));
        let now: Vec<_> = names.now.iter().filter(|(path, _)| inside(path)).collect();
        let now: Vec<_> = now.into_iter().map(|(p, f)| (p.clone(), Arc::clone(f))).collect();
        names.synced.extend(now);
        Ok(())
    }

    fn lock(&self, _: &Path) -> io::Result<Box<dyn Send + Sync + std::fmt::Debug>> {
        self.plan.meet(true)?;
        Ok(Box::new(()))
    }
}

#[derive(Debug)]
struct Open {
    file: File,
    plan: Arc<Plan>,
}

impl WriteFile for Open {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let met = self.plan.meet(true);
        let written = if met.is_ok() { bytes.len() } else { bytes.len() / 2 };
        self.file.lock().unwrap().bytes.extend_from_slice(&bytes[..written]);
        met
    }

    fn sync(&mut self) -> io::Result<()> {
        self.plan.meet(true)?;
        let mut content = self.file.lock().unwrap();
        content.synced = content.bytes.len();
        Ok(())
    }
}

impl ReadFile for Open {
    fn length(&self) -> io::Result<u64> {
        Ok(self.file.lock().unwrap().bytes.len() as u64)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.plan.meet(false)?;
        let content = self.file.lock().unwrap();
        let start = usize::try_from(offset).unwrap();
        let bytes = content.bytes.get(start..).and_then(|rest| rest.get(..buf.len()));
        buf.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}
