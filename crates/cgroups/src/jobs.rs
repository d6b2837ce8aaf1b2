//! The jobs on this node, as their cgroups show.

use model::{ClusterId, JobKey, Timestamp};
use std::collections::BTreeMap;

/// Most directories of all jobs of one user that a source looks at in a round. A user may make any number of them where a
/// cgroup is the user's, and each costs the agent three system calls.
pub const USER_DIRECTORIES_MAX: usize = 1024;

/// What a job has of them at least: a scheduler lets only so many jobs onto a node, and its steps have up to 8 directories
/// each. A user starts up to 512 jobs with `jobmeter run`.
const JOB_DIRECTORIES_MIN: usize = 32;
const LOCAL_JOB_DIRECTORIES_MIN: usize = 2;

/// A tree of cgroups: one for each controller in version 1, one for all in version 2.
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
    /// In which tree.
    pub hierarchy: Hierarchy,
    /// Where, under the machine's root and without a leading `/`:
    /// `sys/fs/cgroup/cpuset/oar/alice_12`.
    pub path: String,
}

/// A job that has a cgroup on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobCgroup {
    /// Which job.
    pub key: JobKey,
    /// Its number as the scheduler spells it.
    pub spelling: Box<str>,
    /// Login name, where the layout tells (OAR 2).
    pub user: Option<Box<str>>,
    /// The user's number, where the layout tells (Slurm, OAR 3).
    pub uid: Option<u32>,
    /// Its directories, sorted, at most one for each hierarchy; none once it has ended and they are
    /// gone.
    pub dirs: Vec<JobDir>,
    /// When its first directory was made.
    pub created: Timestamp,
    /// Whether it has or had a process. Until then it is known and gives no sample.
    pub populated: bool,
    /// Most of its directories that a source looks at: its part of [`USER_DIRECTORIES_MAX`].
    pub directories_max: usize,
}

impl JobCgroup {
    /// The job's directory in a hierarchy.
    pub fn dir(&self, hierarchy: Hierarchy) -> Option<&str> {
        self.dirs.iter().find(|dir| dir.hierarchy == hierarchy).map(|dir| dir.path.as_str())
    }
}

/// Gives the jobs of each user equal parts of the directories that are looked at. A job of an unknown user has its own.
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

/// The user of a job by number and name.
type Owner = (Option<u32>, Option<Box<str>>);

fn owner(job: &JobCgroup) -> Owner {
    (job.uid, job.user.clone())
}

/// A cgroup that is no job: a systemd service or session, shown as a part of the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitCgroup {
    /// `ssh.service`, `session-2.scope`.
    pub name: Box<str>,
    /// Its directories, as a job's.
    pub dirs: Vec<JobDir>,
    /// When its first directory was made.
    pub created: Timestamp,
}

/// The jobs on this node now.
#[derive(Clone, Debug, Default)]
pub struct Jobs {
    /// Ordered by key.
    pub(crate) jobs: Vec<JobCgroup>,
    /// Ordered by name; empty where a scheduler has jobs here.
    pub(crate) units: Vec<UnitCgroup>,
    /// Grows whenever a job or unit comes, goes or changes.
    pub(crate) generation: u64,
}

impl Jobs {
    /// A set of jobs put together by hand, for tests and for `jobmeter run`.
    pub fn new(mut jobs: Vec<JobCgroup>, mut units: Vec<UnitCgroup>) -> Self {
        jobs.sort_by(|a, b| a.key.cmp(&b.key));
        divide_directories(&mut jobs.iter_mut().collect::<Vec<_>>());
        units.sort_by(|a, b| a.name.cmp(&b.name));
        Self { jobs, units, generation: 1 }
    }

    /// The same jobs, as what came after these.
    #[must_use]
    pub const fn after(mut self, earlier: &Self) -> Self {
        self.generation = earlier.generation + 1;
        self
    }

    /// Every job, ordered by key.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &JobCgroup> {
        self.jobs.iter()
    }

    /// The job of a key.
    pub fn get(&self, key: &JobKey) -> Option<&JobCgroup> {
        let place = self.jobs.binary_search_by(|job| job.key.cmp(key)).ok()?;
        self.jobs.get(place)
    }

    /// Every unit, ordered by name.
    pub fn units(&self) -> &[UnitCgroup] {
        &self.units
    }

    /// Another number means that something came, went or changed since.
    pub const fn generation(&self) -> u64 {
        self.generation
    }
}
