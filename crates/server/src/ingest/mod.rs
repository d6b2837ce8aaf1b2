//! Ingestion: agents, devices, limits, decoding, and the jobs of each node.
//!
//! - `agents`: known agents and their reported state. `device_conflicts`: devices that several nodes send.
//! - `decoding`: decodes batches in turns. `senders`: the access check before that. `send_limits`: limits
//!   of samples per second. `declared_metrics`: metrics declared by sources. `node_jobs_cache`: the jobs of
//!   a node.
//! - `push_rows`: reads inserted rows. `push_batch`: the batch that they make. `push_numbers`: its number.

pub(crate) mod agent_reports;
pub(crate) mod declared_metrics;
pub(crate) mod decoding;
pub(crate) mod device_conflicts;
pub(crate) mod inserter;
pub(crate) mod node_jobs_cache;
pub(crate) mod poller_reports;
pub(crate) mod push_batch;
pub(crate) mod push_numbers;
pub(crate) mod push_rows;
pub(crate) mod send_limits;
pub(crate) mod senders;
