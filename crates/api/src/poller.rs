//! Promotions for pollers: of the devices that they read, and of the nodes that these devices feed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Body of `POST /v1/poller/promotions`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PollerRequest {
    /// The name of the poller.
    pub poller: String,
    /// The devices and nodes whose promotions are requested. Without them, the answer has only the version.
    #[schemars(length(max = 20_000))]
    pub names: Option<Vec<String>>,
    /// Whether the answer lists the names with jobs.
    #[serde(default)]
    pub busy: bool,
}

impl PollerRequest {
    /// Largest number of names.
    pub const NAMES_MAX: usize = 20_000;
    /// Largest number of promotions of a name.
    pub const OF_NAME_MAX: usize = 16;
    /// Largest size of an answer, in bytes.
    pub const ANSWER_BYTES_MAX: u64 = 16 << 20;
}

/// The promotions in force.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PollerPromotions {
    /// It differs after each change of a promotion.
    pub version: String,
    /// The promotions of the requested names; absent if none were requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promotions: Option<Vec<PollerPromotion>>,
    /// The requested names with a job that has not ended, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy: Option<Vec<String>>,
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
