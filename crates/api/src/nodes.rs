//! The server, the nodes, the devices, the catalogue and the gaps.

use crate::param::DEVICE;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `GET /api/v1/ready`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ready {
    /// Always true: a server that is not ready answers 503.
    pub ready: bool,
}

/// `GET /api/v1/health`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Health {
    /// Version of the server.
    pub version: String,
    /// `release`, or `development` for a build without optimisation, unfit for measurements.
    pub build: String,
    /// Whether it answers requests, that is, is not stopping.
    pub ready: bool,
    /// Whether the latest attempt to write samples to disk failed, for example because the disk is full. Its log states
    /// the reason.
    // An older server does not send it.
    #[serde(default)]
    #[schemars(required)]
    pub writing_fails: bool,
    /// Seconds since its start.
    pub uptime_seconds: f64,
    /// Its clock, from which a reader derives the age of an answer.
    pub now: f64,
    /// Known nodes that report.
    pub nodes_alive: u64,
    /// Known nodes.
    pub nodes: u64,
    /// Running jobs.
    pub jobs_running: u64,
}

/// An element of `GET /api/v1/nodes`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Node {
    /// Its name.
    pub device: String,
    /// Whether it reported within 3 of its periods, and at least within 6 s.
    pub alive: bool,
    /// Whether its agent announced its shutdown; its silence is then no fault. Known since this server's start.
    pub stopped: bool,
    /// Whether several agents send under its name, so that their samples are mixed: each node needs a `device` of its
    /// own.
    // An older server does not send it.
    #[serde(default)]
    #[schemars(required)]
    pub conflict: bool,
    /// When the server received its latest batch, by the server's clock.
    pub last_seen: Option<f64>,
    /// Longest time between two of its batches in seconds, as its agent states with the latest one; of an agent that
    /// does not state it, as its samples arrived.
    pub period_seconds: Option<f64>,
    /// Its clock minus the server's, in seconds.
    pub clock_offset_seconds: Option<f64>,
    /// Version of its agent.
    pub agent_version: Option<String>,
    /// The other monitoring system that reports the node, if it has no agent: `colmet`.
    pub reported_by: Option<String>,
    /// The generation of the server's settings that its agent applies; 0 for none. A text of digits: it has 63 bits,
    /// and JavaScript numbers hold 53.
    #[serde(with = "crate::text::digits")]
    #[schemars(schema_with = "crate::text::digits::schema")]
    pub config_generation: Option<u64>,
    /// The settings of the server that its agent rejects or shortens.
    pub config_rejected: Vec<SettingRejection>,
    /// Sources, and parts of sources, that yield no samples or fewer than they should.
    pub source_errors: Vec<SourceError>,
    /// Sources that the agent does not read, or not in full, because of settings; empty for an agent that does not
    /// report them.
    // An older server does not send it.
    #[serde(default)]
    #[schemars(required)]
    pub sources_restricted: Vec<RestrictedSource>,
    /// Number of its series.
    pub series: u64,
    /// Jobs that run on the node.
    pub jobs: Vec<String>,
    /// Processor time used per second, over all cores; `null` if unknown.
    pub cpu_cores_used: Option<f64>,
    /// Its cores.
    pub cpu_cores: Option<f64>,
    /// Memory in use, in bytes.
    pub memory_used_bytes: Option<f64>,
    /// Its memory, in bytes.
    pub memory_bytes: Option<f64>,
}

/// The state of a device that is no node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DeviceState {
    /// The latest poll returned a value. Of a port of a wattmeter: it has a value of the last minute of lines.
    Alive,
    /// The latest poll returned none; the port has no such value.
    Failing,
    /// The poller or feed is silent, or does not poll the device any more.
    Unknown,
    /// No poller reads the device: its values come from another program.
    Unpolled,
    /// The poller or feed has ended: it was stopped, or the input of the feed ended.
    Ended,
}

impl DeviceState {
    /// The state as a word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Failing => "failing",
            Self::Unknown => "unknown",
            Self::Unpolled => "unpolled",
            Self::Ended => "ended",
        }
    }
}

/// The protocols by which pollers read devices: values of `protocol`.
pub const POLLED_PROTOCOLS: [&str; 5] = ["snmp", "ipmi", "prometheus", "json", "modbus"];

/// The `protocol` of what feeds of wattmeters read.
pub const FED_PROTOCOL: &str = "wattmetre";

/// The word for nodes that Colmet reports.
pub const COLMET: &str = "colmet";

/// An element of `GET /api/v1/devices`: a device that is no node, by one target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Device {
    /// Its name.
    pub device: String,
    /// The poller or feed that reads it.
    pub poller: Option<String>,
    /// Protocol of the poller's requests; `wattmetre`: a feed reads its lines.
    pub protocol: Option<String>,
    /// Scheme, host and port of the target that the poller requests, without user and password; `null` for a feed, which
    /// reads its standard input.
    pub address: Option<String>,
    /// Seconds between two polls: the shortest of its metrics, or that of a change while it holds.
    pub period_seconds: Option<f64>,
    /// Its state.
    pub state: DeviceState,
    /// Why it is in this state; `null` if it is alive.
    pub reason: Option<String>,
    /// Time of the latest poll with a value, or of the latest value of a device that no poller reads; `null` if unknown.
    pub last_good: Option<f64>,
    /// The nodes that it feeds: values with the label `_device_alias`. Only those that the caller may see.
    pub aliases: Vec<String>,
}

/// An entry of a description file that a poller does not poll because of an error; or a file that it cannot read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EntryError {
    /// The description file, with its path.
    #[schemars(length(max = 300))]
    pub file: String,
    /// Line of the error, from 1; 0: the whole file.
    pub line: u32,
    /// The device, if the entry names it.
    #[schemars(regex(pattern = DEVICE))]
    pub device: Option<String>,
    /// The node that the device feeds, if the entry names it.
    #[schemars(regex(pattern = DEVICE))]
    pub alias: Option<String>,
    /// The metric, if the entry names it.
    pub metric: Option<String>,
    /// The error, for people.
    #[schemars(length(max = 300))]
    pub reason: String,
}

impl EntryError {
    /// Maximum number of characters of a file's path and of a reason.
    pub const CHARS_MAX: usize = 300;

    /// `FILE:LINE: reason`.
    pub fn text(&self) -> String {
        let Self { file, line, reason, .. } = self;
        match line {
            0 => format!("{file}: {reason}"),
            line => format!("{file}:{line}: {reason}"),
        }
    }
}

/// The errors in the description files of a poller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EntryErrors {
    /// Number of errors.
    pub count: u32,
    /// The errors by file and line: of more than 256, the first ones.
    #[schemars(length(max = 256))]
    pub listed: Vec<EntryError>,
}

impl EntryErrors {
    /// Maximum number of listed errors.
    pub const LISTED_MAX: usize = 256;
}

/// The state of a poller or feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PollerState {
    /// It sends, or reports its entries.
    Alive,
    /// It did not end, but sends nothing.
    Silent,
    /// It reported its end.
    Ended,
}

/// An element of `GET /api/v1/pollers`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Poller {
    /// Its name.
    pub poller: String,
    /// Its state.
    pub state: PollerState,
    /// Time of receipt of its latest batch; `null` if it never sent one.
    pub last_seen: Option<f64>,
    /// The errors in its description files, as far as the caller may see them: all, or those of visible devices.
    pub entry_errors: EntryErrors,
}

/// Answer to `DELETE /api/v1/pollers/{poller}`: the removed poller or feed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ForgottenPoller {
    /// Its name.
    pub poller: String,
    /// Whether it had reported its end; else it was silent.
    pub ended: bool,
    /// Time of receipt of its latest batch.
    pub last_seen: f64,
}

/// The state of a scheduler's poller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SchedulerState {
    /// No poll has ended yet.
    New,
    /// The latest poll succeeded.
    Ok,
    /// The latest poll failed; the server polls again.
    Failing,
}

/// An element of `GET /api/v1/schedulers`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Scheduler {
    /// The cluster of its jobs.
    pub cluster: String,
    /// `oar`, `slurm` or `nodetime`.
    pub kind: String,
    /// The interface that the server polls: `database`, `rest` or `commands`.
    pub interface: String,
    /// The state of the poller.
    pub state: SchedulerState,
    /// The error of the latest poll; `null` if it succeeded, and for callers who may not read everything.
    pub last_error: Option<String>,
    /// When the latest successful poll ended.
    pub last_success: Option<f64>,
    /// Seconds between two polls.
    pub period_seconds: f64,
    /// Successful polls since the server's start.
    pub polls: u64,
    /// Failed polls.
    pub polls_failed: u64,
    /// Calls, statements or programs of the successful polls.
    pub calls: u64,
    /// Job records that the registry accepted, duplicates included.
    pub records: u64,
    /// Job records that the registry rejected as contradictory or malformed.
    pub records_rejected: u64,
    /// The latest rejections, for callers who may read everything.
    pub rejections: Vec<String>,
}

/// Whether an output works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OutputState {
    /// It delivers, or has delivered everything.
    Working,
    /// It waits, for the given reason.
    Waiting,
}

/// An element of `GET /api/v1/outputs`: another system that receives samples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Output {
    /// Its name: that of its table in the server's file.
    pub output: String,
    /// Its kind.
    pub kind: String,
    /// What a success means: `kept`: the data is durable at the receiver; `sent`: the bytes are written.
    pub guarantee: String,
    /// Whether it works.
    pub state: OutputState,
    /// Since when it waits.
    pub since: Option<f64>,
    /// Why it waits, and what to do.
    pub reason: Option<String>,
    /// Stored samples that it has not delivered yet; `null`: unknown now.
    pub samples_behind: Option<u64>,
    /// Time of the newest sample that it delivered since the server's start.
    pub newest: Option<f64>,
    /// Samples that it delivered since the server's start.
    pub samples: u64,
    /// Failed writes since the server's start.
    pub failures: u64,
    /// Samples that its format leaves out since the server's start: of jobs of other clusters, of local jobs, beyond the limit of
    /// memory, and values that the receiver cannot take.
    pub samples_left_out: u64,
    /// Samples that it lost since it began.
    pub samples_lost: u64,
    /// The latest losses, oldest first; at most 100.
    pub gaps: Vec<OutputGap>,
    /// Samples that it sent again after broken connections, since the server's start.
    // An older server does not send it.
    #[serde(default)]
    #[schemars(required)]
    pub samples_resent: u64,
    /// The time range that was sent again last, then those that run or wait.
    #[serde(default)]
    #[schemars(required)]
    pub fills: Vec<OutputFill>,
    /// What its receiver rejected, and what it has set aside.
    #[serde(default)]
    #[schemars(required)]
    pub set_aside: OutputSetAside,
}

/// A time range that an output sends again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OutputFill {
    /// Its first instant.
    pub start: f64,
    /// Its last instant.
    pub end: f64,
    /// Only samples of this job.
    pub job: Option<String>,
    /// When it was requested.
    pub requested: f64,
    /// How far it is.
    pub state: OutputFillState,
    /// When all of it was sent.
    pub done: Option<f64>,
    /// Why it waits or failed.
    pub reason: Option<String>,
    /// Samples that were sent so far.
    pub samples: u64,
    /// All samples up to this instant are sent.
    pub sent_to: Option<f64>,
}

/// How far a time range is that an output sends again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OutputFillState {
    /// It waits for earlier ranges.
    Queued,
    /// It is being sent.
    Running,
    /// It waits for the receiver or the store.
    Waiting,
    /// All of it is sent.
    Done,
    /// The output was configured otherwise meanwhile.
    Failed,
}

/// Items that the receiver of an output rejected.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OutputSetAside {
    /// Items that are set aside.
    pub items: u64,
    /// Their bytes on the disk.
    pub bytes: u64,
    /// Items that were deleted since the server's start, because newer ones needed their space.
    pub deleted: u64,
    /// The receiver's message about the newest item.
    pub message: Option<String>,
    /// Whether a retry was requested that has not sent all of them yet.
    pub retrying: bool,
}

/// Samples that an output lost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OutputGap {
    /// The first instant that may be missing.
    pub start: f64,
    /// The last instant.
    pub end: f64,
    /// Number of samples.
    pub samples: u64,
    /// Why.
    pub reason: String,
}

/// A setting of the server that an agent rejects or shortens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SettingRejection {
    /// The setting, such as `sources.load.period`, `burst.cpu`, `promote.METRIC` or `flush.SOURCE`; empty: all settings.
    pub setting: String,
    /// `malformed`, `unknown`, `invalid`, `not_allowed` (by the node's own file), `unsupported` (by the source), `limit`
    /// (of the node), or `shortened`: the node applies it, but ends it earlier than requested.
    pub code: String,
    /// The reason, for people.
    pub reason: String,
}

/// A source, or a part of one, that yields no samples or fewer than it should.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SourceError {
    /// The source, or `source/part`.
    pub source: String,
    /// `denied`, `broken`, `parked` (a reading does not end), `off`, `throttled` (it exceeds its budget of processor
    /// time, so the agent reads it less often), or `absent` (the machine has nothing that the options of the source
    /// choose).
    pub state: String,
    /// The reason, and what to do.
    pub reason: String,
}

/// A source that a node does not read, or not in full, because of settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RestrictedSource {
    /// The source.
    pub source: String,
    /// `file`: the node's own file switches it off. `server`: the server does. `optional`: by the node's own file the
    /// agent reads it, or a part of it, only during a promotion, and no promotion covers all of it.
    pub reason: String,
    /// The optional metrics: expressions that match whole names.
    pub optional: Vec<String>,
}

/// An element of `GET /api/v1/catalogue`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MetricInfo {
    /// Name.
    pub name: String,
    /// Unit word; empty for a plain count.
    pub unit: String,
    /// `gauge` or `counter`.
    pub kind: String,
    /// One sentence.
    pub help: String,
}

/// An element of `GET /api/v1/gaps`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Gap {
    /// The sender of the missing samples.
    pub origin: String,
    /// The device.
    pub device: String,
    /// The source; empty for all sources.
    pub source: String,
    /// The last instant with samples before it.
    pub from: f64,
    /// The first instant with samples after it.
    pub to: f64,
    /// The cause.
    pub cause: String,
    /// Details, for people.
    pub detail: String,
}

/// The body of every error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// A code for scripts: PostgREST's or PostgreSQL's where Kwollect has one.
    pub code: String,
    /// The error, and what to do.
    pub message: String,
    /// Details, or `null`.
    pub details: Option<String>,
    /// A hint, or `null`.
    pub hint: Option<String>,
}
