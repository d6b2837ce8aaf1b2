//! What discovery found, refused and did, for `jobmeter doctor` and the agent's own metrics.

use crate::Mount;
use model::ClusterId;

/// Why a directory with a job's name is no job.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It belongs neither to root nor to the scheduler.
    #[error(
        "belongs to user {0}, who is neither root nor the scheduler; give the scheduler's account with `scheduler_uids`"
    )]
    Owner(u32),
    /// A directory of `jobmeter run` belongs to a user for whom the server has not registered the
    /// number.
    #[error("belongs to user {0}, for whom the server registered no such job")]
    Unregistered(u32),
    /// It was started by `jobmeter run` of another server, or names none.
    #[error("belongs to `jobmeter run` of another server, or names no server")]
    OtherServer,
    /// It is a symbolic link or a file.
    #[error("is no directory")]
    NoDirectory,
    /// The job has another directory in the same hierarchy, as with several slurmd on one machine.
    #[error(
        "is a second directory of the job in one hierarchy; the first in the order of names is measured"
    )]
    Second,
    /// The job ended, and this directory was left behind.
    #[error("was left behind by a job that ended")]
    LeftBehind,
    /// There are too many.
    #[error("is past the limit of {0} jobs")]
    TooMany(usize),
}

/// A directory that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Which, with its leading `/`.
    pub path: String,
    /// Why.
    pub why: Refusal,
}

/// A place where jobs are looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Looked {
    /// Whose jobs.
    pub cluster: ClusterId,
    /// The way below each hierarchy's root, or a given root that lies in no hierarchy yet.
    pub path: String,
    /// Whether it lies in a hierarchy, so that it is watched or waited for.
    pub in_hierarchy: bool,
}

/// Most refused directories that a report names; all are counted.
pub const REFUSED_SHOWN_MAX: usize = 64;

/// The state of discovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The trees of cgroups.
    pub mounts: Vec<Mount>,
    /// Where jobs are looked for.
    pub places: Vec<Looked>,
    /// Directories with a job's name that are none, [`REFUSED_SHOWN_MAX`] at most.
    pub refused: Vec<Refused>,
    /// Slurm's directories whose job's number nothing on this node tells, with their leading `/`.
    pub unresolved: Vec<String>,
    /// Whether a scheduler was seen, so that systemd's units are not shown.
    pub scheduler_seen: bool,
    /// What was done.
    pub counts: Counts,
}

/// What discovery did since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Times that everything was looked at.
    pub rescans: u64,
    /// Directories listed.
    pub listed: u64,
    /// Events noted by the kernel.
    pub events: u64,
    /// Times that the kernel's queue of events was full, so that everything was looked at again.
    pub overflows: u64,
    /// Watches that could not be set (`fs.inotify.max_user_watches`); these are looked at with each
    /// update.
    pub watches_failed: u64,
    /// Directories with a job's name that were gone before they could be looked at: jobs too short
    /// to be seen.
    pub too_short: u64,
    /// Directories that could not be listed for another reason than being gone.
    pub unreadable: u64,
    /// Passages not entered, as [`crate::PASSAGES_MAX`] are watched already.
    pub passages_refused: u64,
    /// Units not shown, as [`crate::UNITS_MAX`] are.
    pub units_refused: u64,
    /// Directories refused now.
    pub refused: u64,
    /// Directories now that have a SLUID whose job is not known.
    pub unresolved: u64,
}
