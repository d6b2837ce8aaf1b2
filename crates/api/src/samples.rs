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
    /// The cluster of its job, if it is attributed to one.
    pub cluster: Option<String>,
    /// The job ID.
    pub job: Option<i64>,
    /// The labels.
    pub labels: BTreeMap<String, String>,
    /// Unit word.
    pub unit: String,
    /// `gauge` or `counter`.
    pub kind: String,
}

/// An element of `GET /api/v1/last`: the latest value of a series.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Last {
    /// Which series.
    #[serde(flatten)]
    pub series: SeriesInfo,
    /// When the agent read it.
    pub time: f64,
    /// Its value; `null` if not a number.
    pub value: Option<f64>,
}

/// `GET /api/v1/range`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Range {
    /// The start, inclusive. Points from rollups are whole steps: then the start of the first one.
    pub start: f64,
    /// The end, inclusive; with rollups the end of the last whole step.
    pub end: f64,
    /// Seconds between two points; 0: every sample unchanged.
    pub step_seconds: f64,
    /// Interval of the rollups that the points were computed from: 300 or 3600; 0 if computed from samples.
    pub rollup_seconds: f64,
    /// The series with a sample in the range.
    pub series: Vec<RangeSeries>,
    /// Gaps in the range, of the devices and jobs of these series.
    pub gaps: Vec<crate::Gap>,
    /// Whether the limit of series or points cut the answer. A smaller query returns everything.
    pub truncated: bool,
}

/// The points of one series.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RangeSeries {
    /// Which series.
    #[serde(flatten)]
    pub series: SeriesInfo,
    /// Unit of the values: the metric's, or `UNIT/s` for a rate.
    pub value_unit: String,
    /// The metric's meaning.
    pub help: String,
    /// Times, ascending.
    pub times: Vec<f64>,
    /// Values; `null` where there is none, so that a plot shows the gap.
    pub values: Vec<Option<f64>>,
    /// Rates only: seconds that each value covers; the sum of value × seconds is the counter's increase. The first and
    /// the last step of a range may be covered in part. 0 where there is no value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seconds: Vec<f64>,
    /// With `totals`: the totals of the requested range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub totals: Option<SeriesTotals>,
}

/// Totals of a series over a time range; `null` where there is none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SeriesTotals {
    /// Gauges: the value times the seconds, with a line between samples at most 10 minutes apart: joules for watts.
    pub integral: Option<f64>,
    /// Gauges: the integral divided by its seconds; without a line the mean of the samples. Counters: the increase per
    /// second.
    pub mean: Option<f64>,
    /// Gauges: the smallest value.
    pub min: Option<f64>,
    /// Gauges: the largest value.
    pub max: Option<f64>,
    /// Counters: the growth, also across restarts.
    pub increase: Option<f64>,
    /// The seconds that integral, mean and increase cover.
    pub seconds: f64,
    /// Number of samples.
    pub samples: u64,
}

/// An element of `GET /api/v1/explain`: the origin of a series. All counts refer to the time range of the request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Explanation {
    /// Which series.
    #[serde(flatten)]
    pub series: SeriesInfo,
    /// The metric's meaning.
    pub help: String,
    /// The source of the node's agent that reads it; `null` if unknown.
    pub source: Option<String>,
    /// Number of failed readings of the source.
    pub source_errors: Option<f64>,
    /// The latest error of the source that the agent reported since the server's start; `null` if none.
    pub last_error: Option<LastError>,
    /// The origins that send samples of its device.
    pub senders: Vec<Sender>,
    /// The polls of its device, where no agent reads the metric.
    // An older server does not send it.
    #[serde(default)]
    #[schemars(required)]
    pub polls: Vec<crate::Device>,
    /// Median distance of its latest samples in seconds; of ten distances at most.
    pub period_seconds: Option<f64>,
    /// Number of samples.
    pub samples: u64,
    /// When the agent read the latest one.
    pub time: Option<f64>,
    /// Its value; `null` if not a number.
    pub value: Option<f64>,
    /// The start of the counter, if known.
    pub counter_start: Option<f64>,
    /// The latest gaps of its source, 20 at most.
    pub gaps: Vec<crate::Gap>,
    /// Number of gaps.
    pub gaps_count: u64,
}

/// The latest error of a source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LastError {
    /// When the agent last reported it, by the server's clock.
    pub time: f64,
    /// `denied`, `broken`, `parked` (a reading does not end) or `off`.
    pub state: String,
    /// The reason, and what to do.
    pub reason: String,
}

/// An origin that sends samples of a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sender {
    /// Its name.
    pub origin: String,
    /// When the server received its latest batch, by the server's clock.
    pub last_seen: f64,
    /// Samples of all its devices that the server rejected.
    // An older server does not send it.
    #[serde(default)]
    #[schemars(required)]
    pub samples_rejected: u64,
}

/// Header of an answer to [`SqlQuery`]: the positions of its time columns, from 0, with commas between them.
pub const TIME_COLUMNS: &str = "x-jobmeter-time-columns";

/// Body of `POST /api/v1/sql`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SqlQuery {
    /// One SELECT statement, or EXPLAIN of one.
    pub query: String,
    /// Time zone of the statement and its answer: a name (`Europe/Paris`) or an offset (`+01:00`). Default: the
    /// server's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub time_zone: Option<String>,
}
