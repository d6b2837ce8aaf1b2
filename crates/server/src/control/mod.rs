//! Control of agents: the reloadable configuration, changes, promotions, flushes and value rules.
//!
//! - `reloadable_config`: the part that SIGHUP reloads. `on_demand`: the text for each node; `text`
//!   composes it, `fitting_promotions` and `fitting_sections` limit it.
//! - `rules`: the rules file; `expression`: its metric names. `value_rule`, `rule_evaluator`: value rules, and when
//!   they fire.

pub(crate) mod expression;
pub(crate) mod fitting_promotions;
pub(crate) mod fitting_sections;
pub(crate) mod on_demand;
pub(crate) mod reloadable_config;
pub(crate) mod rule_evaluator;
pub(crate) mod rules;
pub(crate) mod text;
pub(crate) mod value_rule;
