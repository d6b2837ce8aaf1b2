//! Job updates from scripts and files that stand in for a scheduler, and disagreements between scheduler and nodes.

use crate::param::{CLUSTER, JOB_STATES, NAME_LENGTH_MAX};
use crate::{NodeShare, Register, Resources, Step};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

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
    /// `not_seen`: the scheduler reports that the job runs there, but the node has no cgroup of it. If the node has one:
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
