//! One source: when it is due, how it is read, and what it costs.
//!
//! - `plan`: sources and periods derived from the configuration.
//! - `source_state`: schedule, status and cost of one source.
//! - `part_status`: status of its parts.
//! - `throttling`: throttling of a source that costs too much.
//! - `one_reading`: one reading, which may hang.
//! - `burst`, `queues`: readings between ticks.
//! - `agent_metrics`: the agent's own metrics.
//! - `machine`, `unread`: facts determined at startup.

pub(crate) mod agent_metrics;
pub(crate) mod burst;
pub(crate) mod disabled_sources;
pub(crate) mod machine;
pub(crate) mod one_reading;
pub(crate) mod part_status;
pub(crate) mod plan;
pub(crate) mod queues;
pub(crate) mod source_state;
pub(crate) mod throttling;
