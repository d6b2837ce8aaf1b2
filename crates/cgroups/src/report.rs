//! Results and counters of discovery, for `jobmeter doctor` and the agent's own metrics.

use crate::Mount;
use model::ClusterId;

/// Why a directory with a job's name is not a job.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RejectionReason {
    /// It belongs neither to root nor to the scheduler.
    #[error(
        "belongs to user {0}, neither root nor the scheduler; if {0} is the scheduler's account, add it to `scheduler_uids`"
    )]
    Owner(u32),
    /// A directory of `jobmeter run` belongs to a user without a registration of this job ID at the server.
    #[error("belongs to user {0}; the server has not registered this job for this user")]
    Unregistered(u32),
    /// `jobmeter run` of another server created it, or its name has no server.
    #[error("belongs to `jobmeter run` of another server, or names no server")]
    OtherServer,
    /// It is a symbolic link or a file.
    #[error("is not a directory")]
    NoDirectory,
    /// The job has another directory in the same hierarchy, as with several slurmd on one machine.
    #[error(
        "is a second directory of the job in one hierarchy; only the first by name is measured"
    )]
    Second,
    /// The job ended but its directory remained.
    #[error("was left behind by a job that ended")]
    LeftBehind,
    /// There are too many jobs.
    #[error("exceeds the limit of {0} jobs")]
    TooMany(usize),
}

/// A rejected directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectedDirectory {
    /// Its path, with a leading `/`.
    pub path: String,
    /// The reason.
    pub why: RejectionReason,
}

/// A place where discovery looks for jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchedPlace {
    /// The cluster of the jobs.
    pub cluster: ClusterId,
    /// Path below each hierarchy's root, or a configured root that is not in a hierarchy yet.
    pub path: String,
    /// Whether it is in a hierarchy, so that it is watched.
    pub in_hierarchy: bool,
}

/// Maximum number of rejected directories in a report; all are counted.
pub const REJECTED_SHOWN_MAX: usize = 64;

/// The state of discovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The cgroup hierarchies.
    pub mounts: Vec<Mount>,
    /// Places where discovery looks for jobs.
    pub places: Vec<SearchedPlace>,
    /// Rejected directories, at most [`REJECTED_SHOWN_MAX`].
    pub rejected: Vec<RejectedDirectory>,
    /// Slurm's directories with a job ID that is unknown on this node, with a leading `/`.
    pub unresolved: Vec<String>,
    /// Whether a scheduler was detected, so that systemd's units are not reported.
    pub scheduler_seen: bool,
    /// Counters.
    pub counts: Counts,
}

/// Counters of discovery since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Full scans.
    pub rescans: u64,
    /// Directories listed.
    pub listed: u64,
    /// Events received from the kernel.
    pub events: u64,
    /// Overflows of the kernel's event queue, each followed by a full scan.
    pub overflows: u64,
    /// Failed watches (`fs.inotify.max_user_watches`); their directories are scanned at each
    /// update.
    pub watches_failed: u64,
    /// Directories with a job's name that were removed before they could be read: jobs too short
    /// to be observed.
    pub too_short: u64,
    /// Directories that could not be listed for a reason other than their removal.
    pub unreadable: u64,
    /// Passages not entered because [`crate::PASSAGES_MAX`] are already watched.
    pub passages_rejected: u64,
    /// Units not reported because of [`crate::UNITS_MAX`].
    pub units_rejected: u64,
    /// Directories rejected at present.
    pub rejected: u64,
    /// Directories with an unresolved SLUID at present.
    pub unresolved: u64,
}
