//! Sockets: `/proc/net/sockstat`, `/proc/net/sockstat6` (proc_pid_net(5); net/ipv4/proc.c, Linux 6.18) and the states
//! of TCP from `/proc/net/tcp` and `/proc/net/tcp6` (Documentation/networking/proc_net_tcp.rst).
//!
//! ```text
//! sockets: used 46
//! TCP: inuse 7 orphan 0 tw 30 alloc 7 mem 251
//! FRAG: inuse 0 memory 0
//! ```
//!
//! `mem` is in pages, `memory` in bytes. A line of `/proc/net/tcp` is a socket; its fourth word is the state:
//!
//! ```text
//!   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
//!    0: 0100007F:15B3 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 19219 1 0000000000000000
//! ```

use crate::Root;
use crate::parse::{Fields, ParseError, whole_lines};

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

impl TcpStates {
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
            let place = self.state.checked_sub(1).and_then(|place| usize::try_from(place).ok());
            match place.and_then(|place| self.counts.get_mut(place)) {
                Some(count) => *count += 1,
                None => self.others += 1,
            }
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
