//! Netlink messages: their frames, and non-blocking sockets (netlink(7); RFC 3549 for the format).

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt,
};
use std::os::fd::{AsFd, OwnedFd};

/// The kernel's error or acknowledgement (`NLMSG_ERROR`).
pub(crate) const ERROR: u16 = 2;
/// The last part of a message, and the type of all of the connector's (`NLMSG_DONE`).
pub(crate) const DONE: u16 = 3;
/// Length of `struct nlmsghdr`.
const HEADER: usize = 16;
/// Length of `struct genlmsghdr`.
pub(crate) const GENERIC_HEADER: usize = 4;
/// `NLM_F_REQUEST`.
const REQUEST: u16 = 1;
/// `NLM_F_ACK`: the kernel also answers successful requests.
const ACK: u16 = 4;
/// `NLM_F_DUMP`: the answer is a list.
const DUMP: u16 = 0x300;
/// Bytes of one datagram; the largest here, an exit with its thread group, has 1.6 KiB.
pub(crate) const DATAGRAM_BYTES_MAX: usize = 8192;

/// One message of a datagram.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    pub(crate) kind: u16,
    /// The number of the answered request.
    pub(crate) seq: u32,
    pub(crate) payload: &'a [u8],
}

/// The messages of a datagram, up to the first that is malformed.
pub(crate) fn messages(mut rest: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let length = usize::try_from(u32_at(rest, 0)?).ok()?;
        let (kind, seq) = (u16_at(rest, 4)?, u32_at(rest, 8)?);
        let payload = rest.get(HEADER..length)?;
        rest = rest.get(aligned(length)..).unwrap_or_default();
        Some(Message { kind, seq, payload })
    })
}

/// The attributes of a payload, up to the first that is malformed: their kinds and contents.
pub(crate) fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(rest, 0)?);
        // The two highest bits mean "nested" and "network byte order".
        let kind = u16_at(rest, 2)? & 0x3fff;
        let content = rest.get(4..length)?;
        rest = rest.get(aligned(length)..).unwrap_or_default();
        Some((kind, content))
    })
}

/// The error of a message; `None` for an acknowledgement or another message.
pub(crate) fn error_of(message: &Message<'_>) -> Option<Errno> {
    let code = i32::from_ne_bytes(*message.payload.first_chunk()?);
    (code != 0).then(|| Errno::from_raw_os_error(code.saturating_neg()))
}

const fn aligned(length: usize) -> usize {
    length.saturating_add(3) & !3
}

pub(crate) fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    bytes.get(offset..)?.first_chunk().map(|chunk| u16::from_ne_bytes(*chunk))
}

pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    bytes.get(offset..)?.first_chunk().map(|chunk| u32::from_ne_bytes(*chunk))
}

pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    bytes.get(offset..)?.first_chunk().map(|chunk| u64::from_ne_bytes(*chunk))
}

/// Appends a message to a datagram.
pub(crate) fn push_message(to: &mut Vec<u8>, kind: u16, seq: u32, ack: bool, payload: &[&[u8]]) {
    push(to, kind, seq, if ack { REQUEST | ACK } else { REQUEST }, payload);
}

fn push(to: &mut Vec<u8>, kind: u16, seq: u32, flags: u16, payload: &[&[u8]]) {
    let length = HEADER + payload.iter().map(|part| part.len()).sum::<usize>();
    to.extend(u32::try_from(length).unwrap_or(u32::MAX).to_ne_bytes());
    to.extend(kind.to_ne_bytes());
    to.extend(flags.to_ne_bytes());
    to.extend(seq.to_ne_bytes());
    // 0 addresses the kernel; the kernel fills in the sender.
    to.extend(0_u32.to_ne_bytes());
    for part in payload {
        to.extend_from_slice(part);
    }
    pad(to);
}

/// Appends a generic netlink message with one attribute.
pub(crate) fn push_generic(
    to: &mut Vec<u8>,
    family: u16,
    (seq, ack): (u32, bool),
    command: u8,
    (attribute, content): (u16, &[u8]),
) {
    let version = 1;
    let length = u16::try_from(content.len() + 4).unwrap_or(u16::MAX);
    let header = [command, version, 0, 0];
    let padding = [0; 3];
    let padding = padding.get(..aligned(content.len()) - content.len()).unwrap_or_default();
    let parts: [&[u8]; 5] =
        [&header, &length.to_ne_bytes(), &attribute.to_ne_bytes(), content, padding];
    push_message(to, family, seq, ack, &parts);
}

fn pad(to: &mut Vec<u8>) {
    to.resize(aligned(to.len()), 0);
}

/// Opens a socket bound to the groups of a protocol; `None` is the protocol of routes, which has the number 0.
pub(crate) fn open(protocol: impl Into<Option<Protocol>>, groups: u32) -> Result<OwnedFd, Errno> {
    let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, protocol.into())?;
    rustix::net::bind(&socket, &SocketAddrNetlink::new(0, groups))?;
    Ok(socket)
}

/// Sets how many bytes may wait in the kernel. Values beyond `net.core.rmem_max` need `CAP_NET_ADMIN`;
/// without it, that maximum applies.
pub(crate) fn set_receive_bytes(socket: &OwnedFd, bytes: usize) -> Result<(), Errno> {
    sockopt::set_socket_recv_buffer_size_force(socket, bytes)
        .or_else(|_| sockopt::set_socket_recv_buffer_size(socket, bytes))
}

/// Sends a datagram of requests. The kernel answers them before this returns.
pub(crate) fn send(socket: impl AsFd, datagram: &[u8]) -> Result<(), Errno> {
    loop {
        match rustix::net::send(&socket, datagram, SendFlags::empty()) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Takes the next datagram; `None` if none waits. Only the kernel, and processes with `CAP_NET_ADMIN`,
/// can send to these sockets.
pub(crate) fn receive(socket: impl AsFd, buf: &mut [u8]) -> Result<Option<&[u8]>, Errno> {
    let length = loop {
        match rustix::net::recv(&socket, &mut *buf, RecvFlags::DONTWAIT) {
            Ok((length, _)) => break length,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(None),
            Err(errno) => return Err(errno),
        }
    };
    Ok(buf.get(..length))
}

/// Requests a list, and shows each of its messages. The memory, for the request and for a datagram, may be reused.
///
/// # Errors
/// The kernel rejects the request, or the list lacks its end.
pub(crate) fn list(
    socket: &OwnedFd,
    (kind, payload): (u16, &[u8]),
    (request, buf): (&mut Vec<u8>, &mut [u8]),
    mut show: impl FnMut(&Message<'_>),
) -> Result<(), Errno> {
    request.clear();
    push(request, kind, 0, REQUEST | DUMP, &[payload]);
    send(socket, request)?;
    // The kernel writes the next datagram when the previous one is taken, so this never waits.
    while let Some(datagram) = receive(socket, buf)? {
        if take_list(datagram, &mut show)? {
            return Ok(());
        }
    }
    Err(Errno::PROTO)
}

/// Shows the messages of one datagram of a list; returns whether it was the last.
pub(crate) fn take_list(
    datagram: &[u8],
    mut show: impl FnMut(&Message<'_>),
) -> Result<bool, Errno> {
    for message in messages(datagram) {
        match message.kind {
            DONE => return Ok(true),
            ERROR => return error_of(&message).map_or(Ok(true), Err),
            _ => show(&message),
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn messages_round_trip() {
        let mut datagram = Vec::new();
        push_generic(&mut datagram, 31, (7, false), 1, (1, &9_u32.to_ne_bytes()));
        push_generic(&mut datagram, 31, (8, true), 1, (3, b"0-1\0x"));
        push_message(&mut datagram, 3, 9, false, &[b"tail"]);
        let read: Vec<_> = messages(&datagram).collect();
        assert_eq!(read.len(), 3);
        assert_eq!((read[0].kind, read[0].seq), (31, 7));
        let attribute = attributes(&read[0].payload[GENERIC_HEADER..]).next();
        assert_eq!(attribute, Some((1, &9_u32.to_ne_bytes()[..])));
        let attribute = attributes(&read[1].payload[GENERIC_HEADER..]).next();
        assert_eq!(attribute, Some((3, &b"0-1\0x"[..])));
        assert_eq!((read[2].kind, read[2].payload), (3, &b"tail"[..]));
    }

    #[test]
    fn errors_and_acknowledgements() {
        let error = |code: i32| {
            let payload = code.to_ne_bytes();
            error_of(&Message { kind: ERROR, seq: 0, payload: &payload })
        };
        assert_eq!(error(-3), Some(Errno::SRCH));
        assert_eq!(error(0), None);
        assert_eq!(error_of(&Message { kind: ERROR, seq: 0, payload: b"x" }), None);
    }

    #[test]
    fn a_truncated_datagram_ends_early() {
        let mut datagram = Vec::new();
        push_generic(&mut datagram, 31, (7, false), 1, (1, &9_u32.to_ne_bytes()));
        for cut in 0..datagram.len() {
            assert_eq!(messages(&datagram[..cut]).count(), 0, "{cut}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic_or_loop(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            for message in messages(&bytes) {
                prop_assert!(attributes(message.payload).count() <= bytes.len());
                error_of(&message);
            }
            prop_assert!(attributes(&bytes).count() <= bytes.len());
        }
    }
}
