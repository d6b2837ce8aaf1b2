//! Jobs: lists, one job's report, registering and ending local ones.

use crate::param::{NAME_LENGTH_MAX, unprintable};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A name that no list of nodes takes for several.
const NODE: &str =
    concat!("^[^.,/*\\[\\] ", unprintable!(), "-][^,/*\\[\\] ", unprintable!(), "]*$");
/// Names, and lists of them in brackets.
const NODES: &str = "^[^\\x00-\\x1f\\x7f-\\x9f]+$";
const PRINTABLE: &str = concat!("^[^", unprintable!(), "]*$");

/// An element of `GET /api/v1/jobs`, and the head of a report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Job {
    /// Whose number: `oar`, `slurm`, `local`.
    pub cluster: String,
    /// The number.
    pub id: i64,
    /// The number as the scheduler writes it.
    pub spelling: String,
    /// Login name.
    pub user: Option<String>,
    /// The user's number.
    pub uid: Option<u32>,
    /// Who pays.
    pub account: Option<String>,
    /// Colmet's and OAR's project.
    pub project: Option<String>,
    /// What the user called it.
    pub name: Option<String>,
    /// The queue or partition.
    pub queue: Option<String>,
    /// `waiting`, `running`, `ended` or `failed`.
    pub state: String,
    /// The scheduler's own word for that.
    pub state_word: Option<String>,
    /// When it was submitted.
    pub submit: Option<f64>,
    /// When it started; `null` while it waits, and when it ended without starting.
    pub start: Option<f64>,
    /// When it ended.
    pub stop: Option<f64>,
    /// Exit code, or 128 plus a signal.
    pub exit_code: Option<i32>,
    /// The number of the array, or of the heterogeneous job, that it is a part of.
    pub part_of: Option<i64>,
    /// Which element of its array.
    pub array_index: Option<i64>,
    /// Words that it was submitted with, such as OAR's types.
    pub types: Vec<String>,
    /// What was asked for.
    pub requested: Resources,
    /// What the scheduler says was used.
    pub used: Resources,
    /// Devices it has or had.
    pub devices: Vec<String>,
    /// What it used; absent without `usage` in the request, and of a job whose samples the caller may not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

/// What a job used, in short: of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    /// Processor time over all its devices; `null`: not known.
    pub cpu_seconds: Option<f64>,
    /// Largest memory on any of its devices; `null`: not known.
    pub memory_peak_bytes: Option<f64>,
    /// Time from its start to its end, or to now: as `jobmeter run` reported it, where it did.
    pub wall_seconds: Option<f64>,
}

/// How much was asked for, or used; what nobody tells is `null`, or left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Resources {
    /// Nodes.
    pub nodes: Option<u32>,
    /// Processor cores, over all nodes.
    pub cpus: Option<u32>,
    /// Accelerators, over all nodes.
    pub gpus: Option<u32>,
    /// Memory: asked for over all nodes; used: the largest of any task.
    pub memory_bytes: Option<u64>,
    /// Time: asked for: the limit; used: from start to stop.
    #[schemars(range(min = 0.0))]
    pub wall_seconds: Option<f64>,
    /// Processor time, of what was used.
    #[schemars(range(min = 0.0))]
    pub cpu_seconds: Option<f64>,
}

/// What a job has of a device, as its scheduler says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeShare {
    /// The device: a node's host name, of which what follows the first dot is left out. What is told may be a list,
    /// such as `n[1-3],u1`: each of these nodes has the same.
    #[schemars(length(max = 16384), regex(pattern = NODES))]
    pub device: String,
    /// How many cores.
    pub cpus: Option<u32>,
    /// Which cores, such as `0-3,8`; empty: not told.
    #[serde(default)]
    pub cpu_list: String,
    /// How many accelerators.
    pub gpus: Option<u32>,
    /// Which accelerators; empty: not told.
    #[serde(default)]
    pub gpu_list: String,
    /// Memory.
    pub memory_bytes: Option<u64>,
}

/// A step of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Its name as the scheduler writes it: `batch`, `extern`, `0`.
    pub id: String,
    /// What it is called.
    #[serde(default)]
    pub name: String,
    /// The scheduler's word for what it is doing.
    #[serde(default)]
    pub state_word: String,
    /// When it started.
    pub start: Option<f64>,
    /// When it ended.
    pub stop: Option<f64>,
    /// Exit code, or 128 plus a signal.
    pub exit_code: Option<i32>,
}

/// Where a job ran, and when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Allocation {
    /// The device.
    pub device: String,
    /// From when.
    pub start: f64,
    /// Until when.
    pub stop: Option<f64>,
}

/// `GET /api/v1/jobs/{[CLUSTER:]ID}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobReport {
    /// The job.
    pub job: Job,
    /// The runs of its number that the caller sees, the newest first, 100 at most: more than one where the number was
    /// given again.
    // A server of before does not say it.
    #[serde(default)]
    #[schemars(required)]
    pub runs: Vec<Run>,
    /// Where and when it ran: as its nodes saw it; where none did, as its scheduler says.
    pub allocations: Vec<Allocation>,
    /// What the scheduler says that it has of each device.
    pub nodes: Vec<NodeShare>,
    /// Its steps.
    pub steps: Vec<Step>,
    /// What it used, over all its devices: on each node the largest value that an origin proves.
    pub totals: Totals,
    /// The origin of each total.
    #[serde(default)]
    pub origins: Vec<crate::TotalOrigin>,
    /// The nodes that the totals cover.
    #[serde(default)]
    pub coverage: crate::Coverage,
    /// The same per metric, for everything counted for it.
    pub lines: Vec<ReportLine>,
    /// Series counted for it, to plot.
    pub series: Vec<SeriesRef>,
    /// Seconds of the job that no sample covers, per device and cause.
    pub gaps: Vec<crate::Gap>,
    /// How it ended; `null` while it is not over, and where nothing is known of it.
    #[serde(default)]
    pub end: Option<JobEnd>,
    /// Its tasks that the kernel killed as memory was out, by device and time; `cgroup_oom_kills_total` also counts
    /// those that the kernel's log does not name.
    #[serde(default)]
    #[schemars(required)]
    pub oom_kills: Vec<OomKill>,
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobEnd {
    /// `completed`, `exit code`, `signal`, `time limit`, `oom kill`, or `scheduler`: see its word in `detail`.
    pub cause: String,
    /// The exit code, the signal's number, or the scheduler's word such as `OUT_OF_MEMORY`; empty where there is none.
    pub detail: String,
}

/// A task that the kernel killed as its cgroup, or the node, was out of memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OomKill {
    /// On which device.
    pub device: String,
    /// When, in seconds since 1970.
    pub time: f64,
    /// Its name.
    pub task: String,
    /// Its process ID.
    pub pid: u32,
    /// The user that it ran as.
    pub uid: Option<u32>,
    /// Its memory when it was killed.
    pub task_bytes: Option<u64>,
    /// The limit that was met; `null`: the memory of the node.
    pub limit_bytes: Option<u64>,
}

/// A run of a number: `start` in the question for a report, that of when it started, or was submitted, names it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Run {
    /// When it started.
    pub start: Option<f64>,
    /// When it was submitted, where that is told.
    pub submit: Option<f64>,
    /// When it ended.
    pub stop: Option<f64>,
    /// `waiting`, `running`, `ended` or `failed`.
    pub state: String,
}

/// What a job used; `null` where nothing tells.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Totals {
    /// From start to stop, or until now.
    pub wall_seconds: f64,
    /// Processor time.
    pub cpu_seconds: Option<f64>,
    /// Of it, in user mode.
    pub cpu_user_seconds: Option<f64>,
    /// Of it, in the kernel.
    pub cpu_system_seconds: Option<f64>,
    /// Cores used on average: processor time over wall time.
    pub cores_used: Option<f64>,
    /// Largest memory of the cgroup on any of its devices.
    pub memory_peak_bytes: Option<f64>,
    /// Read from disks and file systems.
    pub io_read_bytes: Option<f64>,
    /// Written to them.
    pub io_write_bytes: Option<f64>,
    /// Page faults that needed no disk.
    pub minor_faults: Option<f64>,
    /// Page faults that did.
    pub major_faults: Option<f64>,
    /// Context switches that tasks asked for.
    pub voluntary_switches: Option<f64>,
    /// Context switches that were forced.
    pub involuntary_switches: Option<f64>,
    /// Time its tasks were held back by a processor limit.
    pub throttled_seconds: Option<f64>,
    /// Time some task waited for a processor.
    pub pressure_cpu_seconds: Option<f64>,
    /// Time some task waited for memory.
    pub pressure_memory_seconds: Option<f64>,
    /// Time some task waited for a disk.
    pub pressure_io_seconds: Option<f64>,
    /// Time up to the job's end that no reading covers, on any device: its cgroup was removed before the last one.
    pub unread_seconds: Option<f64>,
}

/// One metric of a report, over all the job's devices and labels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReportLine {
    /// The metric.
    pub metric: String,
    /// Its unit word.
    pub unit: String,
    /// `gauge` or `counter`.
    pub kind: String,
    /// Counters: how much they grew over the job, summed.
    pub increase: Option<f64>,
    /// Gauges: the average over time of the sum.
    pub average: Option<f64>,
    /// Gauges: the largest value of one series.
    pub max: Option<f64>,
    /// Samples it rests on.
    pub samples: u64,
    /// Devices with samples of it.
    #[serde(default)]
    pub devices: u32,
}

/// A series to ask for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SeriesRef {
    /// The device.
    pub device: String,
    /// The metric.
    pub metric: String,
    /// The labels.
    pub labels: std::collections::BTreeMap<String, String>,
}

/// Body of `POST /api/v1/jobs`: a local job begins. Its user is the caller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Register {
    /// What to call it: 200 bytes at most, and printable characters only.
    #[schemars(length(max = 200), regex(pattern = PRINTABLE))]
    pub name: Option<String>,
    /// Where it runs: the name of one node.
    #[schemars(length(max = NAME_LENGTH_MAX), regex(pattern = NODE))]
    pub device: String,
    /// When it started, within a minute of the server's clock, which counts when this is left out.
    #[schemars(range(min = 946_684_800.0))]
    pub start: Option<f64>,
}

/// Answer to it, and to [`crate::JobTold`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Registered {
    /// Whose number: `local` for a job of the caller.
    pub cluster: String,
    /// Its number.
    pub id: i64,
    /// The identity of the server: part of the name of the job's cgroup. Empty for a scheduler's job.
    #[serde(default)]
    pub server: String,
    /// Whether the server knows no number of the user of a scheduler's job: until it does, administrators and staff
    /// alone see the job.
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
    /// When, from 2000 to a day from now; the server's clock when left out.
    #[schemars(range(min = 946_684_800.0))]
    pub stop: Option<f64>,
}

/// Answer of `POST /api/v1/jobs/{[CLUSTER:]ID}/end`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ended {
    /// The job.
    #[serde(flatten)]
    pub job: Job,
    /// False: it had ended before, and this changed nothing.
    pub changed: bool,
}
