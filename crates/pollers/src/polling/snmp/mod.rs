//! SNMP: values of agents, by versions 1, 2c and 3.
//!
//! - `keys`: keys of users of version 3
//! - `client`: a client per version, and errors as failures
//! - `values`: values of variables as numbers and texts
//! - `wraps`: counters of 32 bits that wrap
//! - `rows`: rows of tables found by a text
//! - `blocks`: rows of tables that one GETBULK reads
//! - `limits`: how much an agent returns in one response
//! - `requests`: variables in several requests, and what to do when an agent rejects one

mod blocks;
mod client;
mod keys;
mod limits;
mod requests;
mod rows;
mod values;
mod wraps;

pub(super) use client::SnmpTransport;

use super::poller::{Exchange, Poller, Running};
use super::reading::Failure;
use crate::descriptions::{Description, Target};
use crate::protocols::{Request, SnmpObject, SnmpRequest, SnmpVersion};
use async_snmp::message::Message;
use async_snmp::{DecodeConfig, Oid};
use bytes::Bytes;
use client::SnmpClient;
use limits::Limits;
use model::{Kind, Labels};
use requests::Variable;
use rows::Rows;
use std::sync::Arc;
use wraps::Wraps;

/// An SNMP agent.
pub(super) struct Snmp {
    target: Arc<Target>,
    transport: Arc<SnmpTransport>,
    /// One for each version and security that the descriptions use.
    versions: Vec<Session>,
}

struct Session {
    version: SnmpVersion,
    /// `None` after a failure or a timeout: the next exchange resolves the name again, and asks for the agent's identity.
    client: Option<SnmpClient>,
    state: AgentState,
}

/// What is known of an agent.
#[derive(Default)]
struct AgentState {
    rows: Rows,
    wraps: Wraps,
    limits: Limits,
    /// Whether the agent has no sysUpTime.
    lacks_uptime: bool,
}

impl Snmp {
    pub(super) fn new(target: &Arc<Target>, transport: &Arc<SnmpTransport>) -> Self {
        Self { target: Arc::clone(target), transport: Arc::clone(transport), versions: Vec::new() }
    }

    async fn read(&mut self, due: &[&Description], exchange: &mut Exchange) {
        let mut versions: Vec<(&SnmpVersion, Vec<usize>)> = Vec::new();
        for (place, description) in due.iter().enumerate() {
            let Some(SnmpRequest { version, .. }) = request(description) else { continue };
            match versions.iter_mut().find(|(known, _)| *known == version) {
                Some((_, places)) => places.push(place),
                None => versions.push((version, vec![place])),
            }
        }
        for (version, places) in versions {
            if let Err(failure) = self.read_version(version, &places, due, exchange).await {
                for session in self.versions.iter_mut().filter(|one| one.version == *version) {
                    (session.client, session.state.rows) = (None, Rows::default());
                }
                for place in places {
                    exchange.fail_open(place, &failure);
                }
            }
        }
    }

    async fn read_version(
        &mut self,
        version: &SnmpVersion,
        places: &[usize],
        due: &[&Description],
        exchange: &mut Exchange,
    ) -> Result<(), Failure> {
        let known = self.versions.iter().position(|session| session.version == *version);
        let known = known.unwrap_or_else(|| {
            let version = version.clone();
            self.versions.push(Session { version, client: None, state: AgentState::default() });
            self.versions.len() - 1
        });
        let Some(Session { client, state, .. }) = self.versions.get_mut(known) else {
            return Ok(());
        };
        // If time is up meanwhile, the next exchange opens another one: the agent may have other keys now.
        let opened = match client.take() {
            Some(client) => client,
            None => {
                let limit = exchange.limit(due);
                SnmpClient::open(&self.target, version, &self.transport, limit).await?
            }
        };
        let mut variables = Vec::new();
        for place in places {
            let Some(description) = due.get(*place) else { continue };
            let Some(SnmpRequest { object, .. }) = request(description) else { continue };
            let variable = match object {
                SnmpObject::Oid(oid) => Variable::of(Oid::from_slice(&oid.0)),
                SnmpObject::Row(template) => match state.rows.find(&opened, template).await? {
                    Ok(variable) => variable,
                    Err(failure) => {
                        exchange.fail(*place, failure);
                        continue;
                    }
                },
            };
            let is_counter = description.meaning().is_some_and(|one| one.kind == Kind::Counter);
            variables.push(Variable { place: *place, is_counter, ..variable });
        }
        requests::read(&opened, variables, due, exchange, state).await?;
        *client = Some(opened);
        Ok(())
    }
}

impl Poller for Snmp {
    fn exchange<'a>(
        &'a mut self,
        due: &'a [&'a Description],
        exchange: &'a mut Exchange,
    ) -> Running<'a> {
        Box::pin(self.read(due, exchange))
    }
}

fn request(description: &Description) -> Option<&SnmpRequest> {
    match &description.request {
        Request::Snmp(request) => Some(request),
        _ => None,
    }
}

/// Reads bytes as a message of an agent, and its variables as values.
pub fn parse_any(bytes: &[u8]) {
    let decoded = Message::decode(Bytes::copy_from_slice(bytes), DecodeConfig::default());
    let Some(pdu) = decoded.ok().and_then(|decoded| decoded.value.into_pdu()) else { return };
    for one in pdu.varbinds() {
        if let Ok((value, labels)) = values::number(&one.value, &Labels::default()) {
            // What is no number is NaN with a text.
            assert!(labels.is_empty() || value.is_nan());
        }
        rows::of_row(&one.value);
    }
    blocks::values(pdu.varbinds().to_vec());
}
