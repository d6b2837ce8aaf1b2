//! The owner of one socket by its exact ends, queried from the kernel by netlink (`sock_diag(7)`; net/ipv4/inet_diag.c,
//! `inet_diag_find_one_icsk`, Linux 6.18): one lookup in its table, however many connections there are.

use super::Ends;
use crate::netlink::{ERROR, error_of, messages, open, push_message, receive, send, u32_at};
use rustix::io::Errno;
use rustix::net::netlink::SOCK_DIAG;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

/// `SOCK_DIAG_BY_FAMILY`: a request, and its answer.
const BY_FAMILY: u16 = 20;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const IPPROTO_TCP: u8 = 6;
const ESTABLISHED: u8 = 1;
/// Fields of `struct inet_diag_msg`: the ends (`struct inet_diag_sockid`) without interface and cookie, the
/// user, and the inode.
const ENDS: std::ops::Range<usize> = 4..40;
const UID: usize = 64;
const INODE: usize = 68;
/// An answer has 72 bytes and some attributes.
const ANSWER_BYTES_MAX: usize = 4096;

/// Whether the kernel has found a socket: it has the module `tcp_diag`.
static HAS_TABLE: AtomicBool = AtomicBool::new(false);

/// A connection to the kernel's tables of sockets.
pub(super) struct Sockets {
    netlink: OwnedFd,
}

impl Sockets {
    pub(super) fn open() -> Result<Self, Errno> {
        Ok(Self { netlink: open(SOCK_DIAG, 0)? })
    }

    /// The owner of the other end.
    ///
    /// # Errors
    /// The kernel does not answer: it rejects the request, or has no accessible table of TCP sockets.
    pub(super) fn owner(&self, ends: Ends) -> Result<Option<u32>, Errno> {
        match self.find(ends.theirs, ends.ours)? {
            Some(found) => Ok(found.owner),
            // A kernel without the module `tcp_diag` finds no socket, not even ours.
            None if self.find(ends.ours, ends.theirs)?.is_some() => Ok(None),
            // The connection is gone. A user who resets many connections causes no reading of a long list.
            None if HAS_TABLE.load(Ordering::Relaxed) => Ok(None),
            None => Err(Errno::NOENT),
        }
    }

    fn find(&self, local: SocketAddr, remote: SocketAddr) -> Result<Option<Found>, Errno> {
        let wanted = request(local, remote);
        let mut datagram = Vec::with_capacity(128);
        push_message(&mut datagram, BY_FAMILY, 0, false, &[&wanted]);
        send(&self.netlink, &datagram)?;
        let mut buffer = [0; ANSWER_BYTES_MAX];
        let answer = receive(&self.netlink, &mut buffer)?.ok_or(Errno::AGAIN)?;
        let message = messages(answer).next().ok_or(Errno::BADMSG)?;
        match message.kind {
            ERROR => match error_of(&message) {
                Some(Errno::NOENT) => Ok(None),
                other => Err(other.unwrap_or(Errno::BADMSG)),
            },
            _ => {
                let found = found(message.payload, ends_of(local, remote)).ok_or(Errno::BADMSG)?;
                HAS_TABLE.store(true, Ordering::Relaxed);
                Ok(Some(found))
            }
        }
    }
}

/// A socket with the wanted ends.
struct Found {
    /// `None`: it is not established, or no program has it.
    owner: Option<u32>,
}

/// `struct inet_diag_req_v2`.
fn request(local: SocketAddr, remote: SocketAddr) -> Vec<u8> {
    let family = if local.ip().to_canonical().is_ipv4() { AF_INET } else { AF_INET6 };
    let (extensions, padding, every_state) = (0, 0, u32::MAX);
    let (any_interface, no_cookie) = ([0; 4], [0xff; 8]);
    let head = [family, IPPROTO_TCP, extensions, padding];
    let ends = ends_of(local, remote);
    [&head[..], &every_state.to_ne_bytes(), &ends, &any_interface, &no_cookie].concat()
}

/// Ports and addresses in network order, an IPv4 address in the first of four words.
fn ends_of(local: SocketAddr, remote: SocketAddr) -> [u8; 36] {
    let mut bytes = [0; 36];
    let mut parts = bytes.iter_mut();
    let mut put = |part: &[u8], length: usize| {
        for (place, byte) in parts.by_ref().take(length).zip(part.iter().chain(&[0; 16])) {
            *place = *byte;
        }
    };
    put(&local.port().to_be_bytes(), 2);
    put(&remote.port().to_be_bytes(), 2);
    for end in [local, remote] {
        match end.ip().to_canonical() {
            IpAddr::V4(ip) => put(&ip.octets(), 16),
            IpAddr::V6(ip) => put(&ip.octets(), 16),
        }
    }
    bytes
}

/// `struct inet_diag_msg`; `None` if malformed. A listening socket answers for missing connections.
fn found(message: &[u8], wanted: [u8; 36]) -> Option<Found> {
    let (family, state) = (*message.first()?, *message.get(1)?);
    let (uid, inode) = (u32_at(message, UID)?, u32_at(message, INODE)?);
    let ends = message.get(ENDS)?;
    // An IPv6 socket with an IPv4 connection has addresses of the form `::ffff:a.b.c.d`.
    let is_same = ends == wanted || (family == AF_INET6 && mapped(ends)? == wanted);
    let owner = (is_same && state == ESTABLISHED && inode != 0).then_some(uid);
    Some(Found { owner })
}

/// Ends with IPv4 addresses in the IPv4 form.
fn mapped(ends: &[u8]) -> Option<[u8; 36]> {
    let port = |at: usize| ends.get(at..)?.first_chunk().map(|port| u16::from_be_bytes(*port));
    let ip = |at: usize| ends.get(at..)?.first_chunk::<16>().map(|ip| IpAddr::from(*ip));
    Some(ends_of(SocketAddr::new(ip(4)?, port(0)?), SocketAddr::new(ip(20)?, port(2)?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn the_owner_of_each_kind_of_connection_and_of_none() {
        let Ok(sockets) = Sockets::open() else { return };
        let uid = rustix::process::getuid().as_raw();
        for (listens, connects) in
            [("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "::1"), ("[::]:0", "127.0.0.1")]
        {
            let Ok(listener) = TcpListener::bind(listens) else { continue };
            let port = listener.local_addr().unwrap().port();
            let client = TcpStream::connect((connects, port)).unwrap();
            let (served, theirs) = listener.accept().unwrap();
            let ends = Ends { theirs, ours: served.local_addr().unwrap() };
            let owner = sockets.owner(ends);
            if owner == Err(Errno::NOENT) {
                // A kernel without the module.
                return;
            }
            assert_eq!(owner, Ok(Some(uid)), "{listens}");
            // A server's end, too, which may be a socket of both families.
            let back = Ends { theirs: ends.ours, ours: theirs };
            assert_eq!(sockets.owner(back), Ok(Some(uid)), "{listens}");
            drop(client);
            // The other end is closing, or gone; ours still exists.
            assert_eq!(sockets.owner(ends), Ok(None), "{listens}");
            drop(served);
        }
        // No socket has these ends, and a listening socket does not count.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = listener.local_addr().unwrap();
        let ends = Ends { theirs: ([127, 0, 0, 1], 1).into(), ours };
        assert!(!matches!(sockets.owner(ends), Ok(Some(_))));
        assert!(!matches!(sockets.owner(Ends { theirs: ours, ours: ends.theirs }), Ok(Some(_))));
    }

    /// Each of these would make the next look-ups wait for a list of all connections of the machine.
    #[test]
    fn a_connection_that_was_reset_needs_no_list() {
        let Ok(sockets) = Sockets::open() else { return };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (served, theirs) = listener.accept().unwrap();
        let ends = Ends { theirs, ours: served.local_addr().unwrap() };
        if sockets.owner(ends) == Err(Errno::NOENT) {
            // A kernel without the module.
            return;
        }
        rustix::net::sockopt::set_socket_linger(&client, Some(std::time::Duration::ZERO)).unwrap();
        drop((client, served));
        assert_eq!(sockets.owner(ends), Ok(None));
    }

    #[test]
    fn only_an_established_socket_with_an_inode_and_these_ends_has_an_owner() {
        let (local, remote): (SocketAddr, _) =
            ("127.0.0.1:7".parse().unwrap(), "127.0.0.1:80".parse().unwrap());
        let message = |family: u8, state: u8, ends: &[u8], uid: u32, inode: u32| {
            let mut bytes = [&[family, state, 0, 0][..], ends].concat();
            bytes.resize(UID, 0);
            [bytes, uid.to_ne_bytes().to_vec(), inode.to_ne_bytes().to_vec()].concat()
        };
        let wanted = ends_of(local, remote);
        let owner = |bytes: &[u8]| found(bytes, wanted).and_then(|found| found.owner);
        let good = message(AF_INET, ESTABLISHED, &wanted, 7, 9);
        assert_eq!(owner(&good), Some(7));
        let mapped = [
            &[0, 7, 0, 80][..],
            &"::ffff:127.0.0.1".parse::<std::net::Ipv6Addr>().unwrap().octets(),
            &"::ffff:127.0.0.1".parse::<std::net::Ipv6Addr>().unwrap().octets(),
        ];
        assert_eq!(owner(&message(AF_INET6, ESTABLISHED, &mapped.concat(), 7, 9)), Some(7));
        let other = ends_of(remote, local);
        for (state, ends, inode) in [(10, wanted, 9), (6, wanted, 9), (1, wanted, 0), (1, other, 9)]
        {
            assert_eq!(owner(&message(AF_INET, state, &ends, 0, inode)), None, "{state} {inode}");
        }
        for cut in 0..good.len() {
            assert!(found(&good[..cut], wanted).is_none(), "{cut}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            found(&bytes, [0; 36]);
        }
    }
}
