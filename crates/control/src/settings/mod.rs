//! The settings that each node receives.
//!
//! - `agent_config`: the server's agent file. `on_demand`: the settings of each node.
//! - `compose` composes them; `fitting_promotions` and `fitting_overrides` limit them.

pub(crate) mod agent_config;
pub(crate) mod compose;
pub(crate) mod fitting_overrides;
pub(crate) mod fitting_promotions;
pub(crate) mod on_demand;
