//! Control of agents: setting overrides, promotions, bursts, flushes, and rules about values. Used by the
//! server only.
//!
//! - `demand`: the requests to agents, in a SQLite file.
//! - `rules`: the rules file, and the rules that fire on values.
//! - `settings`: the settings that each node receives with its acks, composed within the limits of a node.
//!
//! This crate has no HTTP and no SQL engine. The server adds routes, permissions and the audit log.

mod demand;
mod rules;
mod settings;

pub use demand::{
    ActiveRequests, Change, Decision, DemandError, DemandLimits, DemandStore, FLUSH_LISTED_US,
    Flush, FromJobs, FromRows, Mark, MarkKind, NewChange, NewPromotion, PROMOTED_METRICS,
    PROMOTIONS_ON_NODE_MAX, PromotedKey, Promotion, PromotionOrigin, Quota, Rule, Wanted,
    check_demand, wanted,
};
pub use rules::expression::check as check_expression;
pub use rules::rule_evaluator::{Evaluation, Fired, Reading, RuleEvaluator};
pub use rules::rules_file::{RuleError, Rules, read as read_rules};
pub use rules::value_rule::{Threshold, ValueRule};
pub use settings::agent_config::{AgentConfig, AgentConfigError};
pub use settings::node_settings_cache::{Active, NodeSettingsCache};
pub use settings::poller_periods::{
    NamedPeriod, PERIODS_OF_DEVICE_MAX, PeriodChanges, concerns_agents, polled_periods,
};
pub use settings::poller_promotions::NamedPromotions;
pub use settings::promoted_rows::{FollowedRows, PromotedRows};
