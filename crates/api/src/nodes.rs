//! The server, the nodes, the catalogue and the gaps.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `GET /api/v1/ready`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ready {
    /// True: one that is not ready answers 503.
    pub ready: bool,
}

/// `GET /api/v1/health`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Health {
    /// Version of the server.
    pub version: String,
    /// `release`, or `development` for a build that no figure should be taken from.
    pub build: String,
    /// Whether it takes batches and answers questions.
    pub ready: bool,
    /// Seconds since its start.
    pub uptime_seconds: f64,
    /// Its clock, so that a reader can tell how old an answer is.
    pub now: f64,
    /// Nodes that report, of those known.
    pub nodes_alive: u64,
    /// Nodes known.
    pub nodes: u64,
    /// Jobs that run now.
    pub jobs_running: u64,
}

/// An element of `GET /api/v1/nodes`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Node {
    /// Its name.
    pub device: String,
    /// Whether it reported within three of its periods, or within 6 s where they are shorter.
    pub alive: bool,
    /// Whether its agent said that it ends: then it is no fault that it is silent. Known since this server's
    /// start.
    pub stopped: bool,
    /// Whether several agents send under its name, so that their samples are mixed: each node needs a `device` of its
    /// own.
    // A server of before does not say it.
    #[serde(default)]
    #[schemars(required)]
    pub conflict: bool,
    /// When its last batch came, by the server's clock.
    pub last_seen: Option<f64>,
    /// Seconds from one of its batches to the next at the longest, as its agent said with the last; of an agent
    /// that does not say so, as its samples came.
    pub period_seconds: Option<f64>,
    /// Its clock minus the server's, in seconds.
    pub clock_offset_seconds: Option<f64>,
    /// Version of its agent.
    pub agent_version: Option<String>,
    /// The generation of the server's settings that its agent runs by; 0 for none of them. A text of
    /// digits: it has 63 bits, and numbers of JavaScript lose all beyond 53.
    #[serde(with = "crate::text::digits")]
    #[schemars(schema_with = "crate::text::digits::schema")]
    pub config_generation: Option<u64>,
    /// What its agent refused of them, and why.
    pub config_refused: Option<String>,
    /// Its sources, and parts of them, that should give samples and give none, or fewer.
    pub troubles: Vec<SourceTrouble>,
    /// Its sources that settings keep from being read, or from being read whole; of an agent that does not say so,
    /// none.
    // A server of before does not say it.
    #[serde(default)]
    #[schemars(required)]
    pub unread: Vec<SourceUnread>,
    /// Series it sends.
    pub series: u64,
    /// Jobs that run on it.
    pub jobs: Vec<String>,
    /// Processor time used per second, all cores together; `null` when it is not known.
    pub cpu_cores_used: Option<f64>,
    /// Cores it has.
    pub cpu_cores: Option<f64>,
    /// Memory in use, in bytes.
    pub memory_used_bytes: Option<f64>,
    /// Memory it has, in bytes.
    pub memory_bytes: Option<f64>,
}

/// How the asking of a scheduler goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SchedulerState {
    /// No round of calls has ended yet.
    New,
    /// The last round did not fail.
    Good,
    /// The last round failed; it is asked again.
    Failing,
}

/// An element of `GET /api/v1/schedulers`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Scheduler {
    /// The name that its jobs bear.
    pub cluster: String,
    /// `oar` or `slurm`.
    pub kind: String,
    /// By which way it is asked: `database`, `rest` or `commands`.
    pub way: String,
    /// How it goes.
    pub state: SchedulerState,
    /// Why the last round failed; `null` when it did not, and for who may not read everything.
    pub trouble: Option<String>,
    /// When the last round that did not fail ended.
    pub last_good: Option<f64>,
    /// Seconds from one round to the next.
    pub period_seconds: f64,
    /// Rounds since the server's start that did not fail.
    pub rounds: u64,
    /// Rounds that failed.
    pub rounds_failed: u64,
    /// Calls, statements or programs of the rounds that did not fail.
    pub calls: u64,
    /// Records of jobs that the registry took; one that is told again counts again.
    pub records: u64,
    /// Records that were refused, since they tell what cannot be.
    pub records_refused: u64,
    /// The last of them, in words, for who may read everything.
    pub refused: Vec<String>,
}

/// A source, or a part of one, that should give samples and gives none, or fewer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SourceTrouble {
    /// The source, or `source/part`.
    pub source: String,
    /// `denied`, `broken`, `parked` (a reading does not end), `off`, or `slowed`: it costs more than it may, and is
    /// read more rarely.
    pub state: String,
    /// Why, and what to do.
    pub why: String,
}

/// A source that a node does not read, or of which it does not read all, since settings say so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SourceUnread {
    /// The source.
    pub source: String,
    /// Which: `file`, the node's own file switches it off; `server`, the server does; `optional`, the node's own
    /// file says that it, or a part of it, is read only while a promotion asks for it, and of some none does.
    pub why: String,
    /// What is optional: expressions for whole names of metrics.
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
    /// Who should have sent.
    pub origin: String,
    /// Of which device.
    pub device: String,
    /// Of which source; empty for every source.
    pub source: String,
    /// The last instant with samples before it.
    pub from: f64,
    /// The first instant with samples after it.
    pub to: f64,
    /// Why, in words.
    pub cause: String,
    /// More, for people.
    pub detail: String,
}

/// The body of every answer that is an error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// A code that scripts may match: PostgREST's or PostgreSQL's where Kwollect has one.
    pub code: String,
    /// What is wrong, and what to do.
    pub message: String,
    /// More, or `null`.
    pub details: Option<String>,
    /// A hint, or `null`.
    pub hint: Option<String>,
}
