//! Job records of schedulers and of scripts that replace a scheduler.
//!
//! The scheduler is the authority for owner, reason and request. The cgroups of the nodes are the
//! authority for place and time ([`model::JobEvent`]).

use model::{DeviceId, JobFacts, JobKey, JobState, Timestamp};

/// A record of one submission of a job. A later record of the same submission replaces the earlier one:
/// schedulers correct their data, sometimes late.
#[derive(Clone, Debug, PartialEq)]
pub struct JobRecord {
    /// The cluster and the job ID.
    pub key: JobKey,
    /// Time of submission. The key and this time identify the record. A reinstalled scheduler, or one that
    /// requeues a job, reuses the ID.
    pub submit: Timestamp,
    /// The job ID in the scheduler's notation, such as `123_4`. Empty: the same as the ID.
    pub display_id: Box<str>,
    /// The state.
    pub state: JobState,
    /// Time of the start. `None` while the job waits, and for a job that ended without starting.
    pub start: Option<Timestamp>,
    /// Time of the end.
    pub stop: Option<Timestamp>,
    /// The other facts.
    pub facts: JobFacts,
    /// The devices, with the part of each that the job has. Empty while the job waits.
    pub nodes: Vec<NodeShare>,
    /// The steps, if the scheduler has steps.
    pub steps: Vec<Step>,
}

impl JobRecord {
    /// Creates a record without further facts.
    pub fn new(key: JobKey, submit: Timestamp, state: JobState) -> Self {
        Self {
            key,
            submit,
            display_id: Box::default(),
            state,
            start: None,
            stop: None,
            facts: JobFacts::default(),
            nodes: Vec::new(),
            steps: Vec::new(),
        }
    }
}

/// The part of a device that a job has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeShare {
    /// The device: a node's host name up to the first dot.
    pub device: DeviceId,
    /// Number of cores, if reported.
    pub cpus: Option<u32>,
    /// The cores in the scheduler's numbering, such as `0-3,8`. OAR numbers cores as the kernel does, Slurm
    /// socket by socket. Empty: not reported.
    pub cpu_list: Box<str>,
    /// Number of accelerators, if reported.
    pub gpus: Option<u32>,
    /// Indexes of the accelerators. Empty: not reported.
    pub gpu_list: Box<str>,
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
}

/// A step of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The step ID in the scheduler's notation: `batch`, `extern`, `0`.
    pub id: Box<str>,
    /// The step's name.
    pub name: Box<str>,
    /// The scheduler's name of the step's state.
    pub state_word: Box<str>,
    /// Time of the start.
    pub start: Option<Timestamp>,
    /// Time of the end.
    pub stop: Option<Timestamp>,
    /// The exit code, or 128 plus a signal.
    pub exit_code: Option<i32>,
}
