//! What somebody in a scheduler's place says of a job.

use crate::param::{CLUSTER, JOB_STATES, NAME_LENGTH_MAX};
use crate::{NodeShare, Register, Resources, Step};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

/// Body of `POST /api/v1/jobs` for a job that is not `local`, and a line of the file `schedulers.file`: a job
/// is submitted, starts, ends, or is corrected. Who may: administrators, and tokens of
/// scope `jobs`, of their cluster where they name one.
///
/// What is left out, or `null`, stays as it was said before. Without `submit` the newest submission of the
/// number is meant, unless that ended before this `start`: then the number was given again. Without `state`
/// the job is over when `stop` is said, runs when `start` is, and else is what it was, at first waiting.
/// Times are seconds since 1970, from 2000 to a day from now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JobTold {
    /// Whose number: a name for the scheduler, but not `local`.
    #[schemars(length(min = 1, max = NAME_LENGTH_MAX), regex(pattern = CLUSTER))]
    pub cluster: String,
    /// The number.
    #[schemars(range(min = 1))]
    pub id: i64,
    /// When it was submitted.
    #[schemars(range(min = 946_684_800.0))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub submit: Option<f64>,
    /// The number as the scheduler writes it, such as `123_4`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spelling: Option<String>,
    /// The number of the array, or of the heterogeneous job, that it is a part of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part_of: Option<i64>,
    /// Which element of its array.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub array_index: Option<i64>,
    /// Login name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The user's number; that of the login name on the server when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// Who pays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// The project.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// What the user called it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The queue or partition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// `waiting`, `running`, `ended` or `failed`.
    #[schemars(schema_with = "state")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// The scheduler's own word for that.
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
    /// Words that it was submitted with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub types: Option<Vec<String>>,
    /// What was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested: Option<Resources>,
    /// What was used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used: Option<Resources>,
    /// Where: all of its devices, also those that are no nodes, such as a power meter.
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
    let (told, own) = (generator.subschema_for::<JobTold>(), generator.subschema_for::<Register>());
    schemars::json_schema!({"anyOf": [told, own]})
}

/// An element of `GET /api/v1/jobs/check`: what a scheduler and a node say differently of a job of now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Disagreement {
    /// Whose number.
    pub cluster: String,
    /// The number.
    pub id: i64,
    /// On which device.
    pub device: String,
    /// `not_seen`: it runs there, says the scheduler, and the node has no cgroup of it. The node has one:
    /// `not_known`: the scheduler knows no such job; `not_running`: it says that the job is over or waits;
    /// `other_node`: it gave the job other nodes; `other_user`: the job is another user's.
    pub difference: String,
    /// Since when.
    pub since: f64,
    /// What the scheduler says.
    pub scheduler: String,
    /// What the node says.
    pub node: String,
}
