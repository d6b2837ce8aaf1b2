//! Rows in Kwollect's form. The server streams them row by row.

use crate::param::{DEVICE, METRIC, METRIC_LENGTH_MAX, NAME_LENGTH_MAX};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A row of `/rpc/get_metrics`.
#[derive(Clone, Debug, JsonSchema)]
pub struct MetricsRow {
    /// The time, as PostgreSQL prints it in JSON, in the server's time zone.
    pub timestamp: String,
    /// The device, or its alias.
    pub device_id: String,
    /// The metric.
    pub metric_id: String,
    /// The value; `null` if there is none.
    pub value: Option<Value>,
    /// The labels, including those such as `_job_id`.
    pub labels: BTreeMap<String, serde_json::Value>,
}

/// A value of a row.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(untagged)]
pub enum Value {
    /// A number.
    Number(f64),
    /// `NaN`, `Infinity` or `-Infinity`, which JSON cannot express as numbers.
    Word(String),
}

/// A row that `/rpc/insert_metrics` stores.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct NewRow {
    /// The device.
    #[schemars(regex(pattern = DEVICE), length(max = NAME_LENGTH_MAX))]
    pub device_id: String,
    /// The metric. Its name states kind and unit, unless another sender declares them.
    #[schemars(regex(pattern = METRIC), length(max = METRIC_LENGTH_MAX))]
    pub metric_id: String,
    /// The time: a text, or seconds since 1970. Default: now.
    pub timestamp: Option<RowTime>,
    /// The value. Default: `NaN`.
    pub value: Option<Value>,
    /// The labels. Default: none.
    pub labels: Option<BTreeMap<String, serde_json::Value>>,
}

/// A row that `/rpc/insert_user_metrics` stores.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct NewUserRow {
    /// A node of a running job of the user.
    #[schemars(regex(pattern = DEVICE), length(max = NAME_LENGTH_MAX))]
    pub device_id: String,
    /// The metric, which no sender but users may have.
    #[schemars(regex(pattern = METRIC), length(max = METRIC_LENGTH_MAX))]
    pub metric_id: String,
    /// The time: a text, or seconds since 1970. Default: now.
    pub timestamp: Option<RowTime>,
    /// The value. Default: `NaN`.
    pub value: Option<Value>,
    /// The labels. Each key begins with a letter or a digit. Default: none.
    pub labels: Option<BTreeMap<String, serde_json::Value>>,
    /// The user's running job to which the sample is attributed. Default: none, and the label `_user` is added.
    pub job_id: Option<JobText>,
}

/// The time of a row.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(untagged)]
pub enum RowTime {
    /// Seconds since 1970.
    Seconds(f64),
    /// A text as PostgreSQL's `timestamptz` accepts it.
    Text(String),
}

/// The job of a row.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(untagged)]
pub enum JobText {
    /// Its ID.
    Id(i64),
    /// `[CLUSTER:]ID`.
    Name(String),
}

/// A row of `/rpc/available_metrics`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Available {
    /// The device.
    pub device_id: String,
    /// A metric of the device.
    pub metric_id: String,
}
