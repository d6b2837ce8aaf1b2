//! Rows in Kwollect's form. The server streams them row by row.

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

/// A row of `/rpc/available_metrics`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Available {
    /// The device.
    pub device_id: String,
    /// A metric of the device.
    pub metric_id: String,
}
