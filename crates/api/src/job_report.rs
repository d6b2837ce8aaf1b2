//! One job's report, registering and ending local jobs, and disagreements between scheduler and nodes.

use crate::param::{NAME_LENGTH_MAX, unprintable};
use crate::{Job, JobUpdate, NodeShare, Step};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

/// The name of one node, without the characters of a node list.
const NODE: &str =
    concat!("^[^.,/*\\[\\] ", unprintable!(), "-][^,/*\\[\\] ", unprintable!(), "]*$");
const PRINTABLE: &str = concat!("^[^", unprintable!(), "]*$");

/// A device of a job, with the time of its allocation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Allocation {
    /// The device.
    pub device: String,
    /// The start.
    pub start: f64,
    /// The end; `null` while it lasts.
    pub stop: Option<f64>,
}

/// `GET /api/v1/jobs/{[CLUSTER:]ID}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobReport {
    /// The job.
    pub job: Job,
    /// The runs of this job ID that the caller may see, newest first, 100 at most: more than one if the scheduler reused
    /// the ID.
    // An older server does not send it.
    #[serde(default)]
    #[schemars(required)]
    pub runs: Vec<Run>,
    /// Its allocations as the nodes observed them, or as the scheduler reports them where no node did.
    pub allocations: Vec<Allocation>,
    /// The resources of each device that the scheduler gave it.
    pub nodes: Vec<NodeShare>,
    /// Its steps.
    pub steps: Vec<Step>,
    /// What it used, over all its devices. On each node the largest proven value counts.
    pub totals: Totals,
    /// The origin of each total.
    #[serde(default)]
    pub origins: Vec<crate::TotalOrigin>,
    /// The nodes that the totals cover.
    #[serde(default)]
    pub coverage: crate::Coverage,
    /// Totals by metric, of all series attributed to the job.
    pub metrics: Vec<MetricTotal>,
    /// With `metric`: totals of these metrics of each device, during its allocations to the job. They are of node samples
    /// and of what other devices measure for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub node_metrics: Vec<NodeMetric>,
    /// Series attributed to it, to plot.
    pub series: Vec<SeriesRef>,
    /// Gaps in the samples of the job, by device and cause.
    pub gaps: Vec<crate::Gap>,
    /// How it ended; `null` while it runs or waits, and if unknown.
    #[serde(default)]
    pub end: Option<JobEnd>,
    /// Its tasks that the kernel killed for lack of memory, by device and time. `cgroup_oom_kills_total` also counts
    /// kills that the kernel's log does not name.
    #[serde(default)]
    #[schemars(required)]
    pub oom_kills: Vec<OomKill>,
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobEnd {
    /// `completed`, `exit code`, `signal`, `time limit`, `oom kill`, or `scheduler` (with its word in `detail`).
    pub cause: String,
    /// The exit code, the signal's number, or the scheduler's word such as `OUT_OF_MEMORY`; empty where there is none.
    pub detail: String,
}

/// A task that the kernel killed because its cgroup, or the node, was out of memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OomKill {
    /// The device.
    pub device: String,
    /// The time, in seconds since 1970.
    pub time: f64,
    /// Its name.
    pub task: String,
    /// Its process ID.
    pub pid: u32,
    /// The user ID that it ran as.
    pub uid: Option<u32>,
    /// Its memory at the time of the kill.
    pub task_bytes: Option<u64>,
    /// The limit that was reached; `null`: the memory of the node.
    pub limit_bytes: Option<u64>,
}

/// A run of a job ID. The parameter `start` of a report selects it by its start or submission.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Run {
    /// When it started.
    pub start: Option<f64>,
    /// When it was submitted, if known.
    pub submit: Option<f64>,
    /// When it ended.
    pub stop: Option<f64>,
    /// `waiting`, `running`, `ended` or `failed`.
    pub state: String,
}

/// What a job used; `null` if unknown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Totals {
    /// From start to stop, or until now.
    pub wall_seconds: f64,
    /// Processor time.
    pub cpu_seconds: Option<f64>,
    /// Processor time in user mode.
    pub cpu_user_seconds: Option<f64>,
    /// Processor time in the kernel.
    pub cpu_system_seconds: Option<f64>,
    /// Cores used on average: processor time over wall time.
    pub cores_used: Option<f64>,
    /// Largest memory of the cgroup on any of its devices.
    pub memory_peak_bytes: Option<f64>,
    /// Bytes read from disks and file systems.
    pub io_read_bytes: Option<f64>,
    /// Bytes written to them.
    pub io_write_bytes: Option<f64>,
    /// Page faults without disk access.
    pub minor_faults: Option<f64>,
    /// Page faults with disk access.
    pub major_faults: Option<f64>,
    /// Voluntary context switches.
    pub voluntary_switches: Option<f64>,
    /// Involuntary context switches.
    pub involuntary_switches: Option<f64>,
    /// Time that a processor limit throttled its tasks.
    pub throttled_seconds: Option<f64>,
    /// Time that at least one task waited for a processor.
    pub pressure_cpu_seconds: Option<f64>,
    /// Time that at least one task waited for memory.
    pub pressure_memory_seconds: Option<f64>,
    /// Time that at least one task waited for a disk.
    pub pressure_io_seconds: Option<f64>,
    /// Longest time before the job's end, on any device, without a reading: the cgroup was removed before a last
    /// one, or no agent ran.
    pub unread_seconds: Option<f64>,
}

/// One metric of a report, over all devices and labels of the job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MetricTotal {
    /// The metric.
    pub metric: String,
    /// Its unit word.
    pub unit: String,
    /// `gauge` or `counter`.
    pub kind: String,
    /// Counters: the increase over the job, summed.
    pub increase: Option<f64>,
    /// Gauges: the time-weighted average of the sum.
    pub average: Option<f64>,
    /// Gauges: the integral of the sum: the value times the seconds, such as joules for watts.
    #[serde(default)]
    #[schemars(required)]
    pub integral: Option<f64>,
    /// Gauges: the smallest value of one series.
    #[serde(default)]
    #[schemars(required)]
    pub min: Option<f64>,
    /// Gauges: the largest value of one series.
    pub max: Option<f64>,
    /// Seconds from the first to the last sample.
    #[serde(default)]
    #[schemars(required)]
    pub seconds: f64,
    /// Number of samples.
    pub samples: u64,
    /// Number of devices with samples.
    #[serde(default)]
    pub devices: u32,
}

/// Totals of one series of a job's device, over its allocations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeMetric {
    /// The device of the job. Another device may measure the series for it.
    pub node: String,
    /// Which series.
    #[serde(flatten)]
    pub series: crate::SeriesInfo,
    /// Its totals.
    pub totals: crate::SeriesTotals,
}

/// A series that can be queried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SeriesRef {
    /// The device.
    pub device: String,
    /// The metric.
    pub metric: String,
    /// The labels.
    pub labels: std::collections::BTreeMap<String, String>,
}

/// Body of `POST /api/v1/jobs`: registers a local job. Its user is the caller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Register {
    /// Its name: 200 bytes at most, printable characters only.
    #[schemars(length(max = 200), regex(pattern = PRINTABLE))]
    pub name: Option<String>,
    /// The name of its node.
    #[schemars(length(max = NAME_LENGTH_MAX), regex(pattern = NODE))]
    pub device: String,
    /// When it started, within a minute of the server's clock. Default: the server's clock.
    #[schemars(range(min = 946_684_800.0))]
    pub start: Option<f64>,
}

/// Answer to it, and to [`crate::JobUpdate`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Registered {
    /// The cluster: `local` for a job of the caller.
    pub cluster: String,
    /// The job ID.
    pub id: i64,
    /// The identity of the server, which is part of the name of the job's cgroup. Empty for a scheduler's job.
    #[serde(default)]
    pub server: String,
    /// Whether the server could not resolve the user of a scheduler's job to a user ID. Until it can, only administrators
    /// and staff see the job.
    #[serde(default)]
    pub user_unknown: bool,
}

/// Body of `POST /api/v1/jobs/{[CLUSTER:]ID}/end`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct End {
    /// Exit code, or 128 plus a signal.
    #[schemars(range(min = 0, max = 255))]
    pub exit_code: Option<i32>,
    /// When it ended, from the year 2000 to a day from now. Default: the server's clock.
    #[schemars(range(min = 946_684_800.0))]
    pub stop: Option<f64>,
}

/// Answer of `POST /api/v1/jobs/{[CLUSTER:]ID}/end`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ended {
    /// The job.
    #[serde(flatten)]
    pub job: Job,
    /// False: the job had already ended, and the request changed nothing.
    pub changed: bool,
}

/// The body of `POST /api/v1/jobs`.
pub(crate) fn posted(generator: &mut SchemaGenerator) -> Schema {
    let (update, own) =
        (generator.subschema_for::<JobUpdate>(), generator.subschema_for::<Register>());
    schemars::json_schema!({"anyOf": [update, own]})
}

/// An element of `GET /api/v1/jobs/check`: a disagreement between a scheduler and a node about a present job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Disagreement {
    /// The cluster.
    pub cluster: String,
    /// The job ID.
    pub id: i64,
    /// The device.
    pub device: String,
    /// `not_seen`: the scheduler reports that the job runs there, but the node has no cgroup of it. `no_agent`: it does so
    /// of a node without a known agent. If the node has a cgroup:
    /// `not_known`: the scheduler has no such job; `not_running`: the scheduler reports that it waits or has ended;
    /// `other_node`: the scheduler allocated other nodes; `other_user`: the scheduler reports another owner.
    pub difference: String,
    /// When the disagreement began.
    pub since: f64,
    /// The scheduler's report.
    pub scheduler: String,
    /// The node's report.
    pub node: String,
}
