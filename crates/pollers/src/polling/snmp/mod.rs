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

use super::poller::{Exchange, Poller, Running, Turns, still_silent, waits_for_turn};
use super::reading::Failure;
use crate::descriptions::{Description, Target};
use crate::protocols::{
    Oid as SnmpOid, OidTemplate, Request, SnmpObject, SnmpRequest, SnmpVersion,
};
use async_snmp::message::Message;
use async_snmp::{DecodeConfig, Oid};
use bytes::Bytes;
use client::SnmpClient;
use limits::Limits;
use model::{Kind, Labels};
use requests::Variable;
use rows::Rows;
use std::sync::Arc;
use tokio::time::{Instant, timeout_at};
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
    /// The columns whose walk did not end.
    walks: Turns<SnmpOid>,
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
        let (mut variables, mut unwalked) = (Vec::new(), Vec::new());
        for place in places {
            let Some(description) = due.get(*place) else { continue };
            let Some(SnmpRequest { object, .. }) = request(description) else { continue };
            match object {
                SnmpObject::Oid(oid) => {
                    let variable = Variable::of(Oid::from_slice(&oid.0));
                    variables.push(Variable { place: *place, ..variable });
                }
                SnmpObject::Row(template) if state.rows.has(template) => {
                    variables.extend(row(*place, template, exchange, state));
                }
                SnmpObject::Row(template) => unwalked.push((*place, &**template)),
            }
        }
        // A walk that is not answered must cost no other value.
        let has_no_other = variables.is_empty();
        read_variables(&opened, variables, due, exchange, state).await?;
        match walk(&opened, unwalked, exchange, state).await {
            Err(failure) if has_no_other => return Err(failure),
            // Their failures are added.
            Err(_) => {}
            Ok(rows) => read_variables(&opened, rows, due, exchange, state).await?,
        }
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

async fn read_variables(
    client: &SnmpClient,
    mut variables: Vec<Variable>,
    due: &[&Description],
    exchange: &mut Exchange,
    state: &mut AgentState,
) -> Result<(), Failure> {
    for variable in &mut variables {
        let meaning = due.get(variable.place).and_then(|one| one.meaning());
        variable.is_counter = meaning.is_some_and(|one| one.kind == Kind::Counter);
    }
    requests::read(client, variables, due, exchange, state).await
}

/// The variable of a template's row, if there is one.
fn row(
    place: usize,
    template: &OidTemplate,
    exchange: &mut Exchange,
    state: &AgentState,
) -> Option<Variable> {
    match state.rows.find(template) {
        Ok(variable) => Some(Variable { place, ..variable }),
        Err(failure) => {
            exchange.fail(place, failure);
            None
        }
    }
}

/// Walks the columns of templates: those that did not end before are the last. Returns the variables of their rows.
///
/// # Errors
/// No walk is answered.
async fn walk(
    client: &SnmpClient,
    mut templates: Vec<(usize, &OidTemplate)>,
    exchange: &mut Exchange,
    state: &mut AgentState,
) -> Result<Vec<Variable>, Failure> {
    templates.sort_by_key(|(_, template)| (state.walks.place(&template.column), &template.column));
    let (mut rows, mut silence, mut has_ended) = (Vec::new(), None, templates.is_empty());
    for of_column in templates.chunk_by(|(_, one), (_, next)| one.column == next.column) {
        let Some((_, template)) = of_column.first() else { continue };
        let places: Vec<usize> = of_column.iter().map(|(place, _)| *place).collect();
        if exchange.is_over_for(state.walks.place(&template.column)) {
            exchange.fail_all(&places, &waits_for_turn());
            continue;
        }
        let until = exchange.deadline(state.walks.begin(template.column.clone()));
        // If the agent answers nothing by the end of the exchange, the next one walks by GETNEXT.
        let AgentState { limits, walks, rows: known, .. } = state;
        limits.is_unanswered = client.has_bulk() && limits.bulk > 0;
        let walked = known.walk(client, template, &mut limits.is_unanswered);
        let walked = timeout_at(until, walked).await.unwrap_or_else(|_| Err(still_silent()));
        match walked {
            Ok(()) => {
                walks.answered(&template.column);
                has_ended = true;
                for (place, template) in of_column {
                    rows.extend(row(*place, template, exchange, state));
                }
            }
            Err(failure) => {
                walks.failed(&template.column);
                limits.begin(Instant::now());
                has_ended |= !failure.is_silence;
                exchange.fail_all(&places, &failure);
                silence = Some(failure);
            }
        }
    }
    match silence.filter(|_| !has_ended) {
        Some(failure) => Err(failure),
        None => Ok(rows),
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

#[cfg(test)]
mod tests;
