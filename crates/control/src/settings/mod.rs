//! The settings that each node receives.
//!
//! - `agent_config`: the server's agent file. `node_settings_cache`: the settings of each node.
//! - `poller_promotions` and `poller_periods`: the promotions and the changed periods that a poller receives.
//! - `promoted_rows`: promotions as rows of Kwollect's table.
//! - `feed_flushes`: the flushes that a feed of a wattmeter receives.
//! - `compose` composes them; `fitting_promotions` and `fitting_overrides` limit them.

pub(crate) mod agent_config;
pub(crate) mod compose;
pub(crate) mod feed_flushes;
pub(crate) mod fitting_overrides;
pub(crate) mod fitting_promotions;
pub(crate) mod node_settings_cache;
pub(crate) mod poller_periods;
pub(crate) mod poller_promotions;
pub(crate) mod promoted_rows;
