//! Looks at the cgroups of a task that may have joined a job.

use super::Watched;
use super::task_tree::{Account, JobNo, Looked, Tree};
use crate::Context;
use cgroups::{Hierarchies, Hierarchy, JobDir};
use kernel::process::{CgroupLine, process_cgroups};
use kernel::{OpenFile, Root, cgroup};
use rustc_hash::FxBuildHasher;
use std::fmt::Write as _;
use std::hash::BuildHasher;

/// The mounted hierarchies, and reused memory.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    hierarchies: Option<Hierarchies>,
    path: String,
    text: Vec<u8>,
}

impl Looks {
    /// Reads the mounted hierarchies again, because jobs have started or ended.
    pub(crate) fn refresh(&mut self, root: &Root) {
        self.hierarchies = Hierarchies::read(root).ok();
    }

    /// Looks at the tasks that are due, at most `looks_left`, which it reduces.
    pub(crate) fn run(
        &mut self,
        cx: &Context<'_>,
        (jobs, now_us): (&[Watched], u64),
        tree: &mut Tree,
        looks_left: &mut usize,
        account: &mut impl Account,
    ) {
        let mut passed = 0;
        while *looks_left > 0
            && let Some(tid) = tree.due(&mut passed, now_us)
        {
            *looks_left -= 1;
            let found = self.look(cx, jobs, tid);
            let seen = hash(&self.text);
            if matches!(found, Looked::In(_)) && tree.seen_outside(tid).is_some_and(|it| it != seen)
            {
                tree.has_moved(tid);
            }
            tree.looked(tid, found, now_us, account);
            if found == Looked::Outside {
                tree.set_seen(tid, seen);
            }
        }
    }

    /// A hash of a task's cgroups; `None` if it is gone.
    pub(crate) fn seen(&mut self, tid: u32, root: &Root) -> Option<u64> {
        self.path.clear();
        // Writing into a `String` cannot fail.
        write!(self.path, "proc/{tid}/cgroup").ok();
        root.read_single(&self.path, &mut self.text).ok()?;
        Some(hash(&self.text))
    }

    /// The number in a file of a cgroup; `None` if the cgroup was removed.
    pub(crate) fn number(&mut self, file: &OpenFile) -> Option<u64> {
        file.read_single(&mut self.text).ok()?;
        cgroup::single(&self.text).ok()
    }

    fn look(&mut self, cx: &Context<'_>, jobs: &[Watched], tid: u32) -> Looked {
        self.path.clear();
        // Writing into a `String` cannot fail.
        write!(self.path, "proc/{tid}/cgroup").ok();
        match cx.root.read_single(&self.path, &mut self.text) {
            Ok(()) => {}
            Err(error) if error.is_absent() => return Looked::Gone,
            Err(_) => return Looked::Outside,
        }
        let Some(hierarchies) = &self.hierarchies else { return Looked::Outside };
        for line in process_cgroups(&self.text) {
            if let Some(no) = job_of(&line, hierarchies, cx, jobs) {
                return Looked::In(no);
            }
        }
        Looked::Outside
    }
}

fn hash(text: &[u8]) -> u64 {
    FxBuildHasher.hash_one(text)
}

fn job_of(
    line: &CgroupLine<'_>,
    hierarchies: &Hierarchies,
    cx: &Context<'_>,
    jobs: &[Watched],
) -> Option<JobNo> {
    // Most tasks are in the root cgroup of most hierarchies, which belongs to no job.
    if line.path == "/" {
        return None;
    }
    let job =
        cx.jobs.iter().find(|job| job.dirs.iter().any(|dir| lies_in(line, dir, hierarchies)))?;
    jobs.iter().find(|known| known.key == job.key).map(|known| known.no)
}

/// Whether a task's cgroup is a job's directory, or below it.
fn lies_in(line: &CgroupLine<'_>, dir: &JobDir, hierarchies: &Hierarchies) -> bool {
    let mounts = hierarchies.mounts();
    let Some(mount) = mounts.iter().find(|it| it.hierarchies.contains(&dir.hierarchy)) else {
        return false;
    };
    let below = dir.path.strip_prefix(mount.path.as_str());
    is_of(line, dir.hierarchy)
        && below.filter(|below| !below.is_empty()).is_some_and(|below| {
            let rest = line.path.strip_prefix(below);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
}

fn is_of(line: &CgroupLine<'_>, hierarchy: Hierarchy) -> bool {
    match hierarchy {
        Hierarchy::Unified => line.controllers.is_empty(),
        Hierarchy::Named => line.controllers.starts_with("name="),
        Hierarchy::Cpu => line.has("cpu"),
        Hierarchy::Cpuacct => line.has("cpuacct"),
        Hierarchy::Cpuset => line.has("cpuset"),
        Hierarchy::Memory => line.has("memory"),
        Hierarchy::Blkio => line.has("blkio"),
        Hierarchy::Pids => line.has("pids"),
        Hierarchy::Freezer => line.has("freezer"),
        Hierarchy::Devices => line.has("devices"),
        Hierarchy::PerfEvent => line.has("perf_event"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_in_a_hierarchy_and_a_directory() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("proc/self")).unwrap();
        let mounts = "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n\
            cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\n\
            cgroup /dev/cpuset cgroup rw,cpuset 0 0\n\
            cgroup /sys/fs/cgroup/systemd cgroup rw,name=systemd 0 0\n";
        std::fs::write(dir.path().join("proc/self/mounts"), mounts).unwrap();
        let hierarchies = Hierarchies::read(&Root::recorded(dir.path()).unwrap()).unwrap();
        let lies = |controllers, path, hierarchy, job: &str| {
            let dir = JobDir { hierarchy, path: job.to_owned() };
            lies_in(&CgroupLine { controllers, path }, &dir, &hierarchies)
        };
        let cpuset = |path, job| lies("cpuset", path, Hierarchy::Cpuset, job);
        assert!(cpuset("/oar/a_1", "dev/cpuset/oar/a_1"));
        assert!(cpuset("/oar/a_1/step", "dev/cpuset/oar/a_1"));
        assert!(!cpuset("/oar/a_12", "dev/cpuset/oar/a_1"));
        assert!(!cpuset("/oar", "dev/cpuset/oar/a_1"));
        assert!(!cpuset("/user/oar/a_1", "dev/cpuset/oar/a_1"));
        assert!(!cpuset("/a_1", "dev/cpuset"));
        let cpu = "sys/fs/cgroup/cpu,cpuacct/oar/a_1";
        assert!(lies("cpu,cpuacct", "/oar/a_1", Hierarchy::Cpuacct, cpu));
        assert!(!lies("cpuset", "/oar/a_1", Hierarchy::Cpuacct, cpu));
        assert!(lies("", "/x/job_1", Hierarchy::Unified, "sys/fs/cgroup/unified/x/job_1"));
        assert!(lies("name=systemd", "/x", Hierarchy::Named, "sys/fs/cgroup/systemd/x"));
        assert!(!lies("memory", "/x", Hierarchy::Memory, "sys/fs/cgroup/memory/x"), "not mounted");
    }
}
