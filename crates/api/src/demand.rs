//! On-demand requests to agents: setting overrides, promotions of optional metrics, flushes of bursts; and the history
//! of such requests.

use crate::EntryErrors;
use crate::param::DEVICE;
use crate::text::unique_keys::unique_keys;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The body of `POST /api/v1/settings`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Set {
    /// The nodes or polled devices to change: `dahu-[1-32],x[01-04],gpu-*`.
    #[schemars(length(min = 1, max = 16384))]
    pub nodes: String,
    /// Duration of the change in seconds; 30 days at most.
    #[schemars(range(min = 1, max = 2_592_000))]
    pub for_seconds: f64,
    /// Changes by source name: of agents, and the protocols of pollers, which have the setting `period_seconds` only. A
    /// source that runs a program (`exec`) is rejected.
    #[serde(default, deserialize_with = "unique_keys")]
    #[schemars(length(max = 100), extend("propertyNames" = {"pattern": WORD}))]
    pub sources: BTreeMap<String, SetSource>,
    /// Sources whose latest seconds the agent keeps in memory at a high rate, by source name.
    #[serde(default, deserialize_with = "unique_keys")]
    #[schemars(length(max = 100), extend("propertyNames" = {"pattern": WORD}))]
    pub bursts: BTreeMap<String, SetBurst>,
}

/// Pattern of the name of a source or event.
pub const WORD: &str = model::WORD;

/// Changes to one source; `null` changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetSource {
    /// Whether the agent reads the source.
    #[serde(default)]
    pub enabled: Option<bool>,
    /// Period in seconds.
    #[serde(default)]
    #[schemars(range(min = 0.001, max = 86400))]
    pub period_seconds: Option<f64>,
    /// Events to count; `perf` only.
    #[serde(default)]
    #[schemars(length(max = 100), inner(length(min = 1, max = 100), regex(pattern = "^[!-~]+$")))]
    pub events: Option<Vec<String>>,
}

/// How the agent keeps the latest seconds of a source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetBurst {
    /// Period of reading in seconds.
    #[schemars(range(min = 0.001, max = 60))]
    pub period_seconds: f64,
    /// How many seconds the agent keeps.
    #[schemars(range(min = 1, max = 3600))]
    pub keep_seconds: f64,
    /// Events that send them, beside `POST /api/v1/flushes`: `job_start`, `job_end`.
    #[serde(default)]
    #[schemars(length(max = 2))]
    pub flush_on: Vec<FlushOn>,
}

/// An event that sends a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FlushOn {
    /// A job starts on the node.
    JobStart,
    /// A job ends on the node.
    JobEnd,
}

/// An element of `GET /api/v1/settings`: a change in force.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SetChange {
    /// The ID of the change.
    pub id: i64,
    /// The nodes that it changes.
    pub nodes: String,
    /// The changed settings: one element for each source.
    pub settings: Vec<ChangedSource>,
    /// When it was created.
    pub created: f64,
    /// The caller who created it.
    pub created_by: String,
    /// When it expires.
    pub until: f64,
    /// Number of these nodes that have sent a batch since the server started, and of the devices that pollers read by
    /// the changed sources.
    pub nodes_known: u64,
    /// Number of those that apply all of it, some for a shorter time.
    pub nodes_applied: u64,
    /// Settings of any change that these nodes rejected, and settings of this change that exceed a node's limits; 100 at
    /// most.
    pub rejected: Vec<SetRejection>,
    /// Nodes that apply this change for a shorter time than requested; 100 at most.
    // An older server does not send it.
    #[serde(default)]
    #[schemars(required)]
    pub shortened: Vec<SetShortened>,
    /// Devices of pollers to which a later change applies instead; 100 at most.
    #[serde(default)]
    #[schemars(required)]
    pub superseded: Vec<SetSuperseded>,
}

/// The settings of one source in a change. `null`: the change does not set it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChangedSource {
    /// The source.
    pub source: String,
    /// Whether the agent reads it.
    pub enabled: Option<bool>,
    /// Its period in seconds.
    pub period_seconds: Option<f64>,
    /// The events that it counts.
    pub events: Option<Vec<String>>,
    /// Its burst.
    pub burst: Option<ChangedBurst>,
}

/// The burst of a source in a change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChangedBurst {
    /// Period of reading in seconds.
    pub period_seconds: Option<f64>,
    /// How many seconds the agent keeps.
    pub keep_seconds: Option<f64>,
    /// Events that send them, beside `POST /api/v1/flushes`: `job_start`, `job_end`.
    pub flush_on: Option<Vec<String>>,
}

/// A change that a node ends earlier than requested.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SetShortened {
    /// The node.
    pub device: String,
    /// When the change ends on the node.
    pub until: f64,
    /// The node's limit.
    pub reason: String,
}

/// A device of a poller to which a later change applies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SetSuperseded {
    /// The device.
    pub device: String,
    /// The source.
    pub source: String,
    /// The ID of the change that applies.
    pub by: i64,
    /// The poller that applies it, if several read the device.
    pub poller: Option<String>,
}

/// A setting that a node, or the poller of a device, rejects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SetRejection {
    /// The node or device.
    pub device: String,
    /// The source; `null`: all settings.
    pub source: Option<String>,
    /// The setting of the source: `enabled`, `period`, `events`, `burst`, or of its burst `burst_period`, `burst_keep`,
    /// `burst_flush_on` or `burst_until`; `null`: all of them.
    pub setting: Option<String>,
    /// `malformed`, `unknown`, `invalid`, `not_allowed` (by the own file of the node or poller), `unsupported` (by the source) or `limit`
    /// (of the node).
    pub code: String,
    /// The reason, for people.
    pub reason: String,
}

/// Answer to a request that creates or ends a change, a promotion or a flush.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChangeReceipt {
    /// The ID of the change, promotion or flush.
    pub id: i64,
    /// Number of its nodes that have sent a batch since the server started; of a change also of the devices that pollers
    /// read by the changed sources.
    pub nodes_known: u64,
    /// Number of those that report now: they are neither silent nor stopped, nor is their poller silent.
    pub nodes_reporting: u64,
    /// Of a change: number of known nodes that receive only a part of it, because a node accepts bursts of 4 sources and
    /// 64 KiB of settings. `rejected` in `GET /api/v1/settings` names the nodes and the settings.
    // An older server does not send it.
    #[serde(default)]
    #[schemars(required)]
    pub nodes_full: u64,
    /// Of a change of sources of pollers: names of the list that no poller reads by these sources, and that have no agent
    /// with one of them; 100 at most. A name with a star is not checked.
    #[serde(default)]
    #[schemars(required)]
    pub not_polled: Vec<String>,
}

/// The body of `POST /api/v1/flushes`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FlushNow {
    /// The nodes; of `wattmetre` the ports, or the nodes that they feed: `dahu-[1-32],x[01-04],gpu-*`.
    #[schemars(length(min = 1, max = 16384))]
    pub nodes: String,
    /// The source to flush; `wattmetre`: the samples that feeds of wattmeters keep.
    #[schemars(regex(pattern = WORD))]
    pub source: String,
}

/// The body of `POST /api/v1/promotions`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Promote {
    /// The metrics: a regular expression that matches whole names.
    #[schemars(length(min = 1, max = 200))]
    pub metric: String,
    /// The nodes: `dahu-[1-32],x[01-04],gpu-*`. Default: the nodes of the job, or of the user's jobs.
    #[serde(default)]
    #[schemars(length(min = 1, max = 16384))]
    pub nodes: Option<String>,
    /// The job, `[CLUSTER:]ID`: the promotion applies to its nodes until it ends.
    #[serde(default)]
    #[schemars(regex(pattern = crate::param::JOB))]
    pub job: Option<String>,
    /// Duration in seconds. Default: 3600.
    #[serde(default)]
    #[schemars(range(min = 1, max = 2_592_000))]
    pub for_seconds: Option<f64>,
}

/// An element of `GET /api/v1/promotions`: a promotion in force.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Promoted {
    /// The ID of the promotion.
    pub id: i64,
    /// Its nodes.
    pub nodes: String,
    /// Its metrics: a regular expression.
    pub metric: String,
    /// When it was created.
    pub created: f64,
    /// The caller who created it.
    pub created_by: String,
    /// When it expires; `null`: when its job ends, or on request.
    pub until: Option<f64>,
    /// The origin: `api`, `job`, `rule` or `hand`.
    pub origin: String,
    /// The job that it applies to, `CLUSTER:ID`.
    pub job: Option<String>,
    /// The reason why it promotes nothing: an invalid expression.
    pub error: Option<String>,
    /// Nodes that reject it; 100 at most.
    // An older server sends neither list.
    #[serde(default)]
    #[schemars(required)]
    pub rejected: Vec<SetRejection>,
    /// Nodes that apply it for a shorter time than requested; 100 at most.
    #[serde(default)]
    #[schemars(required)]
    pub shortened: Vec<SetShortened>,
}

/// An element of `GET /api/v1/marks`: the start or the end of an on-demand request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Mark {
    /// The time.
    pub at: f64,
    /// `set`, `undone`, `expired`, `promoted`, `demoted` or `flushed`.
    pub kind: String,
    /// The ID of the change, promotion or flush.
    pub id: i64,
    /// Its nodes.
    pub nodes: String,
    /// Its settings, expression or source.
    pub text: String,
    /// The caller; `null` where it ended by itself, and for readers who may not see the caller.
    pub actor: Option<String>,
    /// The job that it applies to, `CLUSTER:ID`, if the reader may see it.
    pub job: Option<String>,
}

/// A row of Kwollect's `update_promoted_metrics`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct PromotedRow {
    /// The node.
    pub device_id: String,
    /// The metrics, as a regular expression.
    pub metric_id: String,
}

/// Body of `POST /v1/poller/promotions`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PollerRequest {
    /// The name of the poller.
    #[schemars(regex(pattern = DEVICE))]
    pub poller: String,
    /// The devices and nodes of the requested promotions. Without them, the answer has only the version.
    #[schemars(length(max = 20_000))]
    pub names: Option<Vec<String>>,
    /// Whether the answer lists the names with jobs.
    #[serde(default)]
    pub busy: bool,
    /// Whether the answer lists the names with an agent.
    #[serde(default)]
    pub agents: bool,
    /// `newest_change` of the latest answer with changes; 0 before.
    #[serde(default)]
    pub applied: i64,
    /// What the poller's own file rejects or shortens of the changes that it received.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub rejected: Vec<PollerRejection>,
    /// The errors in its description files, after a change of them and while there are any at least every 30 s; absent:
    /// unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry_errors: Option<EntryErrors>,
}

impl PollerRequest {
    /// Largest number of names.
    pub const NAMES_MAX: usize = 20_000;
    /// Largest number of promotions of a name.
    pub const OF_NAME_MAX: usize = 16;
    /// Largest number of rejections.
    pub const REJECTED_MAX: usize = 64;
    /// Largest size of an answer, in bytes.
    pub const ANSWER_BYTES_MAX: u64 = 16 << 20;
}

/// A change that a poller rejects, or ends earlier than requested.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PollerRejection {
    /// The ID of the change.
    pub change: i64,
    /// The source: the name of a protocol.
    #[schemars(regex(pattern = WORD))]
    pub source: String,
    /// `invalid`, `not_allowed` or `shortened`.
    pub code: String,
    /// The reason, for people.
    #[schemars(length(max = 200))]
    pub reason: String,
    /// When a shortened change ends.
    #[serde(default)]
    pub until: Option<f64>,
}

impl PollerRejection {
    /// Whether source and reason are as the document describes them.
    pub fn is_bounded(&self) -> bool {
        model::is_word(&self.source) && self.reason.chars().count() <= 200
    }
}

/// The promotions and changes of periods in force.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PollerPromotions {
    /// It differs after each change of a promotion or of a period, and after a flush.
    pub version: String,
    /// The promotions of the requested names; absent if none were requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promotions: Option<Vec<PollerPromotion>>,
    /// The changed periods of the requested names; absent if none were requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub periods: Option<Vec<PollerPeriod>>,
    /// The flushes of wattmeters in the last 10 min for the requested names; absent if none were requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flushes: Option<Vec<PollerFlush>>,
    /// The largest ID of a change of periods in force; 0: none.
    #[serde(default)]
    pub newest_change: i64,
    /// The requested names with a job that has not ended, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy: Option<Vec<String>>,
    /// The requested names that have an agent which reports, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agents: Option<Vec<String>>,
}

/// A promotion of some names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PollerPromotion {
    /// The regular expression.
    pub metric: String,
    /// Until when it holds. The answer to a request one hour later extends a promotion without an end.
    pub until: f64,
    /// The names, of those requested.
    pub names: Vec<String>,
}

/// A flush of the latest samples of a wattmeter's ports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PollerFlush {
    /// The ID of the flush.
    pub id: i64,
    /// When it was requested, in seconds since 1970. A feed that began later ignores it.
    pub made: f64,
    /// The ports, or the nodes that they feed, of the requested names.
    pub names: Vec<String>,
}

/// The period of the polls of some names by one protocol, for a time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PollerPeriod {
    /// The ID of the change.
    pub change: i64,
    /// The source: the name of the protocol.
    pub source: String,
    /// The period in seconds.
    pub period_seconds: f64,
    /// Until when it holds. The answer to a request one hour later extends a change that lasts longer than 12 hours.
    pub until: f64,
    /// The end of the change. A poller compares it with its own limit.
    #[serde(default)]
    pub end: Option<f64>,
    /// The names, of those requested.
    pub names: Vec<String>,
}
