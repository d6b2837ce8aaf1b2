//! What is asked of agents: the configuration that is read anew, changes, promotions, flushes, rules about values.
//!
//! - `reloadable_config`: what SIGHUP reads again. `on_demand`: what each node gets; `text` composes it, `room` and `fitting` bound it.
//! - `rules`: the file of rules; `expression`: names of metrics in it. `value_rule`, `watch`: rules about values, and when they fire.

pub(crate) mod expression;
pub(crate) mod fitting;
pub(crate) mod on_demand;
pub(crate) mod reloadable_config;
pub(crate) mod room;
pub(crate) mod rules;
pub(crate) mod text;
pub(crate) mod value_rule;
pub(crate) mod watch;
