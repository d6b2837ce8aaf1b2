//! SNMP: values of agents, by versions 1, 2c and 3.
//!
//! - `client`: a client per version, and errors as failures
//! - `values`: values of variables as numbers and texts
//! - `rows`: rows of tables found by a text
//! - `requests`: variables in several requests, and what to do when an agent rejects one

mod client;
mod requests;
mod rows;
mod values;

pub(super) use client::SnmpTransport;

use super::poller::{Exchange, Poller, Running};
use super::reading::Failure;
use crate::descriptions::{Description, Target};
use crate::protocols::{Request, SnmpObject, SnmpRequest, SnmpVersion};
use async_snmp::Oid;
use client::SnmpClient;
use requests::Variable;
use rows::Rows;
use std::sync::Arc;

/// An SNMP agent.
pub(super) struct Snmp {
    target: Target,
    transport: Arc<SnmpTransport>,
    /// One for each version and security that the descriptions use.
    versions: Vec<Session>,
}

struct Session {
    version: SnmpVersion,
    client: SnmpClient,
    rows: Rows,
}

impl Snmp {
    pub(super) fn new(target: &Target, transport: &Arc<SnmpTransport>) -> Self {
        Self { target: target.clone(), transport: Arc::clone(transport), versions: Vec::new() }
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
                // The next exchange resolves the name again, and asks for the agent's identity.
                self.versions.retain(|session| session.version != *version);
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
        let known = match known {
            Some(known) => known,
            None => {
                let client = SnmpClient::open(&self.target, version, &self.transport).await?;
                let (version, rows) = (version.clone(), Rows::default());
                self.versions.push(Session { version, client, rows });
                self.versions.len() - 1
            }
        };
        let Some(Session { client, rows, .. }) = self.versions.get_mut(known) else {
            return Ok(());
        };
        let mut variables = Vec::new();
        for place in places {
            let Some(SnmpRequest { object, .. }) = due.get(*place).and_then(|one| request(one))
            else {
                continue;
            };
            match object {
                SnmpObject::Oid(oid) => {
                    variables.push(Variable::of(*place, Oid::from_slice(&oid.0)));
                }
                SnmpObject::Row(template) => match rows.find(client, template).await? {
                    Ok(variable) => variables.push(Variable { place: *place, ..variable }),
                    Err(failure) => exchange.fail(*place, failure),
                },
            }
        }
        requests::read(client, variables, due, exchange, rows).await
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
