//! A session with a BMC (sections 13.15 to 13.24): RMCP+ with cipher suite 17, or 3 where the BMC lacks 17.

use super::crypto::{Keys, check_bytes, is_equal, keyed_hash};
use super::packets::{
    OPEN_REQUEST, OPEN_RESPONSE, RAKP_1, RAKP_2, RAKP_3, RAKP_4, answer, message, open_plain,
    open_sealed, plain, sealed,
};
use crate::descriptions::Target;
use crate::polling::reading::Failure;
use crate::protocols::{IpmiCipher, IpmiPrivilege, IpmiRequest};
use kernel::ipmi::Request as Command;
use ring::rand::{SecureRandom as _, SystemRandom};
use std::time::Duration;
use tokio::net::{UdpSocket, lookup_host};
use tokio::time::{Instant, timeout};

/// Wait for the response to one packet, and the packets that are sent for one request.
const RESPONSE_WAIT: Duration = Duration::from_secs(1);
const TRIES: u32 = 4;
/// A BMC ends an idle session after 60 s (section 6.12.15). An older one is not used again.
const IDLE_MAX: Duration = Duration::from_secs(30);
/// Longest packet.
const PACKET_BYTES_MAX: usize = 2048;
/// Longest packets of others that are skipped while one is expected.
const STRANGERS_MAX: u32 = 64;

/// Codes of a handshake (table 13-15): the algorithms are not supported; the role or the name is not allowed; the check is
/// wrong.
const NO_ALGORITHM: [u8; 6] = [0x04, 0x05, 0x06, 0x07, 0x10, 0x11];
const NO_ROLE: [u8; 2] = [0x09, 0x0a];
const NO_NAME: u8 = 0x0d;
const WRONG_CHECK: u8 = 0x0f;

/// An open session.
pub(super) struct Session {
    socket: UdpSocket,
    keys: Keys,
    /// Its ID at the BMC, and here.
    remote: u32,
    own: u32,
    number: u32,
    sequence: u8,
    used: Instant,
}

/// Why a session does not open.
enum OpenError {
    /// With other algorithms or a lower privilege it may.
    Algorithms,
    Role,
    Failed(Failure),
}

impl From<Failure> for OpenError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl Session {
    /// Opens a session with the suites and privileges that the request permits.
    pub(super) async fn open(target: &Target, request: &IpmiRequest) -> Result<Self, Failure> {
        let ciphers = request
            .cipher
            .map_or(vec![IpmiCipher::Suite17, IpmiCipher::Suite3], |cipher| vec![cipher]);
        let privileges = request
            .privilege
            .map_or(vec![IpmiPrivilege::Operator, IpmiPrivilege::User], |privilege| {
                vec![privilege]
            });
        let mut ciphers = ciphers.into_iter();
        let mut privileges = privileges.into_iter();
        let mut next = ciphers.next().zip(privileges.next());
        while let Some((cipher, privilege)) = next {
            next = match handshake(target, request, cipher, privilege).await {
                Ok(session) => return Ok(session),
                Err(OpenError::Failed(failure)) => return Err(failure),
                Err(OpenError::Algorithms) => ciphers.next().map(|cipher| (cipher, privilege)),
                Err(OpenError::Role) => match privileges.next() {
                    Some(privilege) => Some((cipher, privilege)),
                    None => return Err(Failure::rejected_user("the user has not the privilege")),
                },
            };
        }
        Err(Failure::broken("the BMC supports none of the cipher suites"))
    }

    /// Whether the BMC may have ended it.
    pub(super) fn is_stale(&self) -> bool {
        self.used.elapsed() > IDLE_MAX
    }

    /// Sends a command. Returns its answer from the completion code on.
    pub(super) async fn command(&mut self, command: &Command) -> Result<Vec<u8>, Failure> {
        self.sequence = (self.sequence + 1) & 0x3f;
        let request = message(self.sequence, command.bytes());
        for _ in 0..TRIES {
            let packet = self.seal(&request)?;
            send(&self.socket, &packet).await?;
            let (keys, own, sequence) = (&self.keys, self.own, self.sequence);
            let open = |packet: &[u8]| {
                let (_, inner) = open_sealed(keys, own, packet)?;
                answer(sequence, command.bytes(), &inner)
            };
            if let Some(answer) = receive(&self.socket, open).await? {
                self.used = Instant::now();
                return Ok(answer);
            }
        }
        Err(Failure::timeout("the BMC does not answer in the session"))
    }

    /// Ends the session. A BMC has few of them.
    pub(super) async fn close(mut self) {
        let command = Command::new(0x06, 0, 0x3c, &self.remote.to_le_bytes());
        self.sequence = (self.sequence + 1) & 0x3f;
        let request = message(self.sequence, command.bytes());
        if let Ok(packet) = self.seal(&request) {
            // A BMC that does not answer ends the session by itself.
            send(&self.socket, &packet).await.ok();
        }
    }

    fn seal(&mut self, request: &[u8]) -> Result<Vec<u8>, Failure> {
        self.number = self.number.wrapping_add(1).max(1);
        Ok(sealed(&self.keys, (self.remote, self.number), request, random()?))
    }
}

/// Opens a session with one suite and privilege.
async fn handshake(
    target: &Target,
    request: &IpmiRequest,
    cipher: IpmiCipher,
    privilege: IpmiPrivilege,
) -> Result<Session, OpenError> {
    let socket = connect(target).await?;
    let own = u32::from_le_bytes(random()?).max(1);
    let (name, password) = credentials(target);
    let role = role(privilege);
    let remote = open(&socket, cipher, own, role).await?;
    // RAKP messages 1 and 2 (sections 13.20 and 13.21).
    let own_random: [u8; 16] = random()?;
    // With the bit of 10h the BMC looks the name up, whatever the privilege of its account.
    let lookup = role | 0x10;
    let named = [&[lookup, length(name)][..], name].concat();
    let first = [
        &[0, 0, 0, 0][..],
        &remote.to_le_bytes(),
        &own_random,
        &[lookup, 0, 0, length(name)],
        name,
    ]
    .concat();
    let second = exchange(&socket, RAKP_1, &first, RAKP_2).await?;
    status(&second)?;
    let (remote_random, guid, check) = rakp_2(&second, own).ok_or_else(damaged)?;
    let key = |parts: &[&[u8]]| keyed_hash(cipher, password, parts);
    let (own_id, remote_id) = (own.to_le_bytes(), remote.to_le_bytes());
    let expected = key(&[&own_id, &remote_id, &own_random, remote_random, guid, &named]);
    if !is_equal(check, &expected) {
        return Err(Failure::rejected_user("the password is rejected").into());
    }
    // RAKP messages 3 and 4 (sections 13.22 to 13.24).
    let proof = key(&[remote_random, &own_id, &named]);
    let third = [&[0, 0, 0, 0][..], &remote_id, &proof].concat();
    let bmc_key = request.key.as_ref().map_or(password, |key| key.reveal().as_bytes());
    let session_key = keyed_hash(cipher, bmc_key, &[&own_random, remote_random, &named]);
    let fourth = exchange(&socket, RAKP_3, &third, RAKP_4).await?;
    status(&fourth)?;
    let mut expected = keyed_hash(cipher, &session_key, &[&own_random, &remote_id, guid]);
    expected.truncate(check_bytes(cipher));
    if !is_equal(fourth.get(8..).unwrap_or_default(), &expected) {
        let what = if request.key.is_some() { "`kg` is rejected" } else { "the BMC needs `kg`" };
        return Err(Failure::rejected_user(what).into());
    }
    let keys = Keys::derive(cipher, &session_key);
    let (number, sequence, used) = (0, 0, Instant::now());
    let mut session = Session { socket, keys, remote, own, number, sequence, used };
    let set = session.command(&Command::new(0x06, 0, 0x3b, &[role])).await?;
    match set.first() {
        Some(0) => Ok(session),
        _ => {
            session.close().await;
            Err(OpenError::Role)
        }
    }
}

async fn connect(target: &Target) -> Result<UdpSocket, Failure> {
    let found = lookup_host((&*target.host, target.port)).await;
    let found = found.map_err(|error| Failure::unreachable(format!("cannot resolve: {error}")))?;
    let address = found.into_iter().next();
    let address = address.ok_or_else(|| Failure::unreachable("the name has no address"))?;
    let local = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let failed =
        |error: std::io::Error| Failure::unreachable(format!("cannot open a socket: {error}"));
    let socket = UdpSocket::bind(local).await.map_err(failed)?;
    socket.connect(address).await.map_err(failed)?;
    Ok(socket)
}

fn credentials(target: &Target) -> (&[u8], &[u8]) {
    let user = target.user.as_ref().map_or("", |user| user.reveal());
    let password = target.password.as_ref().map_or("", |password| password.reveal());
    (user.as_bytes(), password.as_bytes())
}

/// Opens a session (sections 13.17 and 13.18). Returns its ID at the BMC.
async fn open(
    socket: &UdpSocket,
    cipher: IpmiCipher,
    own: u32,
    role: u8,
) -> Result<u32, OpenError> {
    let (authentication, integrity) = match cipher {
        IpmiCipher::Suite3 => (1, 1),
        IpmiCipher::Suite17 => (3, 4),
    };
    let algorithm = |kind: u8, number: u8| [kind, 0, 0, 8, number, 0, 0, 0];
    let request = [
        &[0, role, 0, 0][..],
        &own.to_le_bytes(),
        &algorithm(0, authentication),
        &algorithm(1, integrity),
        &algorithm(2, 1),
    ]
    .concat();
    let response = exchange(socket, OPEN_REQUEST, &request, OPEN_RESPONSE).await?;
    status(&response)?;
    Ok(session_id(&response).ok_or_else(damaged)?)
}

/// The BMC's ID of a session that it opens.
fn session_id(payload: &[u8]) -> Option<u32> {
    let id = payload.get(8..12).and_then(|id| id.try_into().ok()).map(u32::from_le_bytes);
    id.filter(|id| *id != 0)
}

/// Reads bytes as a packet that opens a session, and as the message in one.
pub(super) fn parse_any(bytes: &[u8]) {
    let payloads = [OPEN_RESPONSE, RAKP_2, RAKP_4].map(|kind| open_plain(bytes, kind));
    for payload in payloads.into_iter().flatten().chain([bytes]) {
        status(payload).ok();
        session_id(payload);
        rakp_2(payload, 0);
    }
}

/// Random number, identity and check of RAKP message 2.
fn rakp_2(payload: &[u8], own: u32) -> Option<(&[u8], &[u8], &[u8])> {
    let is_own = payload.get(4..8)? == own.to_le_bytes();
    is_own.then_some((payload.get(8..24)?, payload.get(24..40)?, payload.get(40..)?))
}

/// The status of a handshake's message.
fn status(payload: &[u8]) -> Result<(), OpenError> {
    match payload.get(1).copied() {
        Some(0) => Ok(()),
        Some(code) if NO_ALGORITHM.contains(&code) => Err(OpenError::Algorithms),
        Some(code) if NO_ROLE.contains(&code) => Err(OpenError::Role),
        Some(NO_NAME) => Err(Failure::rejected_user("the user is rejected").into()),
        Some(WRONG_CHECK) => Err(Failure::rejected_user("the password is rejected").into()),
        Some(1) => Err(Failure::broken("the BMC has no free session").into()),
        Some(code) => Err(Failure::broken(format!("the BMC opens no session: {code:02x}")).into()),
        None => Err(damaged().into()),
    }
}

/// Sends a message of a handshake, and waits for the response to it.
async fn exchange(
    socket: &UdpSocket,
    kind: u8,
    payload: &[u8],
    response: u8,
) -> Result<Vec<u8>, Failure> {
    for _ in 0..TRIES {
        send(socket, &plain(kind, payload)).await?;
        let open = |packet: &[u8]| open_plain(packet, response).map(<[u8]>::to_vec);
        if let Some(payload) = receive(socket, open).await? {
            return Ok(payload);
        }
    }
    Err(Failure::timeout("the BMC does not answer"))
}

async fn send(socket: &UdpSocket, packet: &[u8]) -> Result<(), Failure> {
    let sent = socket.send(packet).await;
    sent.map(|_| ()).map_err(|error| Failure::unreachable(format!("cannot be reached: {error}")))
}

/// Waits for a packet that opens; `None` if none arrives in time.
async fn receive<T>(
    socket: &UdpSocket,
    open: impl Fn(&[u8]) -> Option<T>,
) -> Result<Option<T>, Failure> {
    let mut packet = [0; PACKET_BYTES_MAX];
    let wait = async {
        for _ in 0..STRANGERS_MAX {
            let received = socket.recv(&mut packet).await;
            let bytes = received
                .map_err(|error| Failure::unreachable(format!("cannot be reached: {error}")))?;
            if let Some(opened) = packet.get(..bytes).and_then(&open) {
                return Ok(Some(opened));
            }
        }
        Ok(None)
    };
    timeout(RESPONSE_WAIT, wait).await.unwrap_or(Ok(None))
}

fn random<const N: usize>() -> Result<[u8; N], Failure> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map(|()| bytes).map_err(|_| Failure::broken("the kernel provides no random bytes"))
}

const fn role(privilege: IpmiPrivilege) -> u8 {
    match privilege {
        IpmiPrivilege::User => 2,
        IpmiPrivilege::Operator => 3,
        IpmiPrivilege::Admin => 4,
    }
}

fn length(name: &[u8]) -> u8 {
    u8::try_from(name.len()).unwrap_or(0)
}

fn damaged() -> Failure {
    Failure::broken("the BMC's response is not valid")
}
