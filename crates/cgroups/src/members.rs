//! The processes and tasks of a job.
//!
//! They may be in any directory below the job's: version 2 permits processes only in leaves, Slurm
//! uses `step_N/user/task_N`. The files are opened, read and closed each time, because version 1
//! returns a list up to 1 s old on an open descriptor (kernel/cgroup/cgroup-v1.c,
//! `CGROUP_PIDLIST_DESTROY_DELAY`).

use crate::directories::paths::{PathStack, join};
use crate::{Hierarchy, JobCgroup, JobDir};
use kernel::parse::ParseError;
use kernel::{NodeKind, ReadError, Root, cgroup};
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of walks that ended at their limit, over the whole program.
static CUT_WALKS: AtomicU64 = AtomicU64::new(0);

/// Number of walks that did not read every directory of a job, because its user has too many.
pub fn cut_walks() -> u64 {
    CUT_WALKS.load(Ordering::Relaxed)
}

/// Hierarchies in the order in which they are searched: version 2's list is always current and the kernel
/// need not sort it.
const ORDER: [Hierarchy; 11] = [
    Hierarchy::Unified,
    Hierarchy::Cpuacct,
    Hierarchy::Cpu,
    Hierarchy::Memory,
    Hierarchy::Freezer,
    Hierarchy::Cpuset,
    Hierarchy::Pids,
    Hierarchy::Blkio,
    Hierarchy::Devices,
    Hierarchy::PerfEvent,
    Hierarchy::Named,
];

/// The IDs found by [`processes`] or [`tasks`], in reused memory: a list no longer than an earlier one
/// allocates nothing.
#[derive(Debug, Default)]
pub struct Members {
    ids: Vec<u32>,
    text: Vec<u8>,
    waiting: PathStack,
    dir: String,
    file: String,
    /// Number of directories read.
    looked: usize,
    cut: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum DirectoryClass {
    Processes,
    Tasks,
    FirstProcess,
}

impl Members {
    /// The IDs, in the kernel's order within each directory; version 2 may list an ID twice.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Number of directories read.
    pub const fn looked(&self) -> usize {
        self.looked
    }

    /// Whether the job has more directories than the limit ([`JobCgroup::directories_max`]).
    pub const fn is_cut(&self) -> bool {
        self.cut
    }

    /// One process of these directories, if any.
    pub(crate) fn first(
        &mut self,
        root: &Root,
        dirs: &[JobDir],
        directories_max: usize,
    ) -> Result<Option<u32>, ReadError> {
        self.find(root, (dirs, directories_max), DirectoryClass::FirstProcess)?;
        Ok(self.ids.first().copied())
    }

    /// Searches the hierarchies until one has a member.
    fn find(
        &mut self,
        root: &Root,
        (dirs, directories_max): (&[JobDir], usize),
        what: DirectoryClass,
    ) -> Result<(), ReadError> {
        self.ids.clear();
        (self.looked, self.cut) = (0, false);
        let mut failed = Ok(());
        let mut done = "";
        for hierarchy in ORDER {
            let Some(dir) = dirs.iter().find(|dir| dir.hierarchy == hierarchy) else { continue };
            // Controllers mounted together have one directory.
            if dir.path == done {
                continue;
            }
            done = &dir.path;
            match self.walk(root, (dir, directories_max), what) {
                Ok(()) if !self.ids.is_empty() || self.cut => return Ok(()),
                Ok(()) => {}
                Err(error) => failed = failed.and(Err(error)),
            }
        }
        failed
    }

    fn walk(
        &mut self,
        root: &Root,
        (top, directories_max): (&JobDir, usize),
        what: DirectoryClass,
    ) -> Result<(), ReadError> {
        let v2 = top.hierarchy == Hierarchy::Unified;
        let file = match what {
            DirectoryClass::Tasks if v2 => "cgroup.threads",
            DirectoryClass::Tasks => "tasks",
            DirectoryClass::Processes | DirectoryClass::FirstProcess => "cgroup.procs",
        };
        let mut failed = Ok(());
        self.waiting.clear();
        self.waiting.push(&top.path, "");
        while self.waiting.pop(&mut self.dir) {
            if self.looked >= directories_max {
                self.cut = true;
                CUT_WALKS.fetch_add(1, Ordering::Relaxed);
                break;
            }
            self.looked += 1;
            join(&mut self.file, &self.dir, file);
            match self.read(root) {
                Ok(()) => {}
                // The step ended after its directory was listed.
                Err(error) if error.is_absent() => {}
                Err(error) => failed = failed.and(Err(error)),
            }
            if what == DirectoryClass::FirstProcess && !self.ids.is_empty() {
                break;
            }
            failed = failed.and(self.list_below(root));
        }
        failed
    }

    /// Queues the directories below the current one.
    fn list_below(&mut self, root: &Root) -> Result<(), ReadError> {
        let (waiting, dir) = (&mut self.waiting, &self.dir);
        if !root.may_have_subdirectories(dir) {
            return Ok(());
        }
        let listed = root.list(dir, |entry| {
            if entry.kind == NodeKind::Directory {
                waiting.push(dir, entry.name);
            }
        });
        listed.or_else(|error| if error.is_absent() { Ok(()) } else { Err(error) })
    }

    fn read(&mut self, root: &Root) -> Result<(), ReadError> {
        // A removed cgroup and a threaded one have no processes: the domain above a threaded one has
        // them.
        if !cgroup::read_list(&root.open(&self.file)?, &self.file, &mut self.text)? {
            return Ok(());
        }
        cgroup::ids(&self.text, &mut self.ids).map_err(|error| self.failed(&error))
    }

    fn failed(&self, why: &ParseError) -> ReadError {
        ReadError::Failed { path: format!("/{}", self.file), why: why.to_string() }
    }
}

/// Finds every process of a job. Processes outside of our PID namespace have no ID and are left
/// out.
///
/// # Errors
/// A list is not readable or invalid; `into` has the IDs of the other lists. A job that ended is not
/// an error.
pub fn processes(root: &Root, job: &JobCgroup, into: &mut Members) -> Result<(), ReadError> {
    into.find(root, (&job.dirs, job.directories_max), DirectoryClass::Processes)
}

/// Shows a directory of a job and those below it; false if there are more than `directories_max`.
///
/// # Errors
/// A directory is not readable. A removed one is not an error.
pub fn directories(
    root: &Root,
    (top, directories_max): (&str, usize),
    into: &mut Members,
    mut show: impl FnMut(&str),
) -> Result<bool, ReadError> {
    let mut left = directories_max;
    into.waiting.clear();
    into.waiting.push(top, "");
    while into.waiting.pop(&mut into.dir) {
        if left == 0 {
            return Ok(false);
        }
        left -= 1;
        show(&into.dir);
        into.list_below(root)?;
    }
    Ok(true)
}

/// Finds every task (thread) of a job.
///
/// # Errors
/// As [`processes`].
pub fn tasks(root: &Root, job: &JobCgroup, into: &mut Members) -> Result<(), ReadError> {
    into.find(root, (&job.dirs, job.directories_max), DirectoryClass::Tasks)
}
