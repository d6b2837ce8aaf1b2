//! Jobs and allocations.

use crate::{DeviceId, JobFacts, JobKey, Timestamp};

/// State of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JobState {
    /// Submitted, not started.
    Waiting,
    /// Running on its nodes.
    Running,
    /// Ended successfully.
    Ended,
    /// Ended with an error, a signal or a limit.
    Failed,
}

impl JobState {
    /// Every state.
    pub const ALL: [Self; 4] = [Self::Waiting, Self::Running, Self::Ended, Self::Failed];

    /// The word shown to people.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Ended => "ended",
            Self::Failed => "failed",
        }
    }

    /// Whether the job has ended, successfully or not.
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Ended | Self::Failed)
    }

    /// The state with this word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.word() == word)
    }
}

/// One run of a job, or a job that has not run. A new run of a reused job ID has another start.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// The job.
    pub key: JobKey,
    /// The job ID as written by its scheduler, such as `123_4`.
    pub display_id: Box<str>,
    /// Its state.
    pub state: JobState,
    /// Submission time.
    pub submit: Option<Timestamp>,
    /// Start on its nodes; if no node observed it, the scheduler's start. `None` while the job waits, and
    /// if it ended without starting.
    pub start: Option<Timestamp>,
    /// End.
    pub stop: Option<Timestamp>,
    /// The other facts. Nodes also report the user and the user ID; `user` is the ID of a user without a
    /// name.
    pub facts: JobFacts,
}

/// A node's observation of a job: it started, it ended, or it exists when the agent starts. A duplicate
/// adds nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JobEvent {
    /// The job.
    pub key: JobKey,
    /// The job ID as written by the scheduler.
    pub display_id: Box<str>,
    /// The node.
    pub device: DeviceId,
    /// Login name, if the cgroup's name contains it.
    pub user: Option<Box<str>>,
    /// User ID, if the cgroup's name or owner shows it.
    pub uid: Option<u32>,
    /// Creation time of its cgroup.
    pub start: Timestamp,
    /// Removal of its cgroup; `None` while it exists.
    pub stop: Option<Timestamp>,
    /// Request for optional metrics in the job's environment variable `JOBMETER_MONITOR`: regular
    /// expressions for their names, separated by blanks. Empty: all; `None`: no request was read. If the
    /// agent rejected the request: [`REJECTED_REQUEST`] and the reason.
    pub monitor: Option<Box<str>>,
    /// Tasks of the job that the kernel's OOM killer ended on this node since the last event.
    pub oom_kills: Vec<OomKill>,
}

/// A task that the kernel's OOM killer ended because its cgroup or the node was out of memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OomKill {
    /// Time of the kill.
    pub at: Timestamp,
    /// Its process ID.
    pub pid: u32,
    /// The user that it ran as.
    pub uid: Option<u32>,
    /// Its name.
    pub task: Box<str>,
    /// Its memory at the kill.
    pub task_bytes: Option<u64>,
    /// The limit that was reached; `None`: the memory of the node.
    pub limit_bytes: Option<u64>,
}

/// First character of a request that contains the reason of a rejection instead of expressions: no metric's
/// name contains it.
pub const REJECTED_REQUEST: char = '!';

/// A part of a device given to a job for a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// The job.
    pub job: JobKey,
    /// The device.
    pub device: DeviceId,
    /// Start.
    pub start: Timestamp,
    /// End; `None` while it lasts.
    pub stop: Option<Timestamp>,
}
