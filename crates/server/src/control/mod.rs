//! Control of agents: the reloadable configuration, changes, promotions, flushes and value rules.
//!
//! - `reloadable_config`: the part that SIGHUP reloads. `on_demand`: the text for each node; `text`
//!   composes it, `room` and `fitting` limit it.
//! - `rules`: the rules file; `expression`: its metric names. `value_rule`, `watch`: value rules, and when
//!   they fire.

pub(crate) mod expression;
pub(crate) mod fitting;
pub(crate) mod on_demand;
pub(crate) mod reloadable_config;
pub(crate) mod room;
pub(crate) mod rules;
pub(crate) mod text;
pub(crate) mod value_rule;
pub(crate) mod watch;
