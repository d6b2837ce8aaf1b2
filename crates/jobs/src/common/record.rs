//! What a scheduler, or somebody in its place, says of a job. The scheduler says who, why and how much was
//! asked for; where a job really ran and when, the cgroups of the nodes say ([`model::JobEvent`]).

use model::{DeviceId, JobKey, JobState, Resources, Timestamp};

/// What is said of one submission of a job. Said again it takes the place of what was said before: a
/// scheduler corrects itself, also late.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Whose number, and which.
    pub key: JobKey,
    /// When it was submitted; together with the key this names the record, since a scheduler that is set up
    /// anew, or that queues a job again, gives the number again.
    pub submit: Timestamp,
    /// The number as the scheduler spells it, such as `123_4`; empty: the number.
    pub spelling: Box<str>,
    /// The number that a person gave to the whole, of which this is a part: the array's, or that of the
    /// heterogeneous job.
    pub part_of: Option<i64>,
    /// Which of the parts, for an element of an array.
    pub array_index: Option<i64>,
    /// Login name.
    pub user: Option<Box<str>>,
    /// The user's number, where the scheduler tells it.
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
    /// The scheduler's own word for that, such as `COMPLETING` or `Hold`.
    pub state_word: Box<str>,
    /// When it started; `None` while it waits, and when it ended without starting.
    pub start: Option<Timestamp>,
    /// When it ended.
    pub stop: Option<Timestamp>,
    /// What it ended with: an exit code, or 128 plus a signal.
    pub exit_code: Option<i32>,
    /// Words that the job was submitted with: OAR's types, such as `besteffort` or `monitor=perf_.*`; of
    /// Slurm, what stands in `--comment`.
    pub types: Vec<Box<str>>,
    /// What was asked for.
    pub requested: Resources,
    /// What the scheduler says was used.
    pub used: Resources,
    /// Where, and how much of each device. Empty while it waits.
    pub nodes: Vec<NodeShare>,
    /// Its steps, where the scheduler has steps.
    pub steps: Vec<Step>,
}

impl Record {
    /// One of which no more is known.
    pub fn new(key: JobKey, submit: Timestamp, state: JobState) -> Self {
        Self {
            key,
            submit,
            spelling: Box::default(),
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

/// What a job has of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeShare {
    /// The device: a node's host name up to the first dot.
    pub device: DeviceId,
    /// How many cores, where it is told.
    pub cpus: Option<u32>,
    /// Which cores, such as `0-3,8`, as the scheduler numbers them: OAR as the kernel does, Slurm socket by
    /// socket; empty: not told.
    pub cpu_list: Box<str>,
    /// How many accelerators, where it is told.
    pub gpus: Option<u32>,
    /// Which accelerators, by index; empty: not told.
    pub gpu_list: Box<str>,
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
}

/// A step of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Its name as the scheduler writes it: `batch`, `extern`, `0`.
    pub id: Box<str>,
    /// What it is called.
    pub name: Box<str>,
    /// The scheduler's word for what it is doing.
    pub state_word: Box<str>,
    /// When it started.
    pub start: Option<Timestamp>,
    /// When it ended.
    pub stop: Option<Timestamp>,
    /// What it ended with: an exit code, or 128 plus a signal.
    pub exit_code: Option<i32>,
}
