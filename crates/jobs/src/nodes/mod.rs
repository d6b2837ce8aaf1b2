//! What is remembered of nodes: which stopped, which are retired, which rules fired there.

pub(crate) mod forgotten_nodes;
pub(crate) mod rule_latches;
pub(crate) mod stopped;
