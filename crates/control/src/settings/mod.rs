//! The settings that each node receives.
//!
//! - `agent_config`: the server's agent file. `on_demand`: the text for each node.
//! - `text` composes it; `fitting_promotions` and `fitting_sections` limit it.

pub(crate) mod agent_config;
pub(crate) mod fitting_promotions;
pub(crate) mod fitting_sections;
pub(crate) mod on_demand;
pub(crate) mod text;
