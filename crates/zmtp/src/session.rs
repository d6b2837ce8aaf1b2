//! One end of a connection: received bytes in, messages and bytes to write out. No input, output or clock.

use crate::command::{COMMAND_BYTES_MAX, Command, pong, ready, reported};
use crate::error::{PeerError, printable};
use crate::frame::Header;
use std::mem::take;

/// Bytes of a greeting: signature, version, mechanism, role of the server, filler.
const GREETING_BYTES: usize = 64;
const MECHANISM: std::ops::Range<usize> = 12..32;
/// Answers that a peer may leave unread, in bytes.
const UNREAD_BYTES_MAX: usize = 4096;

/// Which socket this end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Receives messages.
    Pull,
    /// Sends messages.
    Push,
}

impl Role {
    const fn socket(self) -> &'static str {
        match self {
            Self::Pull => "PULL",
            Self::Push => "PUSH",
        }
    }

    const fn other(self) -> Self {
        match self {
            Self::Pull => Self::Push,
            Self::Push => Self::Pull,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Greeting,
    Handshake,
    Open,
}

/// A connection. After an error it must be closed.
#[derive(Debug)]
pub struct Session {
    role: Role,
    message_bytes_max: usize,
    phase: Phase,
    /// The begin of a greeting or of a header.
    head: Vec<u8>,
    /// The frame of `body`, and the length of a whole body.
    frame: Option<(bool, usize)>,
    /// The begin of a body. It grows with received bytes.
    body: Vec<u8>,
    /// Bytes to write; those before `written` are written.
    out: Vec<u8>,
    written: usize,
    /// Bytes of answers in `out`, since it was empty last.
    answers: usize,
}

impl Session {
    /// A new connection that accepts messages of at most this many bytes.
    pub fn new(role: Role, message_bytes_max: usize) -> Self {
        let mut out = vec![0; GREETING_BYTES];
        let signature = [0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 1];
        let parts = signature.into_iter().chain(*b"NULL");
        out.iter_mut().zip(parts).for_each(|(byte, part)| *byte = part);
        Self {
            role,
            message_bytes_max,
            phase: Phase::Greeting,
            head: Vec::new(),
            frame: None,
            body: Vec::new(),
            out,
            written: 0,
            answers: 0,
        }
    }

    /// Takes received bytes, and calls `each` with every message that is whole now.
    ///
    /// # Errors
    /// The peer breaks the protocol or a limit. Messages before that were valid.
    pub fn receive(
        &mut self,
        mut bytes: &[u8],
        each: &mut dyn FnMut(Vec<u8>),
    ) -> Result<(), PeerError> {
        while !bytes.is_empty() {
            bytes = match (self.phase, self.frame) {
                (Phase::Greeting, _) => self.receive_greeting(bytes)?,
                (_, None) => self.receive_header(bytes, each)?,
                (_, Some((is_command, length))) => {
                    let (body, rest) = split(bytes, length - self.body.len());
                    self.body.extend_from_slice(body);
                    if self.body.len() == length {
                        self.complete(is_command, each)?;
                    }
                    rest
                }
            };
        }
        Ok(())
    }

    /// Adds a message to the bytes to write.
    pub fn send(&mut self, message: &[u8]) {
        Header { is_command: false, length: message.len() as u64 }.encode(&mut self.out);
        self.out.extend_from_slice(message);
    }

    /// The bytes to write next.
    pub fn pending(&self) -> &[u8] {
        self.out.get(self.written..).unwrap_or_default()
    }

    /// Notes that this many of [`Self::pending`] are written.
    pub fn wrote(&mut self, bytes: usize) {
        self.written += bytes;
        if self.written >= self.out.len() {
            self.out.clear();
            (self.written, self.answers) = (0, 0);
        }
    }

    /// Whether the handshake is over.
    pub fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Whether nothing is lost if the peer ends now: no handshake and no frame has begun and is not whole.
    pub fn is_idle(&self) -> bool {
        self.is_open() && self.head.is_empty() && self.frame.is_none()
    }

    /// Bytes of an unfinished message.
    pub fn unfinished(&self) -> usize {
        self.body.len()
    }

    fn receive_greeting<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], PeerError> {
        let (now, rest) = split(bytes, GREETING_BYTES - self.head.len());
        self.head.extend_from_slice(now);
        let at = |place: usize| self.head.get(place).copied();
        if at(0) != Some(0xff) || at(9).is_some_and(|byte| byte != 0x7f) {
            return Err(PeerError::Foreign);
        }
        if let Some(version) = at(10).filter(|version| *version < 3) {
            return Err(PeerError::Version(version));
        }
        if let Some(mechanism) = self.head.get(MECHANISM) {
            let name = mechanism.split(|byte| *byte == 0).next().unwrap_or_default();
            if name != b"NULL" {
                return Err(PeerError::Mechanism(printable(name)));
            }
        }
        if self.head.len() == GREETING_BYTES {
            self.head.clear();
            self.phase = Phase::Handshake;
            ready(self.role.socket(), &mut self.out);
        }
        Ok(rest)
    }

    fn receive_header<'a>(
        &mut self,
        bytes: &'a [u8],
        each: &mut dyn FnMut(Vec<u8>),
    ) -> Result<&'a [u8], PeerError> {
        let flags = self.head.first().or(bytes.first()).copied().unwrap_or_default();
        let length = Header::bytes(flags)?;
        let (now, rest) = split(bytes, length - self.head.len());
        self.head.extend_from_slice(now);
        if self.head.len() < length {
            return Ok(rest);
        }
        let Header { is_command, length: announced } = Header::of(&self.head);
        self.head.clear();
        let may_send = self.role == Role::Pull && self.is_open();
        if !is_command && !may_send {
            return Err(PeerError::Message);
        }
        let limit = if is_command { COMMAND_BYTES_MAX } else { self.message_bytes_max };
        let length = usize::try_from(announced).ok().filter(|length| *length <= limit);
        let length = length.ok_or(PeerError::TooLong { announced, limit })?;
        self.frame = Some((is_command, length));
        if length == 0 {
            self.complete(is_command, each)?;
        }
        Ok(rest)
    }

    /// A frame is whole.
    fn complete(
        &mut self,
        is_command: bool,
        each: &mut dyn FnMut(Vec<u8>),
    ) -> Result<(), PeerError> {
        self.frame = None;
        let body = take(&mut self.body);
        if !is_command {
            each(body);
            return Ok(());
        }
        match (self.phase, Command::of(&body).ok_or(PeerError::Command)?) {
            (_, Command::Error { reason }) => return Err(reported(reason)),
            (Phase::Handshake, Command::Ready { socket }) => {
                if socket != self.role.other().socket().as_bytes() {
                    return Err(PeerError::Socket(printable(socket)));
                }
                self.phase = Phase::Open;
            }
            (Phase::Open, Command::Ping { context }) => {
                let before = self.out.len();
                pong(context, &mut self.out);
                self.answers += self.out.len() - before;
                if self.answers > UNREAD_BYTES_MAX {
                    return Err(PeerError::Unread);
                }
            }
            (Phase::Open, Command::Other) => {}
            _ => return Err(PeerError::Command),
        }
        Ok(())
    }
}

/// The first bytes, at most this many, and the rest.
fn split(bytes: &[u8], length: usize) -> (&[u8], &[u8]) {
    bytes.split_at_checked(length).unwrap_or((bytes, &[]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMIT: usize = 1000;

    /// What a peer of the other role sends first.
    fn opening(role: Role) -> Vec<u8> {
        let mut bytes = Session::new(role.other(), 0).pending().to_vec();
        ready(role.other().socket(), &mut bytes);
        bytes
    }

    /// The messages and the end of a session that receives these parts.
    fn received(role: Role, parts: &[&[u8]]) -> (Vec<Vec<u8>>, Result<(), PeerError>, Session) {
        let (mut session, mut messages) = (Session::new(role, LIMIT), Vec::new());
        let mut each = |message| messages.push(message);
        let end = parts.iter().try_for_each(|part| session.receive(part, &mut each));
        (messages, end, session)
    }

    fn end_of(role: Role, bytes: &[u8]) -> PeerError {
        received(role, &[bytes]).1.unwrap_err()
    }

    #[test]
    fn a_header_of_a_terabyte_allocates_nothing() {
        let header = [&opening(Role::Pull)[..], b"\x02", &10u64.pow(12).to_be_bytes()].concat();
        let (messages, end, session) = received(Role::Pull, &[&header]);
        let too_long = PeerError::TooLong { announced: 10u64.pow(12), limit: LIMIT };
        assert_eq!((messages, end), (vec![], Err(too_long)));
        assert_eq!(session.body.capacity(), 0);
    }

    #[test]
    fn memory_grows_with_received_bytes() {
        let begin = [&opening(Role::Pull)[..], &[2, 0, 0, 0, 0, 0, 0, 3, 0xe8]].concat();
        let (_, end, mut session) = received(Role::Pull, &[&begin, b"abc"]);
        assert_eq!((end, session.unfinished()), (Ok(()), 3));
        assert!(session.body.capacity() < 64 && !session.is_idle());
        let mut messages = Vec::new();
        session.receive(&[b'x'; 997], &mut |message| messages.push(message)).unwrap();
        assert_eq!((messages[0].len(), session.unfinished()), (1000, 0));
        assert!(session.is_idle());
    }

    #[test]
    fn both_ends_of_a_connection_understand_each_other() {
        let (mut pull, mut push) = (Session::new(Role::Pull, LIMIT), Session::new(Role::Push, 0));
        let mut messages = Vec::new();
        for round in 0..4 {
            if round == 2 {
                push.send(b"");
                push.send(&[7; 300]);
            }
            for _ in 0..2 {
                let bytes = push.pending().to_vec();
                push.wrote(bytes.len());
                pull.receive(&bytes, &mut |message| messages.push(message)).unwrap();
                std::mem::swap(&mut pull, &mut push);
            }
        }
        assert_eq!(messages, [vec![], vec![7; 300]]);
        assert!(pull.is_idle() && push.is_idle());
    }

    #[test]
    fn wrong_peers_end_with_a_reason() {
        use PeerError::{Command, Flags, Foreign, Mechanism, Message, Socket, Version};
        let opened = opening(Role::Pull);
        let with = |place: usize, byte: u8| {
            let mut bytes = opened.clone();
            bytes[place] = byte;
            end_of(Role::Pull, &bytes)
        };
        assert_eq!(end_of(Role::Pull, b"GET / HTTP/1.1\r\n"), Foreign);
        assert_eq!(end_of(Role::Pull, b"\xff\0\0\0\0\0\0\0\x01\x7e"), Foreign);
        assert_eq!(with(10, 1), Version(1));
        assert_eq!(with(12, b'M'), Mechanism("MULL".into()));
        assert_eq!(with(64, 5), Flags(5));
        assert_eq!(with(64, 0), Message);
        assert_eq!(with(66, 9), Command);
        let pushes = end_of(Role::Push, &opened);
        assert_eq!(pushes, Socket("PUSH".into()));
        let then = |bytes: &[u8]| end_of(Role::Pull, &[&opened[..], bytes].concat());
        assert_eq!(then(b"\x08"), Flags(8));
        assert_eq!(then(&opened[64..]), Command);
        assert_eq!(then(b"\x04\x0a\x05ERROR\x03bad"), PeerError::Reported("bad".into()));
        assert!(matches!(then(b"\x06\0\0\0\0\0\x01\0\0"), PeerError::TooLong { .. }));
        let sends = end_of(Role::Push, &[&opening(Role::Push)[..], b"\0\x01a"].concat());
        assert_eq!(sends, Message);
    }

    #[test]
    fn requests_are_answered_until_answers_are_left_unread() {
        let ping = b"\x04\x09\x04PING\0\x0aab";
        let (_, end, mut session) = received(Role::Pull, &[&opening(Role::Pull)]);
        end.unwrap();
        session.wrote(session.pending().len());
        session.receive(ping, &mut |_| ()).unwrap();
        assert_eq!(session.pending(), b"\x04\x07\x04PONGab");
        session.wrote(4);
        assert_eq!(session.pending(), b"ONGab");
        let many = ping.repeat(1000);
        assert_eq!(session.receive(&many, &mut |_| ()), Err(PeerError::Unread));
        assert!(session.pending().len() < 2 * UNREAD_BYTES_MAX);
    }

    proptest! {
        #[test]
        fn the_result_does_not_depend_on_where_bytes_are_split(
            bytes in prop::collection::vec(prop_oneof![0u8..8, any::<u8>()], 0..80),
            is_open: bool,
            split in 0usize..200,
        ) {
            let opened = if is_open { opening(Role::Pull) } else { Vec::new() };
            let all = [&opened[..], &bytes].concat();
            let (first, rest) = all.split_at(split.min(all.len()));
            let (whole, parts) = (received(Role::Pull, &[&all]), received(Role::Pull, &[first, rest]));
            prop_assert_eq!((&whole.0, &whole.1), (&parts.0, &parts.1));
            prop_assert!(whole.2.unfinished() <= bytes.len());
        }
    }
}
