//! Rows as Kwollect has them. The server writes them by itself, row by row as they come.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A row of `/rpc/get_metrics`.
#[derive(Clone, Debug, JsonSchema)]
pub struct MetricsRow {
    /// When, as PostgreSQL prints it in JSON, in the server's zone.
    pub timestamp: String,
    /// The device, or its alias.
    pub device_id: String,
    /// The metric.
    pub metric_id: String,
    /// The value; `null` when there is none.
    pub value: Option<Value>,
    /// The labels, `_job_id` and the like among them.
    pub labels: BTreeMap<String, serde_json::Value>,
}

/// A value of a row.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(untagged)]
pub enum Value {
    /// A number.
    Number(f64),
    /// `NaN`, `Infinity` or `-Infinity`, which JSON has no numbers for.
    Word(String),
}

/// A row of `/rpc/available_metrics`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Available {
    /// The device.
    pub device_id: String,
    /// A metric that it has.
    pub metric_id: String,
}
