//! What is remembered of nodes: which stopped, which are retired, which rules fired there.
//!
//! - `stopped`: agents that ended. `forgotten_nodes`: retired nodes. `rule_latches`: which rules fired and may not fire again yet.

pub(crate) mod forgotten_nodes;
pub(crate) mod rule_latches;
pub(crate) mod stopped;
