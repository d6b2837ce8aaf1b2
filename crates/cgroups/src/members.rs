//! The processes and tasks of a job.
//!
//! They may lie in any directory below the job's: version 2 allows processes only in leaves, Slurm
//! puts them in `step_N/user/task_N`. The files are opened, read and closed each time: version 1's
//! show a kept descriptor a list up to a second old (kernel/cgroup/cgroup-v1.c,
//! `CGROUP_PIDLIST_DESTROY_DELAY`).

use crate::paths::{PathStack, join};
use crate::{Hierarchy, JobCgroup, JobDir};
use kernel::parse::ParseError;
use kernel::{NodeKind, ReadError, Root, cgroup};

/// Most directories of one job that are looked at.
pub const DIRECTORIES_MAX: usize = 4096;

/// In which hierarchy processes are looked for: version 2's list is always new and needs no sorting
/// by the kernel.
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

/// The numbers found by [`processes`] or [`tasks`], in memory that is used again: a list no longer
/// than an earlier one costs no memory.
#[derive(Debug, Default)]
pub struct Members {
    ids: Vec<u32>,
    text: Vec<u8>,
    waiting: PathStack,
    dir: String,
    file: String,
    cut: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Processes,
    Tasks,
    FirstProcess,
}

impl Members {
    /// The numbers, in the kernel's order within each directory; version 2 may list one twice.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Whether the job has more than [`DIRECTORIES_MAX`] directories, so that some were not looked
    /// at.
    pub const fn is_cut(&self) -> bool {
        self.cut
    }

    /// A process of these directories, if there is any.
    pub(crate) fn first(&mut self, root: &Root, dirs: &[JobDir]) -> Result<Option<u32>, ReadError> {
        self.find(root, dirs, What::FirstProcess)?;
        Ok(self.ids.first().copied())
    }

    /// Looks in the hierarchies until one has somebody.
    fn find(&mut self, root: &Root, dirs: &[JobDir], what: What) -> Result<(), ReadError> {
        self.ids.clear();
        self.cut = false;
        let mut failed = Ok(());
        let mut done = "";
        for hierarchy in ORDER {
            let Some(dir) = dirs.iter().find(|dir| dir.hierarchy == hierarchy) else { continue };
            // Controllers mounted together have one directory.
            if dir.path == done {
                continue;
            }
            done = &dir.path;
            match self.walk(root, &dir.path, hierarchy == Hierarchy::Unified, what) {
                Ok(()) if !self.ids.is_empty() => return Ok(()),
                Ok(()) => {}
                Err(error) => failed = failed.and(Err(error)),
            }
        }
        failed
    }

    fn walk(&mut self, root: &Root, top: &str, v2: bool, what: What) -> Result<(), ReadError> {
        let file = match what {
            What::Tasks if v2 => "cgroup.threads",
            What::Tasks => "tasks",
            What::Processes | What::FirstProcess => "cgroup.procs",
        };
        let mut failed = Ok(());
        let mut seen = 0;
        self.waiting.clear();
        self.waiting.push(top, "");
        while self.waiting.pop(&mut self.dir) {
            seen += 1;
            if seen > DIRECTORIES_MAX {
                self.cut = true;
                break;
            }
            join(&mut self.file, &self.dir, file);
            match self.read(root) {
                Ok(()) => {}
                // A step that ended since its directory was listed.
                Err(error) if error.is_absent() => {}
                Err(error) => failed = failed.and(Err(error)),
            }
            if what == What::FirstProcess && !self.ids.is_empty() {
                break;
            }
            let (waiting, dir) = (&mut self.waiting, &self.dir);
            let listed = root.list(dir, |entry| {
                if entry.kind == NodeKind::Directory {
                    waiting.push(dir, entry.name);
                }
            });
            match listed {
                Err(error) if !error.is_absent() => failed = failed.and(Err(error)),
                _ => {}
            }
        }
        failed
    }

    fn read(&mut self, root: &Root) -> Result<(), ReadError> {
        // Nothing to read in a cgroup that went, and in a threaded one: the domain above it has the
        // processes.
        if !cgroup::read(&root.open(&self.file)?, &self.file, &mut self.text)? {
            return Ok(());
        }
        cgroup::ids(&self.text, &mut self.ids).map_err(|error| self.failed(&error))
    }

    fn failed(&self, why: &ParseError) -> ReadError {
        ReadError::Failed { path: format!("/{}", self.file), why: why.to_string() }
    }
}

/// Finds every process of a job. Processes outside our pid namespace have no number and are left
/// out.
///
/// # Errors
/// A list cannot be read or makes no sense; what the others have is in `into`. A job that ended is
/// no error.
pub fn processes(root: &Root, job: &JobCgroup, into: &mut Members) -> Result<(), ReadError> {
    into.find(root, &job.dirs, What::Processes)
}

/// Finds every task (thread) of a job.
///
/// # Errors
/// As [`processes`].
pub fn tasks(root: &Root, job: &JobCgroup, into: &mut Members) -> Result<(), ReadError> {
    into.find(root, &job.dirs, What::Tasks)
}
