//! Sockets: `/proc/net/sockstat`, `/proc/net/sockstat6` (proc_pid_net(5); net/ipv4/proc.c, Linux 6.18) and the states
//! of TCP from `/proc/net/tcp` and `/proc/net/tcp6` (Documentation/networking/proc_net_tcp.rst).
//!
//! ```text
//! sockets: used 46
//! TCP: inuse 7 orphan 0 tw 30 alloc 7 mem 251
//! FRAG: inuse 0 memory 0
//! ```
//!
//! `mem` is in pages, `memory` in bytes. The states also come from the kernel's `sock_diag` (sock_diag(7);
//! net/ipv4/inet_diag.c). Its older request, of `struct inet_diag_req`, asks for both families at once: one walk through
//! the kernel's table, where the two files take one each and look at every bucket twice. A line of `/proc/net/tcp` is a socket; its fourth word is the state:
//!
//! ```text
//!   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
//!    0: 0100007F:15B3 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 19219 1 0000000000000000
//! ```

use crate::Root;
use crate::netlink::{DATAGRAM_BYTES_MAX, list, open};
use crate::parse::{Fields, ParseError, whole_lines};
use rustix::io::Errno;
use rustix::net::netlink::SOCK_DIAG;

/// The states of TCP by their numbers less 1 (include/net/tcp_states.h). The kernel prints a request
/// that is not a socket yet (`NEW_SYN_RECV`) as `syn_recv`.
pub const STATES: [&str; 11] = [
    "established",
    "syn_sent",
    "syn_recv",
    "fin_wait1",
    "fin_wait2",
    "time_wait",
    "close",
    "close_wait",
    "last_ack",
    "listen",
    "closing",
];

/// `TCPDIAG_GETSOCK`.
const TCP_SOCKETS: u16 = 18;
/// `struct inet_diag_req`: family and lengths, `struct inet_diag_sockid`, the wanted states, and `idiag_dbs`.
const REQUEST_BYTES: usize = 4 + 48 + 4 + 4;
const WANTED_STATES: usize = 52;
/// The states of [`STATES`], by the bits of their numbers. Without `BOUND_INACTIVE`, which the files lack, too.
const EVERY_STATE: u32 = (1 << 12) - 2;

/// Bytes in a page of memory: those of this machine, and 4096 on every recorded one.
pub fn page_bytes(root: &Root) -> u64 {
    if root.is_live() { u64::try_from(rustix::param::page_size()).unwrap_or(4096) } else { 4096 }
}

/// The numbers of `sockstat`: the protocol, the name, the number.
///
/// # Errors
/// The text is truncated, a line has no colon, or a name no number.
pub fn sockstat(text: &[u8], mut show: impl FnMut(&[u8], &[u8], u64)) -> Result<(), ParseError> {
    for line in whole_lines(text)? {
        let mut fields = Fields::of(line);
        let protocol = fields.word()?.strip_suffix(b":").ok_or(ParseError::at(line))?;
        while !fields.rest().is_empty() {
            let name = fields.word()?;
            show(protocol, name, fields.number()?);
        }
    }
    Ok(())
}

/// Counts the states of a `/proc/net/tcp` that is passed part by part, so that a node with a hundred thousand sockets
/// needs no more memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TcpStates {
    /// How many sockets are in each of [`STATES`].
    pub counts: [u64; STATES.len()],
    /// Sockets in any other state.
    pub others: u64,
    /// Words begun in this line.
    word: u32,
    inside: bool,
    state: u32,
}

/// Asks the live machine for the states of its TCP sockets, with reused memory.
#[derive(Debug)]
pub struct TcpStatesQuery {
    request: Vec<u8>,
    datagram: Box<[u8]>,
}

impl Default for TcpStatesQuery {
    fn default() -> Self {
        Self { request: Vec::new(), datagram: vec![0; DATAGRAM_BYTES_MAX].into_boxed_slice() }
    }
}

impl TcpStatesQuery {
    /// The states in the network namespace of the calling thread, by `sock_diag`.
    ///
    /// # Errors
    /// The kernel has no `sock_diag` for TCP, or does not answer.
    pub fn states(&mut self) -> Result<TcpStates, Errno> {
        let mut wanted = [0; REQUEST_BYTES];
        let place = wanted.iter_mut().skip(WANTED_STATES);
        place.zip(EVERY_STATE.to_ne_bytes()).for_each(|(to, from)| *to = from);
        let mut states = TcpStates::default();
        let memory = (&mut self.request, &mut *self.datagram);
        list(&open(SOCK_DIAG, 0)?, (TCP_SOCKETS, &wanted), memory, |message| {
            // `struct inet_diag_msg`: the family, then the state.
            states.count(message.payload.get(1).map_or(0, |state| u32::from(*state)));
        })?;
        Ok(states)
    }
}

impl TcpStates {
    fn count(&mut self, state: u32) {
        let place = state.checked_sub(1).and_then(|place| usize::try_from(place).ok());
        match place.and_then(|place| self.counts.get_mut(place)) {
            Some(count) => *count += 1,
            None => self.others += 1,
        }
    }

    /// Adds the next part of the file.
    pub fn add(&mut self, part: &[u8]) {
        for byte in part {
            match byte {
                b'\n' => {
                    self.end_word();
                    self.word = 0;
                }
                b' ' => self.end_word(),
                byte => {
                    if !self.inside {
                        (self.inside, self.state) = (true, 0);
                        self.word = self.word.saturating_add(1);
                    }
                    if self.word == 4 {
                        let digit = char::from(*byte).to_digit(16);
                        // The header's `st` is not a number; it becomes an invalid state.
                        self.state = digit.map_or(u32::MAX, |digit| {
                            self.state.saturating_mul(16).saturating_add(digit)
                        });
                    }
                }
            }
        }
    }

    fn end_word(&mut self) {
        if self.inside && self.word == 4 && self.state != u32::MAX {
            self.count(self.state);
        }
        self.inside = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SOCKSTAT: &[u8] = b"sockets: used 46\nTCP: inuse 7 orphan 0 tw 30 alloc 7 mem 251\n";
    const TCP: &[u8] = b"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when\n\
        \x20  0: 0100007F:15B3 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0\n\
        \x20  1: 0100007F:15B3 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0\n\
        \x20  2: 0100007F:15B3 0100007F:9C42 01 00000000:00000000 00:00000000 00000000     0\n\
        \x20  3: 0100007F:15B3 0100007F:9C44 0D 00000000:00000000 00:00000000 00000000     0\n";

    #[test]
    fn the_kernel_counts_by_query_as_in_its_files() {
        let root = Root::live().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let both = || {
            let mut files = TcpStates::default();
            for path in ["proc/net/tcp", "proc/net/tcp6"] {
                // A kernel without IPv6 lacks the second.
                let mut text = Vec::new();
                root.read(path, &mut text).ok();
                files.add(&text);
            }
            (TcpStatesQuery::default().states().map(|it| it.counts), files.counts)
        };
        // Other programs open and close sockets meanwhile.
        let same = (0..100).any(|_| match both() {
            (Ok(queried), listed) => queried == listed && queried[9] > 0,
            // A kernel without the module.
            (Err(_), _) => true,
        });
        assert!(same, "{:?}", both());
        drop(listener);
    }

    type Number = (Vec<u8>, Vec<u8>, u64);

    fn all(text: &[u8]) -> Result<Vec<Number>, ParseError> {
        let mut found = Vec::new();
        sockstat(text, |protocol, name, number| {
            found.push((protocol.to_owned(), name.to_owned(), number));
        })?;
        Ok(found)
    }

    #[test]
    fn protocols_and_numbers() {
        let found = all(SOCKSTAT).unwrap();
        assert_eq!(found[0], (b"sockets".to_vec(), b"used".to_vec(), 46));
        assert_eq!(found[5], (b"TCP".to_vec(), b"mem".to_vec(), 251));
        assert_eq!(found.len(), 6);
        for cut in 0..SOCKSTAT.len() {
            let lines = cut == 0 || SOCKSTAT[..cut].ends_with(b"\n");
            assert_eq!(all(&SOCKSTAT[..cut]).is_ok(), lines, "{cut}");
        }
        for text in ["TCP 1\n", "TCP: inuse\n", "TCP: inuse x\n"] {
            assert!(all(text.as_bytes()).is_err(), "{text:?}");
        }
    }

    #[test]
    fn states() {
        let mut states = TcpStates::default();
        states.add(TCP);
        assert_eq!((states.counts[0], states.counts[9], states.others), (2, 1, 1));
        assert_eq!(states.counts.iter().sum::<u64>(), 3);
    }

    proptest! {
        /// The boundaries of parts do not matter.
        #[test]
        fn parts_add_up_to_the_whole(
            bytes in prop_oneof![Just(TCP.to_vec()), prop::collection::vec(any::<u8>(), 0..200)],
            size in 1_usize..50,
        ) {
            let (mut whole, mut parts) = (TcpStates::default(), TcpStates::default());
            whole.add(&bytes);
            bytes.chunks(size).for_each(|part| parts.add(part));
            prop_assert_eq!(whole, parts);
            all(&bytes).ok();
        }
    }
}
