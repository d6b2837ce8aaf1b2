//! What is asked of agents: other settings for a time, optional metrics, the rest of a burst; and what was
//! asked of them before.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The body of `POST /api/v1/settings`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Set {
    /// Of which nodes: `dahu-[1-32],x[01-04],gpu-*`.
    #[schemars(length(min = 1, max = 16384))]
    pub nodes: String,
    /// For how long, in seconds; thirty days at most.
    #[schemars(range(min = 1, max = 2_592_000))]
    pub for_seconds: f64,
    /// What of each source, by its word.
    #[serde(default)]
    #[schemars(length(max = 100), extend("propertyNames" = {"pattern": WORD}))]
    pub sources: BTreeMap<String, SetSource>,
    /// Of which sources the last seconds are kept at a high rate in memory.
    #[serde(default)]
    #[schemars(length(max = 100), extend("propertyNames" = {"pattern": WORD}))]
    pub bursts: BTreeMap<String, SetBurst>,
}

/// The word of a source or event.
pub const WORD: &str = "^[a-z0-9_]{1,64}$";

/// What is changed of a source; what is `null` stays.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetSource {
    /// Whether it is read.
    #[serde(default)]
    pub enabled: Option<bool>,
    /// How often, in seconds.
    #[serde(default)]
    #[schemars(range(min = 0.01, max = 86400))]
    pub period_seconds: Option<f64>,
    /// What it counts; of `perf` only.
    #[serde(default)]
    #[schemars(length(max = 100), inner(length(min = 1, max = 100), regex(pattern = "^[!-~]+$")))]
    pub events: Option<Vec<String>>,
}

/// How the last seconds of a source are kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetBurst {
    /// How often it is read, in seconds.
    #[schemars(range(min = 0.01, max = 86400))]
    pub period_seconds: f64,
    /// How many of the last seconds are kept.
    #[schemars(range(min = 0.1, max = 3600))]
    pub keep_seconds: f64,
    /// What sends them beside `POST /api/v1/flushes`: `job_start`, `job_end`.
    #[serde(default)]
    #[schemars(length(max = 2))]
    pub flush_on: Vec<FlushOn>,
}

/// What sends a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FlushOn {
    /// A job begins on the node.
    JobStart,
    /// A job ends on the node.
    JobEnd,
}

/// An element of `GET /api/v1/settings`: a change that holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SetChange {
    /// Its number.
    pub number: i64,
    /// Of which nodes.
    pub nodes: String,
    /// What: lines such as `sources.load.period = "1s"`.
    pub settings: Vec<String>,
    /// Since when.
    pub made: f64,
    /// By whom.
    pub by: String,
    /// Until when.
    pub until: f64,
    /// How many of these nodes sent since the server started.
    pub nodes_known: u64,
    /// How many of those took all of it.
    pub nodes_taken: u64,
    /// What nodes refused of all that they were told, and what of this change they are not told, as they take no more;
    /// a hundred at most.
    pub refused: Vec<SetRefused>,
}

/// What a node refused of what it was told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SetRefused {
    /// Which node.
    pub device: String,
    /// Why, in its words.
    pub why: String,
}

/// The answer of what was numbered: made, or ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Numbered {
    /// Its number.
    pub number: i64,
    /// How many of its nodes sent since the server started.
    pub nodes_known: u64,
    /// How many of those report now: they are neither silent nor stopped.
    pub nodes_reporting: u64,
    /// Of a change: how many of those that sent are not told all of it, as they take no more: bursts of four sources,
    /// and 64 KiB of settings. `refused` in `GET /api/v1/settings` says which, and of what.
    // A server of before does not say it.
    #[serde(default)]
    #[schemars(required)]
    pub nodes_full: u64,
}

/// The body of `POST /api/v1/flushes`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FlushNow {
    /// Of which nodes: `dahu-[1-32],x[01-04],gpu-*`.
    #[schemars(length(min = 1, max = 16384))]
    pub nodes: String,
    /// Of which source.
    #[schemars(regex(pattern = WORD))]
    pub source: String,
}

/// The body of `POST /api/v1/promotions`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Promote {
    /// Which metrics: a regular expression that matches whole names.
    #[schemars(length(min = 1, max = 200))]
    pub metric: String,
    /// On which nodes: `dahu-[1-32],x[01-04],gpu-*`; left out: on those of the job, or of the user's jobs.
    #[serde(default)]
    #[schemars(length(min = 1, max = 16384))]
    pub nodes: Option<String>,
    /// For this job, `[CLUSTER:]ID`: on its nodes, and until it ends.
    #[serde(default)]
    #[schemars(regex(pattern = crate::param::JOB))]
    pub job: Option<String>,
    /// For how long, in seconds; an hour when left out.
    #[serde(default)]
    #[schemars(range(min = 1, max = 2_592_000))]
    pub for_seconds: Option<f64>,
}

/// An element of `GET /api/v1/promotions`: a promotion that holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Promoted {
    /// Its number.
    pub number: i64,
    /// On which nodes.
    pub nodes: String,
    /// Which metrics.
    pub metric: String,
    /// Since when.
    pub made: f64,
    /// By whom.
    pub by: String,
    /// Until when; `null`: until its job ends, or somebody ends it.
    pub until: Option<f64>,
    /// `api`, `job`, `rule` or `hand`.
    pub origin: String,
    /// The job it is for, `CLUSTER:ID`.
    pub job: Option<String>,
    /// Why it promotes nothing: its expression is none.
    pub error: Option<String>,
}

/// An element of `GET /api/v1/marks`: something that was asked of nodes, or ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Mark {
    /// When.
    pub at: f64,
    /// `set`, `undone`, `expired`, `promoted`, `demoted` or `flushed`.
    pub kind: String,
    /// The number of the change, promotion or flush.
    pub number: i64,
    /// To which nodes.
    pub nodes: String,
    /// Settings, an expression, a source.
    pub text: String,
    /// By whom; `null` where it ended by itself, or is not this reader's to know.
    pub by: Option<String>,
    /// The job it is for, `CLUSTER:ID`, where this reader may see it.
    pub job: Option<String>,
}

/// A row of Kwollect's `update_promoted_metrics`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct PromotedRow {
    /// The node.
    pub device_id: String,
    /// Which metrics, as a regular expression.
    pub metric_id: String,
}
