//! A client of an agent, and its errors as failures.

use super::keys::{KeyCache, bad};
use crate::descriptions::Target;
use crate::polling::reading::Failure;
use crate::protocols::{Privacy, SnmpSecurity, SnmpVersion};
use async_snmp::transport::{UdpHandle, UdpTransport};
use async_snmp::v3::PersistedDesSaltState;
use async_snmp::{
    Client, DesSaltState, Error, ErrorKind, ErrorStatus, MasterKeys, Oid, Retry,
    TargetClientBuilder, UsmConfig, Value, VarBind, Version, WalkOptions,
};
use bytes::Bytes;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::net::lookup_host;
use tokio::sync::OnceCell;
use tokio::task::JoinSet;

/// Wait for the response to one message. The exchange's own timeout ends all of them.
const RESPONSE_WAIT: Duration = Duration::from_secs(1);
/// Messages sent again after a lost one.
const RETRIES: u32 = 3;
/// Messages of a probe that are sent again, and the shortest wait for the response to one.
const PROBE_RETRIES: u32 = 1;
const PROBE_WAIT_MIN: Duration = Duration::from_millis(125);
/// The error of a request that is too large.
pub(super) const TOO_BIG: &str = "tooBig";
/// sysUpTime (RFC 3418).
pub(super) const UPTIME: [u32; 9] = [1, 3, 6, 1, 2, 1, 1, 3, 0];
/// Bytes of responses that wait to be read: several of hundreds of agents at one instant. The kernel may allow fewer
/// (`net.core.rmem_max`).
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;
/// Variables that the library sends in one message: more than a request has.
const MESSAGE_VARIABLES_MAX: usize = 256;
/// Bytes of the texts, and rows, of a walk: an agent may invent rows without end.
const TEXT_BYTES_MAX: usize = 4 << 20;
const ROWS_MAX: usize = 50_000;

/// The sockets of all agents: one per address family.
#[derive(Default)]
pub(in crate::polling) struct SnmpTransport {
    v4: OnceCell<UdpTransport>,
    v6: OnceCell<UdpTransport>,
    keys: KeyCache,
}

impl SnmpTransport {
    async fn to(&self, address: IpAddr) -> Result<&UdpTransport, Failure> {
        let (cell, local) = match address {
            IpAddr::V4(_) => (&self.v4, "0.0.0.0:0"),
            IpAddr::V6(_) => (&self.v6, "[::]:0"),
        };
        let socket =
            || UdpTransport::builder().bind(local).recv_buffer_size(RECEIVE_BUFFER_BYTES).build();
        let bound = cell.get_or_try_init(socket).await;
        bound.map_err(|error| Failure::unreachable(format!("cannot open a socket: {error}")))
    }
}

/// A client of one agent.
#[derive(Clone)]
pub(super) struct SnmpClient {
    client: Client<UdpHandle>,
}

/// An error of one request that concerns one variable or the size, not the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rejected {
    /// The variable with this index, from 1, is not there or cannot be read.
    Variable(usize),
    /// The request is too large for the agent.
    Size,
}

/// Why a request has no response.
pub(super) enum RequestError {
    /// The request can be changed and sent again.
    Rejected(Rejected, &'static str),
    /// The agent fails.
    Failed(Failure),
}

impl SnmpClient {
    /// Resolves the name of an agent, and verifies the keys of version 3. An exchange lasts `limit` at most.
    pub(super) async fn open(
        target: &Target,
        version: &SnmpVersion,
        transport: &SnmpTransport,
        limit: Duration,
    ) -> Result<Self, Failure> {
        let found = lookup_host((&*target.host, target.port)).await;
        let found =
            found.map_err(|error| Failure::unreachable(format!("cannot resolve: {error}")))?;
        let address = found.into_iter().next();
        let address: SocketAddr =
            address.ok_or_else(|| Failure::unreachable("the name has no address"))?;
        let user = target.user.as_ref().map_or("", |user| user.reveal()).to_owned();
        let auth = match version {
            SnmpVersion::V1 => async_snmp::Auth::v1(user.clone()),
            SnmpVersion::V2c => async_snmp::Auth::v2c(user.clone()),
            SnmpVersion::V3(security) => {
                usm(user.clone(), security, transport.keys.of(security).await?)?.into()
            }
        };
        let transport = transport.to(address.ip()).await?;
        let agent = Agent { address, auth, transport, wait: probe_wait(limit) };
        if let SnmpVersion::V3(security) = version {
            agent.verify_keys(user, security).await?;
        }
        let builder = agent.builder(version, RESPONSE_WAIT, RETRIES)?;
        let client = builder.build_with(transport).await;
        client.map(|client| Self { client }).map_err(|error| failure(&error))
    }

    /// Whether its version has GETBULK.
    pub(super) fn has_bulk(&self) -> bool {
        self.client.version() != Version::V1
    }

    /// Reads variables in one request.
    pub(super) async fn get(&self, oids: &[Oid]) -> Result<Vec<VarBind>, RequestError> {
        let too_large = || RequestError::Rejected(Rejected::Size, TOO_BIG);
        let chunks = self.client.get_many_chunks(oids);
        let mut chunks = chunks.map_err(|error| RequestError::Failed(failure(&error)))?;
        // The library halves what is too large, without regard to which variables belong together.
        match chunks.next().await {
            Some(Ok(chunk)) if chunk.request_range.len() == oids.len() => {
                Ok(chunk.response.varbinds)
            }
            Some(Err(error)) if error.failed_request_range.len() == oids.len() => {
                Err(request_error(&error.source))
            }
            Some(_) => Err(too_large()),
            None => Ok(Vec::new()),
        }
    }

    /// Reads what follows `once`, and `rows` times what follows each of `starts`.
    pub(super) async fn get_bulk(
        &self,
        once: Option<Oid>,
        starts: Vec<Oid>,
        rows: u32,
    ) -> Result<Vec<VarBind>, RequestError> {
        let single = u32::from(once.is_some());
        let oids: Vec<Oid> = once.into_iter().chain(starts).collect();
        let response = self.client.get_bulk(&oids, single, rows).await;
        response.map_err(|error| request_error(&error))
    }

    /// Reads a column of a table, by GETBULK if `is_unanswered`, which becomes false when the agent answers.
    pub(super) async fn walk(
        &self,
        column: &Oid,
        is_unanswered: &mut bool,
    ) -> Result<Vec<VarBind>, Failure> {
        let column = column.clone();
        let stream = match *is_unanswered {
            true => self.client.walk(column),
            false => self.client.walk_getnext(column),
        };
        let mut stream = stream.map_err(|error| failure(&error))?;
        let (mut rows, mut text_bytes) = (Vec::new(), 0);
        while let Some(row) = stream.next().await {
            *is_unanswered &= row.as_ref().is_err_and(|error| error.kind() == ErrorKind::Timeout);
            let mut row = row.map_err(|error| failure(&error))?;
            if let Value::OctetString(text) = &mut row.value {
                text_bytes += text.len();
                // Its message would stay in memory with it.
                *text = Bytes::copy_from_slice(text);
            }
            if text_bytes > TEXT_BYTES_MAX {
                let what = format!("the texts of a table have more than {TEXT_BYTES_MAX} bytes");
                return Err(Failure::broken(what));
            }
            rows.push(row);
        }
        *is_unanswered = false;
        Ok(rows)
    }
}

/// An agent to which no client is open yet.
struct Agent<'a> {
    address: SocketAddr,
    auth: async_snmp::Auth,
    transport: &'a UdpTransport,
    /// Wait for the response to a probe.
    wait: Duration,
}

impl Agent<'_> {
    fn builder(
        &self,
        version: &SnmpVersion,
        wait: Duration,
        retries: u32,
    ) -> Result<TargetClientBuilder, Failure> {
        let retry = Retry::fixed(retries, Duration::ZERO);
        let retry = retry.map_err(|error| Failure::broken(error.to_string()))?;
        let options = WalkOptions { result_limit: Some(ROWS_MAX), ..WalkOptions::default() };
        let builder = Client::builder(self.address, self.auth.clone())
            .request_timeout(wait)
            .retry(retry)
            .max_oids_per_request(MESSAGE_VARIABLES_MAX)
            .walk_options(options)
            // All agents share a socket: another agent must not answer in place of this one.
            .strict_source(true);
        Ok(match version {
            SnmpVersion::V3(security) if matches!(security.privacy, Some((Privacy::Des, _))) => {
                builder.des_salt_state(salts()?)
            }
            _ => builder,
        })
    }

    /// Finds out whether the agent accepts the keys of a user.
    async fn verify_keys(&self, user: String, security: &SnmpSecurity) -> Result<(), Failure> {
        if security.auth.is_none() {
            return Ok(());
        }
        // An agent drops what it cannot decrypt, as if it was dead. If it is silent, a request without encryption is sent.
        let mut responding = JoinSet::new();
        if security.privacy.is_some() {
            let (address, transport, wait) = (self.address, self.transport.clone(), self.wait);
            responding.spawn(async move {
                tokio::time::sleep(wait).await;
                responds(user, address, &transport, wait).await
            });
        }
        // An agent rejects a wrong key by a report that it cannot sign, and the library drops what is not signed. This
        // request accepts such reports; nothing else of its response is used.
        let version = SnmpVersion::V3(Box::new(security.clone()));
        let probe = self.builder(&version, self.wait, PROBE_RETRIES)?;
        let probe = probe.allow_unauthenticated_v3_time_correction(true);
        let probe = probe.build_with(self.transport).await.map_err(|error| failure(&error))?;
        let Err(error) = probe.get(&Oid::from_slice(&UPTIME)).await else { return Ok(()) };
        match error.kind() {
            ErrorKind::Report | ErrorKind::Auth => Err(failure(&error)),
            ErrorKind::Timeout if matches!(responding.join_next().await, Some(Ok(true))) => {
                let is_plain = security.context.is_empty();
                Err(Failure::denied(if is_plain { NOT_DECRYPTED } else { NO_CONTEXT }))
            }
            _ => Ok(()),
        }
    }
}

/// The probes need half of an exchange, in which their verdict is then reported.
fn probe_wait(limit: Duration) -> Duration {
    let wait = limit / 2 / (PROBE_RETRIES + 1);
    wait.clamp(PROBE_WAIT_MIN, RESPONSE_WAIT)
}

/// Whether an agent responds to a request of a user without keys, by whatever report or error. An agent drops what it
/// cannot decrypt.
async fn responds(
    user: String,
    address: SocketAddr,
    transport: &UdpTransport,
    wait: Duration,
) -> bool {
    let builder = Client::builder(address, UsmConfig::new(user))
        .request_timeout(wait)
        .retry(Retry::none())
        .strict_source(true)
        .allow_unauthenticated_v3_time_correction(true);
    let Ok(client) = builder.build_with(transport).await else { return false };
    match client.get(&Oid::from_slice(&UPTIME)).await {
        Ok(_) => true,
        Err(error) => error.kind() != ErrorKind::Timeout,
    }
}

fn usm(
    user: String,
    security: &SnmpSecurity,
    keys: Option<MasterKeys>,
) -> Result<UsmConfig, Failure> {
    let mut config = UsmConfig::new(user);
    if let Some(keys) = keys {
        config = config.with_master_keys(keys).map_err(|error| bad(&error))?;
    }
    Ok(if security.context.is_empty() {
        config
    } else {
        config.context_name(security.context.clone())
    })
}

/// The salts of DES (RFC 3414, section 8.1.1.1). The second of the start takes the place of a stored number of boots: it
/// grows from start to start.
fn salts() -> Result<DesSaltState, Failure> {
    let seconds = delivery::wall().0 / model::Timestamp::SECOND;
    let boots = u32::try_from(seconds & 0x3fff_ffff).unwrap_or(1).max(1);
    let bad = |error: &dyn std::fmt::Display| Failure::broken(format!("salts of DES: {error}"));
    let before = PersistedDesSaltState::new(boots).map_err(|error| bad(&error))?;
    DesSaltState::restart(before, |_| Ok::<(), Infallible>(())).map_err(|error| bad(&error))
}

fn request_error(error: &Error) -> RequestError {
    if let Error::Snmp { status, index, .. } = error.exchange_source() {
        let index = usize::try_from(*index).unwrap_or(0);
        match status {
            ErrorStatus::TooBig => return RequestError::Rejected(Rejected::Size, TOO_BIG),
            ErrorStatus::NoSuchName if index > 0 => {
                return RequestError::Rejected(Rejected::Variable(index), "noSuchName");
            }
            ErrorStatus::GenErr if index > 0 => {
                return RequestError::Rejected(Rejected::Variable(index), "genErr");
            }
            ErrorStatus::GenErr => return RequestError::Rejected(Rejected::Size, "genErr"),
            ErrorStatus::NoAccess | ErrorStatus::AuthorizationError => {
                return RequestError::Failed(Failure::denied(format!(
                    "the agent permits no reading: {status}"
                )));
            }
            _ => {}
        }
    }
    RequestError::Failed(failure(error))
}

/// Only the encryption is wrong: the agent does respond to the user.
const NOT_DECRYPTED: &str = "the agent responds, but not to encrypted requests of this user; \
                             `priv` or `privkey` is wrong";
/// The same with a context, which the agent may not have.
const NO_CONTEXT: &str = "the agent responds, but not to encrypted requests of this user in this context; `priv`, \
                          `privkey` or `context` is wrong";
/// Agents of version 1 and 2c do not respond to a wrong community.
const NO_RESPONSE: &str = "no response; a wrong community has none, too";

/// An error without the address, which the target states.
fn failure(error: &Error) -> Failure {
    match error.exchange_source() {
        Error::Timeout { .. } => Failure::timeout(NO_RESPONSE),
        Error::Report { status, .. } => {
            Failure::denied(format!("the agent rejects the user: {status}"))
        }
        Error::Auth { .. } => Failure::denied("user or password is rejected"),
        Error::Network { source, .. } => {
            Failure::unreachable(format!("cannot be reached: {source}"))
        }
        Error::Snmp { status, .. } => Failure::broken(format!("the agent reports {status}")),
        _ => match error.kind() {
            ErrorKind::WalkAborted => Failure::broken("a table does not end, or is not in order"),
            ErrorKind::Timeout => Failure::timeout("no response"),
            other => Failure::broken(format!("the response is not valid: {other}")),
        },
    }
}
