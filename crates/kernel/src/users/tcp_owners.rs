//! Owners of TCP connections within this machine: by an exact lookup of each (`diag`). If the kernel does not support
//! that, by `/proc/net/tcp` and `/proc/net/tcp6`, with a cost that grows with all connections of the machine
//! (Documentation/networking/proc_net_tcp.rst; net/ipv4/tcp_ipv4.c, `get_tcp4_sock`, Linux 6.18).
//!
//! ```text
//!   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
//!    0: 0100007F:2256 0100007F:B3A4 01 00000000:00000000 00:00000000 00000000  1000        0 26613 1 …
//! ```
//!
//! An address consists of words of 32 bits, each printed as the number that its bytes in network order form in the
//! machine's own order; in tcp6 an IPv4 connection of an IPv6 socket is `::ffff:a.b.c.d`. Only
//! state 01, ESTABLISHED, with an inode that is not 0 has an owner: a socket that is being closed, or that no
//! program has accepted yet, has none, and the kernel then prints uid 0.

mod diag;

use crate::Root;
use crate::parse::{Fields, lines};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const ESTABLISHED: &[u8] = b"01";

/// A connection, as its other end sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// The address of the other end.
    pub theirs: SocketAddr,
    /// Our address.
    pub ours: SocketAddr,
}

/// The owner of each connection's other end. Connections that need the lists share one reading of them. A
/// list that changes during the read may lack an unchanged line: a caller that must be sure repeats the call.
pub fn owners(root: &Root, connections: &[Ends]) -> Vec<Option<u32>> {
    let sockets = root.is_live().then(|| diag::Sockets::open().ok()).flatten();
    let mut uids = vec![None; connections.len()];
    let mut places: HashMap<Pair, Vec<usize>> = HashMap::new();
    for (place, (ends, uid)) in connections.iter().zip(&mut uids).enumerate() {
        match sockets.as_ref().map(|sockets| sockets.owner(*ends)) {
            Some(Ok(owner)) => *uid = owner,
            _ => places.entry(pair(ends.theirs, ends.ours)).or_default().push(place),
        }
    }
    for path in ["proc/net/tcp", "proc/net/tcp6"] {
        if places.values().flatten().any(|place| uids.get(*place) == Some(&None)) {
            let mut text = Vec::new();
            // A kernel without IPv6 has no tcp6.
            if root.read(path, &mut text).is_ok() {
                find(&text, &places, &mut uids);
            }
        }
    }
    uids
}

/// The list may have many connections of anyone: each line costs one lookup, however many are wanted.
fn find(text: &[u8], places: &HashMap<Pair, Vec<usize>>, uids: &mut [Option<u32>]) {
    for line in lines(text).skip(1).filter_map(socket) {
        for place in places.get(&pair(line.local, line.remote)).into_iter().flatten() {
            if let Some(uid) = uids.get_mut(*place) {
                *uid = Some(line.uid);
            }
        }
    }
}

/// The two ends of a connection; IPv4 addresses have the IPv4 form in both lists.
type Pair = [(IpAddr, u16); 2];

fn pair(local: SocketAddr, remote: SocketAddr) -> Pair {
    [local, remote].map(|end| (end.ip().to_canonical(), end.port()))
}

struct Socket {
    local: SocketAddr,
    remote: SocketAddr,
    uid: u32,
}

/// A line with an owner, or `None`.
fn socket(line: &[u8]) -> Option<Socket> {
    let mut fields = Fields::of(line);
    fields.skip(1).ok()?;
    let (local, remote) = (fields.word().ok()?, fields.word().ok()?);
    if fields.word().ok()? != ESTABLISHED {
        return None;
    }
    let (local, remote) = (address(local)?, address(remote)?);
    fields.skip(3).ok()?;
    let uid = u32::try_from(fields.number().ok()?).ok()?;
    fields.skip(1).ok()?;
    (fields.number().ok()? != 0).then_some(Socket { local, remote, uid })
}

fn address(word: &[u8]) -> Option<SocketAddr> {
    let (ip, port) = std::str::from_utf8(word).ok()?.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok().filter(|_| port.len() == 4)?;
    let ip: IpAddr = match ip.len() {
        8 => Ipv4Addr::from(octets(ip)?).into(),
        32 => {
            let mut bytes = [0; 16];
            for (i, to) in bytes.chunks_exact_mut(4).enumerate() {
                to.copy_from_slice(&octets(ip.get(i * 8..i * 8 + 8)?)?);
            }
            Ipv6Addr::from(bytes).into()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

fn octets(hex: &str) -> Option<[u8; 4]> {
    let digits = hex.bytes().all(|b| b.is_ascii_hexdigit());
    digits.then(|| u32::from_str_radix(hex, 16).ok().map(u32::to_ne_bytes)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{TcpListener, TcpStream};

    const HEAD: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";

    fn tree(tcp: &str, tcp6: &str) -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("proc/net")).unwrap();
        std::fs::write(dir.path().join("proc/net/tcp"), format!("{HEAD}{tcp}")).unwrap();
        std::fs::write(dir.path().join("proc/net/tcp6"), format!("{HEAD}{tcp6}")).unwrap();
        let root = Root::recorded(dir.path()).unwrap();
        (dir, root)
    }

    fn ends(theirs: &str, ours: &str) -> Ends {
        Ends { theirs: theirs.parse().unwrap(), ours: ours.parse().unwrap() }
    }

    fn line(local: &str, remote: &str, state: &str, uid: u32, inode: u32) -> String {
        format!(
            "   0: {local} {remote} {state} 00000000:00000000 00:00000000 00000000 {uid:5}        0 {inode} 1 0000000000000000 20 0 0 10 -1\n"
        )
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn the_owner_of_the_other_end_is_found() {
        let ours_first = line("0100007F:2256", "0100007F:B3A4", "01", 7, 1);
        let theirs = line("0100007F:B3A4", "0100007F:2256", "01", 1000, 26613);
        let (_dir, root) = tree(&(ours_first + &theirs), "");
        let connections = [
            ends("127.0.0.1:45988", "127.0.0.1:8790"),
            ends("127.0.0.1:45989", "127.0.0.1:8790"),
            ends("[::ffff:127.0.0.1]:45988", "[::ffff:127.0.0.1]:8790"),
        ];
        assert_eq!(owners(&root, &connections), [Some(1000), None, Some(1000)]);
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn a_closing_socket_has_no_owner() {
        let connections = [ends("127.0.0.1:45988", "127.0.0.1:8790")];
        for (state, inode) in [("05", 0), ("05", 26613), ("06", 0), ("01", 0), ("0A", 9)] {
            let (_dir, root) = tree(&line("0100007F:B3A4", "0100007F:2256", state, 0, inode), "");
            assert_eq!(owners(&root, &connections), [None], "{state} {inode}");
        }
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn an_ipv4_connection_of_an_ipv6_socket() {
        let mapped = |port| format!("0000000000000000FFFF00000100007F:{port}");
        let (_dir, root) = tree("", &line(&mapped("B3A4"), &mapped("2256"), "01", 3, 5));
        let found = owners(&root, &[ends("127.0.0.1:45988", "127.0.0.1:8790")]);
        assert_eq!(found, [Some(3)]);
        let loopback = |port| format!("00000000000000000000000001000000:{port}");
        let (_dir, root) = tree("", &line(&loopback("B3A4"), &loopback("2256"), "01", 3, 5));
        let found = owners(&root, &[ends("[::1]:45988", "[::1]:8790")]);
        assert_eq!(found, [Some(3)]);
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn one_reading_answers_all_connections() {
        let line = |port| line(&format!("0100007F:{port:04X}"), "0100007F:0050", "01", port, 9);
        let (_dir, root) = tree(&(1..=2000).map(line).collect::<String>(), "");
        let ours = "127.0.0.1:80".parse().unwrap();
        let connections = |port| Ends { theirs: ([127, 0, 0, 1], port).into(), ours };
        let all: Vec<Ends> = (1..=1024).chain(1..=2).map(connections).collect();
        let found = owners(&root, &all);
        assert_eq!(found, (1..=1024).chain(1..=2).map(Some).collect::<Vec<_>>());
    }

    #[test]
    fn a_truncated_line_has_no_owner() {
        let line = line("0100007F:B3A4", "0100007F:2256", "01", 1000, 26613);
        let inode_ends = line.find("26613").unwrap();
        for cut in 0..=inode_ends {
            assert!(socket(&line.as_bytes()[..cut]).is_none(), "{cut}");
        }
        assert!(socket(line.as_bytes()).is_some());
    }

    #[test]
    fn this_process_owns_both_ends_of_its_own_connection() {
        let root = Root::live().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (served, theirs) = listener.accept().unwrap();
        let connections = [Ends { theirs, ours: served.local_addr().unwrap() }];
        let uid = rustix::process::getuid().as_raw();
        assert_eq!(owners(&root, &connections), [Some(uid)]);
        drop(client);
        assert_eq!(owners(&root, &connections), [None]);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut uids = [None];
            let connections = ends("127.0.0.1:1", "127.0.0.1:2");
            let places = HashMap::from([(pair(connections.theirs, connections.ours), vec![0])]);
            find(&bytes, &places, &mut uids);
            socket(&bytes).map(|socket| socket.uid);
        }

        #[test]
        fn no_line_of_hex_panics(a in "[0-9A-F:]{0,40}", b in "[0-9A-F:]{0,40}") {
            socket(line(&a, &b, "01", 0, 1).as_bytes()).map(|socket| socket.uid);
        }
    }
}
