//! OOM kills in the directories below a version 1 job directory. The kernel counts a kill only in the
//! directory of the killed process, and loses the count when the directory is removed.

use kernel::cgroup::memory::oom_control;
use kernel::{NodeKind, Root};

/// Maximum number of tracked directories below a job's; kills in others are not counted.
const DIRECTORIES_MAX: usize = 512;

/// The directories below a job's, and the kills in each.
#[derive(Debug)]
pub(super) struct SubDirectories {
    /// Maximum number of tracked directories.
    directories_max: usize,
    known: Vec<Directory>,
    /// Kills in removed directories.
    gone: u64,
}

#[derive(Debug)]
struct Directory {
    path: String,
    kills: u64,
    seen: bool,
}

impl SubDirectories {
    pub(super) const fn new() -> Self {
        Self { directories_max: DIRECTORIES_MAX, known: Vec::new(), gone: 0 }
    }

    /// Limits the number of tracked directories to the job's part of its user's directories.
    pub(super) fn limit(&mut self, directories_max: usize) {
        self.directories_max = directories_max.min(DIRECTORIES_MAX);
    }

    /// Whether any directory is tracked.
    pub(super) const fn is_any(&self) -> bool {
        !self.known.is_empty()
    }

    /// Kills observed below the job's directory since its creation.
    pub(super) fn kills(&self) -> u64 {
        self.known.iter().fold(self.gone, |sum, dir| sum.saturating_add(dir.kills))
    }

    /// Reads the directories below `top`. Allocates nothing while the directories are the same.
    pub(super) fn look(&mut self, root: &Root, top: &str, path: &mut String, text: &mut Vec<u8>) {
        self.known.iter_mut().for_each(|dir| dir.seen = false);
        self.list(root, top, path);
        let mut place = 0;
        while let Some(dir) = self.known.get_mut(place) {
            if dir.seen {
                path.clear();
                path.push_str(&dir.path);
                path.push_str("/memory.oom_control");
                let read = root.read_single(path, text).ok();
                if let Some(kills) = read.and_then(|()| oom_control(text).ok().flatten()) {
                    // A recreated directory counts from 0.
                    let is_new = kills < dir.kills;
                    self.gone = self.gone.saturating_add(if is_new { dir.kills } else { 0 });
                    dir.kills = kills;
                }
                let own = std::mem::take(&mut dir.path);
                self.list(root, &own, path);
                if let Some(dir) = self.known.get_mut(place) {
                    dir.path = own;
                }
            }
            place += 1;
        }
        let gone = &mut self.gone;
        self.known.retain(|dir| {
            *gone = gone.saturating_add(if dir.seen { 0 } else { dir.kills });
            dir.seen
        });
    }

    /// Marks the subdirectories of `dir` as seen, and adds new ones; none if `dir` is gone.
    fn list(&mut self, root: &Root, dir: &str, path: &mut String) {
        if !root.may_have_subdirectories(dir) {
            return;
        }
        path.clear();
        path.push_str(dir);
        path.push('/');
        let (length, known, max) = (path.len(), &mut self.known, self.directories_max);
        let show = |entry: kernel::DirEntry<'_>| {
            if entry.kind != NodeKind::Directory {
                return;
            }
            path.truncate(length);
            path.push_str(entry.name);
            if let Some(dir) = known.iter_mut().find(|dir| dir.path == *path) {
                dir.seen = true;
            } else if known.len() < max {
                known.push(Directory { path: path.clone(), kills: 0, seen: true });
            }
        };
        root.list(dir, show).ok();
    }
}
