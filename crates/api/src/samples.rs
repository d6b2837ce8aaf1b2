//! Series and their samples.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// An element of `GET /api/v1/series`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SeriesInfo {
    /// The device.
    pub device: String,
    /// The metric.
    pub metric: String,
    /// The job's cluster, if it was counted for a job.
    pub cluster: Option<String>,
    /// The job's number.
    pub job: Option<i64>,
    /// The labels.
    pub labels: BTreeMap<String, String>,
    /// Unit word.
    pub unit: String,
    /// `gauge` or `counter`.
    pub kind: String,
}

/// An element of `GET /api/v1/last`: the newest value of a series.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Last {
    /// Which series.
    #[serde(flatten)]
    pub series: SeriesInfo,
    /// When it was read.
    pub time: f64,
    /// Its value; `null` when it is no number.
    pub value: Option<f64>,
}

/// `GET /api/v1/range`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Range {
    /// From when, inclusive.
    pub start: f64,
    /// Until when, inclusive.
    pub end: f64,
    /// Seconds between two points; 0: every sample as it is.
    pub step_seconds: f64,
    /// Seconds of the rollups that the points were made of: 300, 3600, or 0 where they were made of samples.
    pub rollup_seconds: f64,
    /// One for each series that has a sample in the range.
    pub series: Vec<RangeSeries>,
    /// What is missing in the range, of the devices and jobs of these series.
    pub gaps: Vec<crate::Gap>,
    /// Whether the limit of series or points cut the answer; ask for less to see all.
    pub truncated: bool,
}

/// The points of one series.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RangeSeries {
    /// Which series.
    #[serde(flatten)]
    pub series: SeriesInfo,
    /// Unit of the values: the metric's, or `UNIT/s` for a counter asked for as a rate.
    pub value_unit: String,
    /// The metric's meaning.
    pub help: String,
    /// Times, ascending.
    pub times: Vec<f64>,
    /// Values; `null` where the time has none, so that a gap is drawn as a gap.
    pub values: Vec<Option<f64>>,
    /// Rates: seconds that each value covers, so that the sum of value × seconds is the counter's increase; the
    /// first and the last step of a range may be covered in part. 0 where there is no value. Absent for values
    /// that are no rates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seconds: Vec<f64>,
}

/// An element of `GET /api/v1/explain`: where a series comes from. What is counted is counted in the interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Explanation {
    /// Which series.
    #[serde(flatten)]
    pub series: SeriesInfo,
    /// The metric's meaning.
    pub help: String,
    /// The source of the node's agent that reads it; `null` where the agent tells of none.
    pub source: Option<String>,
    /// How often a reading of the source failed.
    pub source_errors: Option<f64>,
    /// The last trouble that the agent told of the source since the server's start; `null` where it told of none.
    pub last_error: Option<LastError>,
    /// Who sends samples of its device.
    pub senders: Vec<Sender>,
    /// Seconds between two of its samples.
    pub period_seconds: Option<f64>,
    /// How many samples there are.
    pub samples: u64,
    /// When the newest was read.
    pub time: Option<f64>,
    /// Its value; `null` when it is no number.
    pub value: Option<f64>,
    /// Since when the counter counts, where it tells.
    pub counted_from: Option<f64>,
    /// The newest gaps of its source, 20 at most.
    pub gaps: Vec<crate::Gap>,
    /// How many gaps there are.
    pub gaps_count: u64,
}

/// The last trouble of a source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LastError {
    /// When the agent told of it last, by the server's clock.
    pub time: f64,
    /// `denied`, `broken`, `parked` (a reading does not end) or `off`.
    pub state: String,
    /// Why, and what to do.
    pub why: String,
}

/// Who sends samples of a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sender {
    /// Its name.
    pub origin: String,
    /// When its last batch came, by the server's clock.
    pub last_seen: f64,
}

/// Body of `POST /api/v1/sql`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SqlQuestion {
    /// One SELECT statement, or EXPLAIN of one.
    pub query: String,
}
