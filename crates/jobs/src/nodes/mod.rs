//! Stored state of nodes.
//!
//! - `stopped`: agents that shut down. `forgotten_nodes`: nodes that administrators removed.
//!   `forgotten_pollers`: pollers that they removed. `rule_latches`: rules that fired and may not fire again yet.

pub(crate) mod forgotten_nodes;
pub(crate) mod forgotten_pollers;
pub(crate) mod rule_latches;
pub(crate) mod stopped;
