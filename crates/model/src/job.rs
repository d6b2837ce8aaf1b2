//! A job, and where it ran.

use crate::{DeviceId, JobKey, Timestamp};

/// What a job is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JobState {
    /// Submitted and not started.
    Waiting,
    /// On its nodes.
    Running,
    /// Over, well.
    Ended,
    /// Over, with an error, a signal or a limit.
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

    /// Whether it is over, well or not.
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Ended | Self::Failed)
    }

    /// The state of its word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.word() == word)
    }
}

/// How much; `None` where it is not told.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resources {
    /// Nodes.
    pub nodes: Option<u32>,
    /// Processor cores, over all nodes, as the scheduler counts them.
    pub cpus: Option<u32>,
    /// Accelerators, over all nodes.
    pub gpus: Option<u32>,
    /// Memory in bytes: asked for over all nodes; used: the largest of any task.
    pub memory_bytes: Option<u64>,
    /// Time in seconds: asked for: the limit; used: from start to stop.
    pub wall_seconds: Option<f64>,
    /// Processor time in seconds; of what was used only.
    pub cpu_seconds: Option<f64>,
}

/// What is known of one run of a job, or of one that has not run. A scheduler that runs a number again
/// gives another start. What only a scheduler tells is `None`, or empty, where none did.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Whose number, and which.
    pub key: JobKey,
    /// The number as its scheduler spells it, such as `123_4`.
    pub spelling: Box<str>,
    /// Login name, or the number of a user without one.
    pub user: Option<Box<str>>,
    /// The user's number on the nodes.
    pub uid: Option<u32>,
    /// Who pays.
    pub account: Option<Box<str>>,
    /// Colmet's and OAR's project.
    pub project: Option<Box<str>>,
    /// What the user called it.
    pub name: Option<Box<str>>,
    /// The queue or partition.
    pub queue: Option<Box<str>>,
    /// What it is doing.
    pub state: JobState,
    /// The scheduler's own word for that.
    pub state_word: Option<Box<str>>,
    /// When it was submitted.
    pub submit: Option<Timestamp>,
    /// When it started on its nodes; where no node saw it, when its scheduler says. `None` while it waits,
    /// and when it ended without starting.
    pub start: Option<Timestamp>,
    /// When it ended.
    pub stop: Option<Timestamp>,
    /// What the job's command ended with: an exit code, or 128 plus a signal.
    pub exit_code: Option<i32>,
    /// The number of the array or the heterogeneous job that it is a part of.
    pub part_of: Option<i64>,
    /// Which element of its array.
    pub array_index: Option<i64>,
    /// Words that it was submitted with.
    pub types: Vec<Box<str>>,
    /// What was asked for.
    pub requested: Resources,
    /// What the scheduler says was used.
    pub used: Resources,
}

/// What a node saw of a job: it came, it went, or it is here when the agent starts. Told again, it says
/// nothing new.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JobEvent {
    /// Which job.
    pub key: JobKey,
    /// Its number as the scheduler spells it.
    pub spelling: Box<str>,
    /// Where.
    pub device: DeviceId,
    /// Login name, where the cgroup's name tells.
    pub user: Option<Box<str>>,
    /// The user's number, where the cgroup's name or owner tells.
    pub uid: Option<u32>,
    /// When its cgroup was made.
    pub start: Timestamp,
    /// When its cgroup went; `None` while it is there.
    pub stop: Option<Timestamp>,
    /// Which optional metrics its user asks for by the variable `JOBMETER_MONITOR` of its environment there: regular
    /// expressions of their names, apart by blanks; empty: all; `None`: nobody read of any. Where the agent rejected
    /// the request, [`REJECTED_REQUEST`] and the reason.
    pub monitor: Option<Box<str>>,
    /// Tasks of the job that the kernel killed there since the last event, as memory was out.
    pub oom_kills: Vec<OomKill>,
}

/// A task that the kernel killed as its cgroup, or the node, was out of memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OomKill {
    /// When.
    pub at: Timestamp,
    /// Its process ID.
    pub pid: u32,
    /// The user it ran as.
    pub uid: Option<u32>,
    /// Its name.
    pub task: Box<str>,
    /// Its memory when it was killed.
    pub task_bytes: Option<u64>,
    /// The limit that was met; `None`: the memory of the node.
    pub limit_bytes: Option<u64>,
}

/// Begins a request that holds no expressions but the reason why it was rejected: no metric's name has this letter.
pub const REJECTED_REQUEST: char = '!';

/// A part of a device given to a job for a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// To which job.
    pub job: JobKey,
    /// Which device.
    pub device: DeviceId,
    /// From when.
    pub start: Timestamp,
    /// Until when; `None` while it lasts.
    pub stop: Option<Timestamp>,
}
