//! What is asked of agents: the configuration that is read anew, changes, promotions, flushes, rules about values.

pub(crate) mod expression;
pub(crate) mod fitting;
pub(crate) mod on_demand;
pub(crate) mod reloadable_config;
pub(crate) mod room;
pub(crate) mod rules;
pub(crate) mod text;
pub(crate) mod value_rule;
pub(crate) mod watch;
