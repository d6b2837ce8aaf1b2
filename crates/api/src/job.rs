//! A job: as lists and reports show it, and as updates report it.

use crate::param::{CLUSTER, JOB_STATES, NAME_LENGTH_MAX};
use model::{DeviceId, JobFacts, Timestamp};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

/// Names, and lists of them in brackets.
const NODES: &str = "^[^\\x00-\\x1f\\x7f-\\x9f]+$";

/// An element of `GET /api/v1/jobs`, and the head of a report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Job {
    /// The cluster: `oar`, `slurm`, `local`.
    pub cluster: String,
    /// The numeric job ID.
    pub id: i64,
    /// The job ID as the scheduler displays it, such as `123_4`.
    pub display_id: String,
    /// Login name.
    pub user: Option<String>,
    /// The user ID.
    pub uid: Option<u32>,
    /// The account that pays for the job.
    pub account: Option<String>,
    /// Colmet's and OAR's project.
    pub project: Option<String>,
    /// The name that the user gave it.
    pub name: Option<String>,
    /// The queue or partition.
    pub queue: Option<String>,
    /// `waiting`, `running`, `ended` or `failed`.
    pub state: String,
    /// The state as the scheduler names it.
    pub state_word: Option<String>,
    /// When it was submitted.
    pub submit: Option<f64>,
    /// When it started; `null` while it waits, and if it ended without a start.
    pub start: Option<f64>,
    /// When it ended.
    pub stop: Option<f64>,
    /// Exit code, or 128 plus a signal.
    pub exit_code: Option<i32>,
    /// The ID of the array, or of the heterogeneous job, that it is a part of.
    pub part_of: Option<i64>,
    /// Its index in the array.
    pub array_index: Option<i64>,
    /// Types given at submission, such as OAR's.
    pub types: Vec<String>,
    /// Requested resources.
    pub requested: Resources,
    /// Used resources, as the scheduler reports them.
    pub used: Resources,
    /// Its devices, present and past.
    pub devices: Vec<String>,
    /// What it used; absent without `usage` in the request, and for a job whose samples the caller may not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

/// Body of `POST /api/v1/jobs` for a job that is not `local`, and a line of the file `schedulers.file`: a job
/// is submitted, starts, ends, or is corrected. Allowed for administrators and for tokens of scope `jobs`, within their
/// cluster if they name one.
///
/// A field that is left out or `null` keeps its earlier value. Without `submit` the update applies to the latest
/// submission of the job ID, unless that ended before this `start`: then the ID was reused. Without `state` a job with
/// `stop` has ended, a job with `start` runs, and any other keeps its state, which is `waiting` at first.
/// Times are seconds since 1970, from the year 2000 to a day from now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JobUpdate {
    /// The cluster: a name for the scheduler, but not `local`.
    #[schemars(length(min = 1, max = NAME_LENGTH_MAX), regex(pattern = CLUSTER))]
    pub cluster: String,
    /// The numeric job ID.
    #[schemars(range(min = 1))]
    pub id: i64,
    /// When it was submitted.
    #[schemars(range(min = 946_684_800.0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub submit: Option<f64>,
    /// The job ID as the scheduler displays it, such as `123_4`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_id: Option<String>,
    /// The ID of the array, or of the heterogeneous job, that it is a part of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part_of: Option<i64>,
    /// Its index in the array.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub array_index: Option<i64>,
    /// Login name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The user ID. Default: that of the login name on the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// The account that pays for the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// The project.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// The name that the user gave it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The queue or partition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// `waiting`, `running`, `ended` or `failed`.
    #[schemars(schema_with = "state")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// The state as the scheduler names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_word: Option<String>,
    /// When it started.
    #[schemars(range(min = 946_684_800.0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<f64>,
    /// When it ended.
    #[schemars(range(min = 946_684_800.0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop: Option<f64>,
    /// Exit code, or 128 plus a signal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Types given at submission.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub types: Option<Vec<String>>,
    /// Requested resources.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested: Option<Resources>,
    /// Used resources.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used: Option<Resources>,
    /// All of its devices, also those that are not nodes, such as a power meter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Vec<NodeShare>>,
    /// All of its steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<Vec<Step>>,
}

fn state(_: &mut SchemaGenerator) -> Schema {
    let words: Vec<Option<&str>> = JOB_STATES.iter().copied().map(Some).chain([None]).collect();
    schemars::json_schema!({"enum": words})
}

/// What a job used, in a list of jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    /// Processor time over all its devices; `null` if unknown.
    pub cpu_seconds: Option<f64>,
    /// Largest memory on any of its devices; `null` if unknown.
    pub memory_peak_bytes: Option<f64>,
    /// Time from its start to its end, or to now; the value of `jobmeter run` where it reported one.
    pub wall_seconds: Option<f64>,
    /// Whether the processor time is a lower bound. The job's report states why.
    // An older server does not send these three.
    #[serde(default)]
    #[schemars(required)]
    pub cpu_at_least: bool,
    /// Whether the largest memory is a lower bound.
    #[serde(default)]
    #[schemars(required)]
    pub memory_peak_at_least: bool,
    /// Whether the wall time is a lower bound.
    #[serde(default)]
    #[schemars(required)]
    pub wall_at_least: bool,
}

/// Requested or used resources; an unknown one is `null` or left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Resources {
    /// Nodes.
    pub nodes: Option<u32>,
    /// Processor cores, over all nodes.
    pub cpus: Option<u32>,
    /// Accelerators, over all nodes.
    pub gpus: Option<u32>,
    /// Memory. Requested: over all nodes. Used: the largest of any task.
    pub memory_bytes: Option<u64>,
    /// Time. Requested: the limit. Used: from start to stop.
    #[schemars(range(min = 0.0))]
    pub wall_seconds: Option<f64>,
    /// Processor time; used only.
    #[schemars(range(min = 0.0))]
    pub cpu_seconds: Option<f64>,
}

/// The resources of one device that the scheduler gave to a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeShare {
    /// The device: a node's host name, cut at the first dot. An update may contain a list such as `n[1-3],u1`: each of
    /// these nodes has the same resources.
    #[schemars(length(max = 16384), regex(pattern = NODES))]
    pub device: String,
    /// Number of cores.
    pub cpus: Option<u32>,
    /// The cores, such as `0-3,8`; empty if unknown.
    #[serde(default)]
    pub cpu_list: String,
    /// Number of accelerators.
    pub gpus: Option<u32>,
    /// The accelerators; empty if unknown.
    #[serde(default)]
    pub gpu_list: String,
    /// Memory.
    pub memory_bytes: Option<u64>,
}

/// A step of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Its ID as the scheduler displays it: `batch`, `extern`, `0`.
    pub id: String,
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// Its state as the scheduler names it.
    #[serde(default)]
    pub state_word: String,
    /// When it started.
    #[schemars(range(min = 946_684_800.0))]
    pub start: Option<f64>,
    /// When it ended.
    #[schemars(range(min = 946_684_800.0))]
    pub stop: Option<f64>,
    /// Exit code, or 128 plus a signal.
    pub exit_code: Option<i32>,
}

impl Job {
    /// A run of a job with its devices, without its usage.
    pub fn new(job: model::Job, devices: impl IntoIterator<Item = DeviceId>) -> Self {
        let model::Job { key, display_id, state, submit, start, stop, facts } = job;
        Self {
            cluster: key.cluster.to_string(),
            id: key.id.get(),
            display_id: display_id.into(),
            user: facts.user.map(String::from),
            uid: facts.uid,
            account: facts.account.map(String::from),
            project: facts.project.map(String::from),
            name: facts.name.map(String::from),
            queue: facts.queue.map(String::from),
            state: state.word().to_owned(),
            state_word: facts.state_word.map(String::from),
            submit: submit.map(Timestamp::seconds),
            start: start.map(Timestamp::seconds),
            stop: stop.map(Timestamp::seconds),
            exit_code: facts.exit_code,
            part_of: facts.part_of,
            array_index: facts.array_index,
            types: facts.types.into_iter().flatten().map(String::from).collect(),
            requested: facts.requested.into(),
            used: facts.used.into(),
            devices: devices.into_iter().map(|device| device.to_string()).collect(),
            usage: None,
        }
    }
}

impl JobUpdate {
    /// The facts that the update reports.
    pub fn facts(&self) -> JobFacts {
        let text = |text: &Option<String>| text.as_deref().map(Box::from);
        let amounts = |of: &Option<Resources>| of.as_ref().map(Into::into).unwrap_or_default();
        let boxes = |words: &Vec<String>| words.iter().map(|word| word.as_str().into()).collect();
        JobFacts {
            user: text(&self.user),
            uid: self.uid,
            account: text(&self.account),
            name: text(&self.name),
            exit_code: self.exit_code,
            project: text(&self.project),
            queue: text(&self.queue),
            state_word: text(&self.state_word),
            part_of: self.part_of,
            array_index: self.array_index,
            types: self.types.as_ref().map(boxes),
            requested: amounts(&self.requested),
            used: amounts(&self.used),
        }
    }
}

impl From<model::Resources> for Resources {
    fn from(of: model::Resources) -> Self {
        let model::Resources { nodes, cpus, gpus, memory_bytes, wall_seconds, cpu_seconds } = of;
        Self { nodes, cpus, gpus, memory_bytes, wall_seconds, cpu_seconds }
    }
}

impl From<&Resources> for model::Resources {
    fn from(of: &Resources) -> Self {
        let Resources { nodes, cpus, gpus, memory_bytes, wall_seconds, cpu_seconds } = *of;
        Self { nodes, cpus, gpus, memory_bytes, wall_seconds, cpu_seconds }
    }
}
