//! What is known of senders: agents, their devices, limits, decoding, the jobs of each node.

pub(crate) mod agents;
pub(crate) mod declared_metrics;
pub(crate) mod decoding;
pub(crate) mod device_conflicts;
pub(crate) mod node_jobs_cache;
pub(crate) mod send_limits;
