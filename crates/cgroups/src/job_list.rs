//! The jobs on this node, by their cgroups.

use model::{ClusterId, JobKey, Timestamp};
use std::collections::BTreeMap;

/// Maximum number of directories over all jobs of one user that a source reads per round. A user can create
/// any number of directories in their own cgroups, and each costs the agent three system calls.
pub const USER_DIRECTORIES_MAX: usize = 1024;

/// Minimum per job: a scheduler limits the number of jobs on a node, and their steps have up to 8 directories
/// each. A user can start up to 512 jobs with `jobmeter run`.
const JOB_DIRECTORIES_MIN: usize = 32;
const LOCAL_JOB_DIRECTORIES_MIN: usize = 2;

/// A cgroup hierarchy: one for each controller in version 1, one for all in version 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hierarchy {
    /// Version 2, alone or beside version 1.
    Unified,
    /// Version 1 `cpu`.
    Cpu,
    /// Version 1 `cpuacct`.
    Cpuacct,
    /// Version 1 `cpuset`.
    Cpuset,
    /// Version 1 `memory`.
    Memory,
    /// Version 1 `blkio`.
    Blkio,
    /// Version 1 `pids`.
    Pids,
    /// Version 1 `freezer`.
    Freezer,
    /// Version 1 `devices`.
    Devices,
    /// Version 1 `perf_event`.
    PerfEvent,
    /// Version 1 without a controller: systemd's own tree.
    Named,
}

/// A directory of a job in one hierarchy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobDir {
    /// The hierarchy.
    pub hierarchy: Hierarchy,
    /// Path under the machine's root, without a leading `/`: `sys/fs/cgroup/cpuset/oar/alice_12`.
    pub path: String,
}

/// A job with a cgroup on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobCgroup {
    /// The job.
    pub key: JobKey,
    /// Its ID as written by the scheduler.
    pub display_id: Box<str>,
    /// Login name, if the layout contains it (OAR 2).
    pub user: Option<Box<str>>,
    /// User ID, if the layout contains it (Slurm, OAR 3).
    pub uid: Option<u32>,
    /// Its directories, sorted, at most one per hierarchy; empty once the job has ended and they are
    /// removed.
    pub dirs: Vec<JobDir>,
    /// Creation time of its first directory.
    pub created: Timestamp,
    /// Whether it has or had a process. Before that, it gives no samples.
    pub populated: bool,
    /// Maximum number of its directories that a source reads: its part of [`USER_DIRECTORIES_MAX`].
    pub directories_max: usize,
}

impl JobCgroup {
    /// The job's directory in a hierarchy.
    pub fn dir(&self, hierarchy: Hierarchy) -> Option<&str> {
        self.dirs.iter().find(|dir| dir.hierarchy == hierarchy).map(|dir| dir.path.as_str())
    }
}

/// Divides the limit of directories among the jobs of each user. A job of an unknown user has a limit of
/// its own.
pub(crate) fn divide_directories(jobs: &mut [&mut JobCgroup]) {
    let mut counts: BTreeMap<Owner, usize> = BTreeMap::new();
    for job in &*jobs {
        *counts.entry(owner(job)).or_default() += 1;
    }
    for job in jobs {
        let is_local = job.key.cluster.as_str() == ClusterId::LOCAL;
        let least = if is_local { LOCAL_JOB_DIRECTORIES_MIN } else { JOB_DIRECTORIES_MIN };
        let count =
            if job.uid.is_none() && job.user.is_none() { None } else { counts.get(&owner(job)) };
        job.directories_max = (USER_DIRECTORIES_MAX / count.copied().unwrap_or(1)).max(least);
    }
}

/// User ID and name of a job's user.
type Owner = (Option<u32>, Option<Box<str>>);

fn owner(job: &JobCgroup) -> Owner {
    (job.uid, job.user.clone())
}

/// A cgroup that is not a job: a systemd service or session, reported as a part of the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitCgroup {
    /// `ssh.service`, `session-2.scope`.
    pub name: Box<str>,
    /// Its directories, like those of a job.
    pub dirs: Vec<JobDir>,
    /// Creation time of its first directory.
    pub created: Timestamp,
}

/// The jobs on this node now.
#[derive(Clone, Debug, Default)]
pub struct Jobs {
    /// Sorted by key.
    pub(crate) jobs: Vec<JobCgroup>,
    /// Sorted by name; empty if a scheduler has jobs on this node.
    pub(crate) units: Vec<UnitCgroup>,
    /// Increases whenever a job or unit is added, removed or changed.
    pub(crate) generation: u64,
}

impl Jobs {
    /// Builds a list of jobs, for tests and for `jobmeter run`.
    pub fn new(mut jobs: Vec<JobCgroup>, mut units: Vec<UnitCgroup>) -> Self {
        jobs.sort_by(|a, b| a.key.cmp(&b.key));
        divide_directories(&mut jobs.iter_mut().collect::<Vec<_>>());
        units.sort_by(|a, b| a.name.cmp(&b.name));
        Self { jobs, units, generation: 1 }
    }

    /// The same jobs, as a later state than `earlier`.
    #[must_use]
    pub const fn after(mut self, earlier: &Self) -> Self {
        self.generation = earlier.generation + 1;
        self
    }

    /// All jobs, sorted by key.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &JobCgroup> {
        self.jobs.iter()
    }

    /// The job with this key.
    pub fn get(&self, key: &JobKey) -> Option<&JobCgroup> {
        let place = self.jobs.binary_search_by(|job| job.key.cmp(key)).ok()?;
        self.jobs.get(place)
    }

    /// All units, sorted by name.
    pub fn units(&self) -> &[UnitCgroup] {
        &self.units
    }

    /// Changes whenever a job or unit is added, removed or changed.
    pub const fn generation(&self) -> u64 {
        self.generation
    }
}
