//! The cgroup of a `jobmeter run` job: `jobmeter/job_N@SERVER` at the root of each hierarchy, with the identity
//! of the server that assigned the ID. `run_N@SERVER` if no agent reports the job.

use anyhow::{Context, bail};
use cgroups::{Hierarchies, Hierarchy, JobDir};
use kernel::process::{State, process_stat};
use kernel::{Root, pmu};
use model::Timestamp;
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Version 1 hierarchies that count usage, or that can limit the job. `freezer` and `devices` do neither.
const COUNTING: [Hierarchy; 7] = [
    Hierarchy::Unified,
    Hierarchy::Cpu,
    Hierarchy::Cpuacct,
    Hierarchy::Memory,
    Hierarchy::Blkio,
    Hierarchy::Pids,
    Hierarchy::PerfEvent,
];

/// Version 2 controllers for a job's cgroup, as far as the kernel offers them.
const CONTROLLERS: [&str; 5] = ["cpu", "memory", "io", "pids", "cpuset"];

/// The file with the list of online processors.
const ONLINE: &str = "sys/devices/system/cpu/online";

/// Minimum age of a job directory without processes that counts as left over.
const LEFT_BEHIND: Duration = Duration::from_secs(60);

/// Time for an agent's last reading of the job before its cgroup is removed. It is three times the delay until
/// an agent detects an empty version 1 cgroup.
const AGENT_READS: Duration = Duration::from_millis(300);

/// Limits that the user requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Limits {
    /// Processor list such as `0-3,8`.
    pub(crate) cpus: Option<String>,
    /// Bytes.
    pub(crate) memory_bytes: Option<u64>,
}

impl Limits {
    /// Whether a limit is set.
    pub(crate) const fn is_some(&self) -> bool {
        self.cpus.is_some() || self.memory_bytes.is_some()
    }

    /// Rejects a list with processors that this machine does not have.
    pub(crate) fn check(&self, root: &Root) -> anyhow::Result<()> {
        let Some(list) = &self.cpus else { return Ok(()) };
        let mut online = Vec::new();
        let online = root.read(ONLINE, &mut online).map(|()| String::from_utf8_lossy(&online));
        let online = online.as_deref().unwrap_or_default().trim();
        let has = if online.is_empty() {
            String::new()
        } else {
            format!(" (this machine has CPUs {online})")
        };
        let Some(wanted) = pmu::cpus(list).filter(|wanted| !wanted.is_empty()) else {
            bail!("--cpus {list}: write a list of CPUs such as 0-3,8{has}");
        };
        let known = pmu::cpus(online).unwrap_or_default();
        match wanted.iter().find(|cpu| !known.is_empty() && !known.contains(cpu)) {
            Some(cpu) => bail!("--cpus {list}: there is no CPU {cpu}{has}"),
            None => Ok(()),
        }
    }
}

/// The directories of a job.
#[derive(Debug, Default)]
pub(crate) struct JobDirs {
    /// One directory per usable hierarchy.
    pub(crate) dirs: Vec<JobDir>,
    /// Values that cannot be measured, with reasons.
    pub(crate) left_out: Vec<String>,
    made: Vec<PathBuf>,
}

impl JobDirs {
    /// Creates the directories of a job's name, such as `job_7@3f2a91bc0d1e`.
    ///
    /// # Errors
    /// A requested limit cannot be set: a job must not run without its limit.
    pub(crate) fn make(root: &Root, name: &str, limits: &Limits) -> anyhow::Result<Self> {
        let mut place = Self::default();
        let hierarchies = match Hierarchies::read(root) {
            Ok(hierarchies) => hierarchies,
            Err(error) => {
                place.left_out.push(format!("the job's cgroup: {error}"));
                Hierarchies::default()
            }
        };
        // Several hierarchies with the same error are reported together.
        let mut rejected: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for mount in hierarchies.mounts() {
            let cpuset = limits.cpus.is_some() && mount.hierarchies.contains(&Hierarchy::Cpuset);
            if !cpuset && !mount.hierarchies.iter().any(|h| COUNTING.contains(h)) {
                continue;
            }
            let dir = root.path().join(&mount.path).join("jobmeter").join(name);
            match place.make_dir(
                &root.path().join(&mount.path),
                &dir,
                mount.hierarchies.contains(&Hierarchy::Cpuset),
            ) {
                Ok(()) => {
                    let path = format!("{}/jobmeter/{name}", mount.path);
                    let dirs = mount.hierarchies.iter();
                    place.dirs.extend(dirs.map(|h| JobDir { hierarchy: *h, path: path.clone() }));
                }
                Err(error) => rejected.entry(reason(&error)).or_default().push(&mount.path),
            }
        }
        for (reason, mounts) in rejected {
            place.left_out.push(format!("the job's cgroup in /{}: {reason}", mounts.join(", /")));
        }
        place.dirs.sort();
        place.limit(root, limits)?;
        Ok(place)
    }

    /// Whether the job has no cgroup.
    pub(crate) const fn is_empty(&self) -> bool {
        self.dirs.is_empty()
    }

    /// Creation time of its first directory, as agents report it: the start of its counters.
    pub(crate) fn created(&self, root: &Root) -> Option<Timestamp> {
        let changed = self.dirs.iter().filter_map(|dir| root.stat(&dir.path).ok());
        changed.map(|stat| Timestamp(stat.changed_us)).min()
    }

    /// The files that a process writes to in order to join, in this order. The last one is that of the hierarchy that
    /// counts processor time: what the process uses to join the others is not the command's.
    pub(crate) fn join_files(&self, root: &Root) -> Vec<PathBuf> {
        let counting = [Hierarchy::Cpuacct, Hierarchy::Unified];
        let last = counting.into_iter().find_map(|hierarchy| self.dir(hierarchy));
        let dirs = || self.dirs.iter().map(|dir| dir.path.as_str());
        let mut dirs: Vec<_> = dirs().filter(|dir| Some(*dir) != last).chain(last).collect();
        dirs.dedup();
        dirs.into_iter().map(|dir| root.path().join(dir).join("cgroup.procs")).collect()
    }

    /// Number of processes in the job's directories and below them.
    pub(crate) fn processes(&self, root: &Root) -> usize {
        let count = |dir: &JobDir| count_processes(root, &root.path().join(&dir.path));
        self.dirs.iter().map(count).max().unwrap_or(0)
    }

    fn make_dir(&mut self, top: &Path, dir: &Path, cpuset: bool) -> std::io::Result<()> {
        let parent = top.join("jobmeter");
        match fs::create_dir(&parent) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        enable_controllers(top);
        enable_controllers(&parent);
        if cpuset {
            inherit_cpuset(top, &parent)?;
        }
        sweep(&parent);
        fs::create_dir(dir)?;
        self.made.push(dir.to_owned());
        if cpuset {
            inherit_cpuset(&parent, dir)?;
        }
        // Joining must be possible; otherwise the directory counts nothing.
        fs::OpenOptions::new().write(true).open(dir.join("cgroup.procs")).map(drop)
    }

    fn dir(&self, hierarchy: Hierarchy) -> Option<&str> {
        self.dirs.iter().find(|dir| dir.hierarchy == hierarchy).map(|dir| dir.path.as_str())
    }

    fn limit(&self, root: &Root, limits: &Limits) -> anyhow::Result<()> {
        if let Some(bytes) = limits.memory_bytes {
            let file = match (self.dir(Hierarchy::Memory), self.dir(Hierarchy::Unified)) {
                (Some(dir), _) => root.path().join(dir).join("memory.limit_in_bytes"),
                (None, Some(dir)) => root.path().join(dir).join("memory.max"),
                (None, None) => {
                    bail!(
                        "--memory needs a memory cgroup, but none can be created: {}",
                        self.why_none()
                    )
                }
            };
            fs::write(&file, bytes.to_string())
                .with_context(|| format!("--memory: {}", file.display()))?;
        }
        if let Some(cpus) = &limits.cpus {
            let file = match (self.dir(Hierarchy::Cpuset), self.dir(Hierarchy::Unified)) {
                (Some(dir), _) | (None, Some(dir)) => root.path().join(dir).join("cpuset.cpus"),
                (None, None) => {
                    bail!(
                        "--cpus needs a cpuset cgroup, but none can be created: {}",
                        self.why_none()
                    )
                }
            };
            fs::write(&file, cpus).with_context(|| format!("--cpus {cpus}: {}", file.display()))?;
        }
        Ok(())
    }

    fn why_none(&self) -> String {
        if self.left_out.is_empty() {
            return "this machine has none".to_owned();
        }
        self.left_out.join("; ")
    }

    /// Starts a detached process that removes the directories after an agent's last reading. Returns false if
    /// that process cannot be started.
    pub(crate) fn remove_later(&mut self) -> bool {
        let started = self.made.is_empty()
            || crate::measure::exec::remove_later(AGENT_READS, &self.made).is_ok();
        if started {
            self.made.clear();
        }
        started
    }

    /// Removes the directories; those with a process remain.
    pub(crate) fn remove(&mut self) {
        self.made.retain(|dir| fs::remove_dir(dir).is_err());
    }
}

/// Removes the directories if an error occurs before the command runs.
impl Drop for JobDirs {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Removes directories of killed runs: job directories without a process that are older than 1 min. A younger
/// one may be waiting for its first process.
fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let prefixes = ["job_", "run_"];
        let is_job = |name: &str| prefixes.iter().any(|prefix| name.starts_with(prefix));
        let is_job = entry.file_name().to_str().is_some_and(is_job);
        let changed = entry.metadata().and_then(|metadata| metadata.modified());
        let old = changed.is_ok_and(|at| at.elapsed().is_ok_and(|age| age >= LEFT_BEHIND));
        if is_job && old {
            // A directory with a process is busy and remains.
            fs::remove_dir(entry.path()).unwrap_or_default();
        }
    }
}

/// Number of processes in a directory and below it, without zombies.
fn count_processes(root: &Root, dir: &Path) -> usize {
    let own = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    let own = own.lines().filter(|pid| has_not_ended(root, pid)).count();
    let below = fs::read_dir(dir).into_iter().flatten().flatten();
    let dirs = below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    own + dirs.map(|entry| count_processes(root, &entry.path())).sum::<usize>()
}

fn has_not_ended(root: &Root, pid: &str) -> bool {
    let mut stat = Vec::new();
    match root.read(&format!("proc/{pid}/stat"), &mut stat) {
        Ok(()) => process_stat(&stat)
            .map_or(true, |stat| !matches!(stat.state, State::Zombie | State::Dead)),
        // PID 0: the process is in another PID namespace and is not visible here.
        Err(error) => pid == "0" || !error.is_absent(),
    }
}

/// Enables controllers for the children of a version 2 directory, each separately. A missing controller, or one
/// that another manager controls, must not prevent the others.
fn enable_controllers(dir: &Path) {
    let file = dir.join("cgroup.subtree_control");
    let have = fs::read_to_string(dir.join("cgroup.controllers")).unwrap_or_default();
    for controller in have.split_whitespace().filter(|name| CONTROLLERS.contains(name)) {
        if let Err(error) = fs::write(&file, format!("+{controller}")) {
            log::debug!("{}: +{controller}: {error}", file.display());
        }
    }
}

/// A version 1 cpuset accepts no process before its processors and memory nodes are set.
fn inherit_cpuset(from: &Path, to: &Path) -> std::io::Result<()> {
    for name in ["cpuset.cpus", "cpuset.mems"] {
        let own = to.join(name);
        if own.is_file() && fs::read_to_string(&own)?.trim().is_empty() {
            fs::write(own, fs::read_to_string(from.join(name))?)?;
        }
    }
    Ok(())
}

fn reason(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::PermissionDenied => "permission denied; run as root".to_owned(),
        ErrorKind::AlreadyExists => "a job of another server with this ID is running \
                                     here"
            .to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(mounts: &str, dirs: &[&str]) -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("proc/self")).unwrap();
        fs::write(dir.path().join("proc/self/mounts"), mounts).unwrap();
        for path in dirs {
            fs::create_dir_all(dir.path().join(path)).unwrap();
        }
        let root = Root::recorded(dir.path()).unwrap();
        (dir, root)
    }

    #[test]
    fn a_machine_without_cgroups_is_reported() {
        let (_dir, root) = machine("proc /proc proc rw 0 0\n", &[]);
        let place = JobDirs::make(&root, "job_1", &Limits::default()).unwrap();
        assert!(place.is_empty());
        let limits = Limits { memory_bytes: Some(1 << 20), ..Limits::default() };
        let error = JobDirs::make(&root, "job_1", &limits).unwrap_err().to_string();
        assert!(error.contains("--memory"), "{error}");
    }

    #[test]
    fn the_hierarchy_that_counts_processor_time_is_joined_last() {
        let (_dir, root) = machine("", &[]);
        let joined = |dirs: &[(Hierarchy, &str)]| -> Vec<String> {
            let dir = |(hierarchy, path): &(Hierarchy, &str)| JobDir {
                hierarchy: *hierarchy,
                path: (*path).to_owned(),
            };
            let mut place = JobDirs::default();
            place.dirs = dirs.iter().map(dir).collect();
            let name = |file: &PathBuf| {
                let dir = file.parent().and_then(Path::file_name).unwrap();
                dir.to_str().unwrap().to_owned()
            };
            place.join_files(&root).iter().map(name).collect()
        };
        use Hierarchy::{Cpu, Cpuacct, Memory, Unified};
        let mixed = [(Unified, "unified"), (Cpu, "cpu"), (Cpuacct, "cpu"), (Memory, "memory")];
        assert_eq!(joined(&mixed), ["unified", "memory", "cpu"]);
        assert_eq!(joined(&[(Unified, "job")]), ["job"]);
    }

    #[test]
    fn processors_that_the_machine_lacks_are_rejected() {
        let (dir, root) = machine("", &["sys/devices/system/cpu"]);
        fs::write(dir.path().join(ONLINE), "0-1,4\n").unwrap();
        let check = |list: &str| {
            let limits = Limits { cpus: Some(list.to_owned()), memory_bytes: None };
            limits.check(&root).map_err(|error| error.to_string())
        };
        assert_eq!((check("0,4"), check("0-1")), (Ok(()), Ok(())));
        let has = "(this machine has CPUs 0-1,4)";
        assert_eq!(check("0-3"), Err(format!("--cpus 0-3: there is no CPU 2 {has}")));
        for list in ["3-0", "a", ",", "0-99999999"] {
            let want = format!("--cpus {list}: write a list of CPUs such as 0-3,8 {has}");
            assert_eq!(check(list), Err(want));
        }
    }

    #[test]
    fn processes_that_have_ended_are_not_counted() {
        let (dir, root) = machine("", &["job/below", "proc/7", "proc/8"]);
        for (pid, state) in [(7, 'Z'), (8, 'S')] {
            let line = format!(
                "{pid} (sh) {state} 1 7 7 0 -1 4194304 1 0 0 0 5 10 0 0 20 0 1 0 5 1000 100 18446744073709551615 \
                 1 1 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
            );
            fs::write(dir.path().join(format!("proc/{pid}/stat")), line).unwrap();
        }
        fs::write(dir.path().join("job/cgroup.procs"), "7\n8\n9\n").unwrap();
        fs::write(dir.path().join("job/below/cgroup.procs"), "7\n0\n").unwrap();
        assert_eq!(count_processes(&root, &dir.path().join("job")), 2);
    }

    #[test]
    fn a_hierarchy_that_takes_no_process_is_left_out() {
        // A plain directory has no `cgroup.procs`, like a directory outside of the kernel's control.
        let mounts = "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n";
        let (dir, root) = machine(mounts, &["sys/fs/cgroup/memory"]);
        let mut place = JobDirs::make(&root, "job_1", &Limits::default()).unwrap();
        assert!(place.is_empty());
        assert!(place.left_out[0].contains("/sys/fs/cgroup/memory"), "{:?}", place.left_out);
        place.remove();
        assert!(!dir.path().join("sys/fs/cgroup/memory/jobmeter/job_1").is_dir());
    }
}
