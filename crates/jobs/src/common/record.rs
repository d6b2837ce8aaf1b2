//! Job records of schedulers and of scripts that replace a scheduler.
//!
//! The scheduler is the authority for owner, reason and request. The cgroups of the nodes are the
//! authority for place and time ([`model::JobEvent`]).

use model::{DeviceId, JobKey, JobState, Resources, Timestamp};

/// A record of one submission of a job. A later record of the same submission replaces the earlier one:
/// schedulers correct their data, sometimes late.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The cluster and the job ID.
    pub key: JobKey,
    /// Time of submission. The key and this time identify the record. A reinstalled scheduler, or one that
    /// requeues a job, reuses the ID.
    pub submit: Timestamp,
    /// The job ID in the scheduler's notation, such as `123_4`. Empty: the same as the ID.
    pub display_id: Box<str>,
    /// The ID of the array or heterogeneous job of which this job is a part.
    pub part_of: Option<i64>,
    /// The array index, for an element of an array.
    pub array_index: Option<i64>,
    /// The login name.
    pub user: Option<Box<str>>,
    /// The user ID, if the scheduler reports it.
    pub uid: Option<u32>,
    /// The account that pays.
    pub account: Option<Box<str>>,
    /// The project (Colmet, OAR).
    pub project: Option<Box<str>>,
    /// The job name that the user chose.
    pub name: Option<Box<str>>,
    /// The queue or partition.
    pub queue: Option<Box<str>>,
    /// The state.
    pub state: JobState,
    /// The scheduler's own name of the state, such as `COMPLETING` or `Hold`.
    pub state_word: Box<str>,
    /// Time of the start. `None` while the job waits, and for a job that ended without starting.
    pub start: Option<Timestamp>,
    /// Time of the end.
    pub stop: Option<Timestamp>,
    /// The exit code, or 128 plus a signal.
    pub exit_code: Option<i32>,
    /// Words of the submission. OAR: types such as `besteffort` or `monitor=perf_.*`. Slurm: the words of
    /// `--comment`.
    pub types: Vec<Box<str>>,
    /// Requested resources.
    pub requested: Resources,
    /// Used resources as the scheduler reports them.
    pub used: Resources,
    /// The devices, with the part of each that the job has. Empty while the job waits.
    pub nodes: Vec<NodeShare>,
    /// The steps, if the scheduler has steps.
    pub steps: Vec<Step>,
}

impl Record {
    /// Creates a record without further facts.
    pub fn new(key: JobKey, submit: Timestamp, state: JobState) -> Self {
        Self {
            key,
            submit,
            display_id: Box::default(),
            part_of: None,
            array_index: None,
            user: None,
            uid: None,
            account: None,
            project: None,
            name: None,
            queue: None,
            state,
            state_word: Box::default(),
            start: None,
            stop: None,
            exit_code: None,
            types: Vec::new(),
            requested: Resources::default(),
            used: Resources::default(),
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
