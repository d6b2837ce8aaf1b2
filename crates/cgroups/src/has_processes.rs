//! Whether a job has a process now, and whether it ever had one.
//!
//! Version 2 has `populated` in `cgroup.events` and sends an event for each change. Version 1 has no such
//! file, so it is polled, at a cost that does not grow with the job: `pids.current` if the job has a
//! directory in the `pids` hierarchy, else whether one known process of the job is still alive. Only when
//! that process has ended are the processes listed again.

use crate::directories::paths::join;
use crate::members::Members;
use crate::{Hierarchy, JobCgroup, JobDir};
use kernel::{Root, cgroup};
use std::fmt::Write as _;

/// Reused memory for reading.
#[derive(Debug, Default)]
pub(crate) struct Presence {
    members: Members,
    /// Whether the last answer came from `populated 1`, whose change is an event.
    is_by_event: bool,
    path: String,
    text: Vec<u8>,
}

impl Presence {
    /// Whether the directories of a job, or those below them, have a process now. An unreadable file
    /// counts as no process: the job is about to end.
    pub(crate) fn occupied(
        &mut self,
        root: &Root,
        job: &JobCgroup,
        witness: &mut Option<u32>,
    ) -> bool {
        let dirs = &job.dirs;
        self.is_by_event = false;
        if let Some(unified) = dir(dirs, Hierarchy::Unified) {
            let populated = self.read(root, unified, "cgroup.events").and_then(cgroup::populated);
            // On a hybrid machine the processes may be only in version 1's directories.
            let only = dirs.len() == 1;
            match populated {
                Some(true) => {
                    self.is_by_event = true;
                    return true;
                }
                Some(false) if only => return false,
                _ => {}
            }
        }
        if let Some(pids) = dir(dirs, Hierarchy::Pids)
            && self.read(root, pids, "pids.current").and_then(cgroup::single).is_some_and(|n| n > 0)
        {
            return true;
        }
        if let Some(pid) = *witness {
            self.path.clear();
            // Writing into a `String` cannot fail.
            write!(self.path, "proc/{pid}").ok();
            if root.stat(&self.path).is_ok() {
                return true;
            }
        }
        *witness = self.members.first(root, dirs, job.directories_max).ok().flatten();
        witness.is_some()
    }

    /// Whether the kernel reports when the last answer of [`Self::occupied`] changes.
    pub(crate) const fn is_by_event(&self) -> bool {
        self.is_by_event
    }

    /// Whether the kernel has counted processor time for the job, so that it had a process.
    pub(crate) fn ever_ran(&mut self, root: &Root, dirs: &[JobDir]) -> bool {
        let v1 = dir(dirs, Hierarchy::Cpuacct)
            .and_then(|cpuacct| self.read(root, cpuacct, "cpuacct.usage").and_then(cgroup::single));
        let v2 = || {
            let unified = dir(dirs, Hierarchy::Unified)?;
            let stat = self.read(root, unified, "cpu.stat").and_then(cgroup::cpu::cpu_stat)?;
            Some(stat.usage_us)
        };
        v1.or_else(v2).is_some_and(|used| used > 0)
    }

    fn read(&mut self, root: &Root, dir: &str, file: &str) -> Text<'_> {
        join(&mut self.path, dir, file);
        Text(root.read_single(&self.path, &mut self.text).ok().map(|()| self.text.as_slice()))
    }
}

/// The text of a file, if it was readable.
struct Text<'a>(Option<&'a [u8]>);

impl<'a> Text<'a> {
    fn and_then<T, E>(self, parse: impl Fn(&'a [u8]) -> Result<T, E>) -> Option<T> {
        self.0.and_then(|text| parse(text).ok())
    }
}

fn dir(dirs: &[JobDir], hierarchy: Hierarchy) -> Option<&str> {
    dirs.iter().find(|dir| dir.hierarchy == hierarchy).map(|dir| dir.path.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{ClusterId, JobId, JobKey, Timestamp};

    struct Tree {
        dir: tempfile::TempDir,
        root: Root,
    }

    impl Tree {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let root = Root::recorded(dir.path()).unwrap();
            Self { dir, root }
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
    }

    fn of(all: &[(Hierarchy, &str)]) -> JobCgroup {
        let dir = |(hierarchy, path): &(Hierarchy, &str)| JobDir {
            hierarchy: *hierarchy,
            path: (*path).to_owned(),
        };
        JobCgroup {
            key: JobKey { cluster: ClusterId::local(), id: JobId::new(1).unwrap() },
            display_id: "1".into(),
            user: None,
            uid: None,
            dirs: all.iter().map(dir).collect(),
            created: Timestamp(0),
            populated: true,
            directories_max: crate::USER_DIRECTORIES_MAX,
        }
    }

    #[test]
    fn version_2_has_a_populated_file() {
        let tree = Tree::new();
        let (mut presence, mut witness) = (Presence::default(), None);
        let job = of(&[(Hierarchy::Unified, "u/job_1")]);
        tree.write("u/job_1/cgroup.events", "populated 1\nfrozen 0\n");
        assert!(presence.occupied(&tree.root, &job, &mut witness));
        tree.write("u/job_1/cgroup.events", "populated 0\nfrozen 0\n");
        // The kernel's `populated` takes precedence over an outdated list.
        tree.write("u/job_1/cgroup.procs", "12\n");
        assert!(!presence.occupied(&tree.root, &job, &mut witness));
        assert!(!presence.ever_ran(&tree.root, &job.dirs));
        tree.write("u/job_1/cpu.stat", "usage_usec 5\nuser_usec 5\nsystem_usec 0\n");
        assert!(presence.ever_ran(&tree.root, &job.dirs));
    }

    #[test]
    fn version_1_by_a_known_process() {
        let tree = Tree::new();
        let (mut presence, mut witness) = (Presence::default(), None);
        let job = of(&[(Hierarchy::Cpuacct, "c/job_1"), (Hierarchy::Memory, "m/job_1")]);
        tree.write("c/job_1/cgroup.procs", "");
        tree.write("m/job_1/cgroup.procs", "");
        assert!(!presence.occupied(&tree.root, &job, &mut witness));
        tree.write("c/job_1/step_0/task_0/cgroup.procs", "12\n13\n");
        assert!(presence.occupied(&tree.root, &job, &mut witness));
        assert_eq!(witness, Some(12));
        tree.write("c/job_1/step_0/task_0/cgroup.procs", "");
        tree.write("proc/12/stat", "");
        assert!(presence.occupied(&tree.root, &job, &mut witness), "the known process is alive");
        std::fs::remove_dir_all(tree.dir.path().join("proc/12")).unwrap();
        tree.write("m/job_1/cgroup.procs", "14\n");
        assert!(presence.occupied(&tree.root, &job, &mut witness));
        assert_eq!(witness, Some(14), "found in another hierarchy");
        tree.write("m/job_1/cgroup.procs", "");
        assert!(!presence.occupied(&tree.root, &job, &mut witness));
        tree.write("c/job_1/cpuacct.usage", "77\n");
        assert!(presence.ever_ran(&tree.root, &job.dirs));
    }

    #[test]
    fn version_1_by_pids_current() {
        let tree = Tree::new();
        let (mut presence, mut witness) = (Presence::default(), None);
        let job = of(&[(Hierarchy::Pids, "p/job_1")]);
        tree.write("p/job_1/pids.current", "3\n");
        assert!(presence.occupied(&tree.root, &job, &mut witness));
        tree.write("p/job_1/pids.current", "0\n");
        assert!(!presence.occupied(&tree.root, &job, &mut witness));
        assert!(!presence.occupied(&tree.root, &of(&[]), &mut witness));
    }

    #[test]
    fn on_a_hybrid_machine_both_versions_count() {
        let tree = Tree::new();
        let (mut presence, mut witness) = (Presence::default(), None);
        let job = of(&[(Hierarchy::Unified, "u/job_1"), (Hierarchy::Cpuset, "s/job_1")]);
        tree.write("u/job_1/cgroup.events", "populated 0\n");
        tree.write("s/job_1/cgroup.procs", "9\n");
        assert!(presence.occupied(&tree.root, &job, &mut witness));
    }
}
