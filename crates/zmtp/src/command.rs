//! Commands: a name with its length, then data. READY has properties: a name, and a value with four bytes of length.

use crate::error::{PeerError, printable};
use crate::frame::Header;

/// Bytes of the longest command: the largest READY of libzmq has some 300.
pub(crate) const COMMAND_BYTES_MAX: usize = 4096;
/// Bytes of the longest context of a PING.
const CONTEXT_BYTES_MAX: usize = 16;
const SOCKET_TYPE: &[u8] = b"Socket-Type";

/// A command of the peer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command<'a> {
    /// The end of its handshake, with the type of its socket.
    Ready { socket: &'a [u8] },
    /// It wants a PONG with this context.
    Ping { context: &'a [u8] },
    /// It ends the handshake.
    Error { reason: &'a [u8] },
    /// A command without a meaning here: PONG, or one of a later version.
    Other,
}

impl<'a> Command<'a> {
    /// The command of a body; `None` if it is damaged.
    pub(crate) fn of(body: &'a [u8]) -> Option<Self> {
        let (name, rest) = short(body)?;
        Some(match name {
            b"READY" => Self::Ready { socket: socket_type(rest)? },
            b"PING" => {
                // A time in two bytes: it matters to those that send PING themselves.
                let (_, context) = rest.split_at_checked(2)?;
                (context.len() <= CONTEXT_BYTES_MAX).then_some(Self::Ping { context })?
            }
            b"ERROR" => Self::Error { reason: short(rest)?.0 },
            _ => Self::Other,
        })
    }
}

/// The value of the property `Socket-Type`, if every property is whole.
fn socket_type(mut properties: &[u8]) -> Option<&[u8]> {
    let mut found = None;
    while !properties.is_empty() {
        let (name, rest) = short(properties)?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let (value, rest) = rest.split_at_checked(u32::from_be_bytes(*length).try_into().ok()?)?;
        if name.eq_ignore_ascii_case(SOCKET_TYPE) {
            found = Some(value);
        }
        properties = rest;
    }
    found
}

/// Bytes after their length, and the rest.
fn short(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first()?;
    rest.split_at_checked((*length).into())
}

/// Appends READY of a socket.
pub(crate) fn ready(socket: &str, out: &mut Vec<u8>) {
    let mut body = b"\x05READY\x0b".to_vec();
    body.extend(SOCKET_TYPE);
    body.extend([0, 0, 0, 4]);
    body.extend(socket.as_bytes());
    command(&body, out);
}

/// Appends the answer of a PING.
pub(crate) fn pong(context: &[u8], out: &mut Vec<u8>) {
    command(&[b"\x04PONG", context].concat(), out);
}

fn command(body: &[u8], out: &mut Vec<u8>) {
    Header { is_command: true, length: body.len() as u64 }.encode(out);
    out.extend(body);
}

/// What an ERROR reports.
pub(crate) fn reported(reason: &[u8]) -> PeerError {
    PeerError::Reported(printable(reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read() {
        let mut out = Vec::new();
        ready("PUSH", &mut out);
        assert_eq!(out[..2], [4, 26]);
        assert_eq!(Command::of(&out[2..]), Some(Command::Ready { socket: b"PUSH" }));
        // As libzmq sends it: with an empty identity, and names in any case.
        let libzmq = b"\x05READY\x0bsocket-TYPE\0\0\0\x04PULL\x08Identity\0\0\0\0";
        assert_eq!(Command::of(libzmq), Some(Command::Ready { socket: b"PULL" }));
        assert_eq!(Command::of(b"\x04PING\0\x0aab"), Some(Command::Ping { context: b"ab" }));
        assert_eq!(Command::of(b"\x05ERROR\x03bad"), Some(Command::Error { reason: b"bad" }));
        assert_eq!(Command::of(b"\x09SUBSCRIBEx"), Some(Command::Other));
    }

    #[test]
    fn damaged_commands_are_none() {
        for body in [
            &b""[..],
            b"\x05READ",
            b"\x05READY",
            b"\x05READY\x0bSocket-Type\0\0\0\x05PUSH",
            b"\x05READY\x0bSocket-Type\xff\xff\xff\xffPUSH",
            b"\x05READY\x0bSocket-Type\0\0\0\x04PUSHx",
            b"\x04PING\0",
            b"\x04PING\0\x0a12345678901234567",
            b"\x05ERROR\x04bad",
        ] {
            assert_eq!(Command::of(body), None, "{}", printable(body));
        }
    }
}
