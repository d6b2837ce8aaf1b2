//! The node of a caller without a token: `push.user_metrics = "nodes"`.

use crate::auth::addresses::agent_addresses::{AgentAddresses, NoNode};
use crate::auth::addresses::assigned_nodes::AssignedNodes;
use crate::auth::addresses::client_address::client_address;
use crate::auth::connection::Connection;
use axum::http::HeaderMap;
use config::{PushSettings, UserMetrics};
use model::{DeviceId, Timestamp};
use std::net::IpAddr;
use std::sync::Arc;

/// How addresses identify nodes.
#[derive(Debug)]
pub(crate) struct NodeCallers {
    proxies: Vec<IpAddr>,
    assigned: AssignedNodes,
}

impl NodeCallers {
    /// Reads the settings; `None`: addresses identify no node.
    ///
    /// # Errors
    /// The file of addresses is invalid: every error.
    pub(crate) fn read(settings: &PushSettings) -> Result<Option<Arc<Self>>, Vec<String>> {
        if settings.user_metrics == UserMetrics::Users {
            return Ok(None);
        }
        let assigned = settings.node_addresses.as_deref().map(AssignedNodes::read).transpose()?;
        let (proxies, assigned) = (settings.proxies.clone(), assigned.unwrap_or_default());
        Ok(Some(Arc::new(Self { proxies, assigned })))
    }

    /// The address of a request's client; `None`: it identifies no node.
    pub(crate) fn client(&self, connection: &Connection, headers: &HeaderMap) -> Option<IpAddr> {
        client_address(connection, headers, &self.proxies)
    }

    /// The node of an address: that of the administrator's file, otherwise that of the agent which sends from there.
    pub(crate) fn node(
        &self,
        agents: &AgentAddresses,
        address: IpAddr,
        now: Timestamp,
    ) -> Result<DeviceId, NoNode> {
        self.assigned.node(address).cloned().map_or_else(|| agents.node(address, now), Ok)
    }
}
