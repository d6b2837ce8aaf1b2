//! Ingestion: agents, devices, limits, decoding, and the jobs of each node.
//!
//! - `agents`: known agents and their reported state. `device_conflicts`: devices that several nodes send.
//! - `decoding`: decodes batches in turns. `senders`: the access check before that. `send_limits`: limits
//!   of samples per second. `declared_metrics`: metrics declared by sources. `node_jobs_cache`: the jobs of
//!   a node.

pub(crate) mod agent_reports;
pub(crate) mod declared_metrics;
pub(crate) mod decoding;
pub(crate) mod device_conflicts;
pub(crate) mod node_jobs_cache;
pub(crate) mod send_limits;
pub(crate) mod senders;
