//! Addresses of callers, and the nodes that they identify (decision 0043).
//!
//! - `connection`: facts about a connection. `client_address`: the address of a request's client, also behind a proxy.
//! - `assigned_nodes`: the administrator's file of addresses. `agent_addresses`: addresses from which agents send.
//! - `node_callers`: the node of a caller without a token.

pub(crate) mod agent_addresses;
pub(crate) mod assigned_nodes;
pub(crate) mod client_address;
pub(crate) mod connection;
pub(crate) mod node_callers;
