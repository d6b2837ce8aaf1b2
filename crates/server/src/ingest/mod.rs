//! What is known of senders: agents, their devices, limits, decoding, the jobs of each node.
//!
//! - `agents`: who sent, and what each reported of itself. `device_conflicts`: devices that several nodes send.
//! - `decoding`: batches decoded in turns. `senders`: the access check before that. `send_limits`: samples per second. `declared_metrics`: what sources declare. `node_jobs_cache`: the jobs of a node.

pub(crate) mod agents;
pub(crate) mod declared_metrics;
pub(crate) mod decoding;
pub(crate) mod device_conflicts;
pub(crate) mod node_jobs_cache;
pub(crate) mod send_limits;
pub(crate) mod senders;
