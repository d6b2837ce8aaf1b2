//! Addresses of network interfaces, by route netlink (rtnetlink(7), `RTM_GETADDR`; net/ipv4/devinet.c and
//! net/ipv6/addrconf.c, Linux 6.18). No permission is needed.
//!
//! ```text
//! nlmsghdr 16 | ifaddrmsg 8 { family, prefix, flags, scope, index } | ADDRESS 1 | LOCAL 2 | LABEL 3 …
//! ```
//!
//! On a recorded machine the reply is in `.jobmeter/addresses`, as [`Address`] prints it: the interface's index,
//! the address and its prefix.
//!
//! ```text
//! 2 192.0.2.7/24
//! 2 2001:db8::7/64
//! ```

use crate::netlink::{DATAGRAM_BYTES_MAX, Message, attributes, list, open, u32_at};
use crate::parse::{Fields, ParseError, number, whole_lines};
use crate::{ReadError, Root};
use rustix::io::Errno;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Most addresses that are read.
pub const ADDRESSES_MAX: usize = 4096;
/// Path of the recorded reply.
const REPLY: &str = ".jobmeter/addresses";
const NEW_ADDRESS: u16 = 20;
const GET_ADDRESS: u16 = 22;

/// An address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The interface's number, as `/sys/class/net/NAME/ifindex` has it.
    pub index: u32,
    /// The address.
    pub ip: IpAddr,
    /// Number of bits of its network prefix.
    pub prefix: u8,
}

/// The addresses of the agent's own network namespace, [`ADDRESSES_MAX`] at most.
///
/// # Errors
/// The kernel rejects the request, or its answer is malformed; on a recorded machine, there is no reply or it
/// is unreadable.
pub fn addresses(root: &Root) -> Result<Vec<Address>, ReadError> {
    if !root.is_live() {
        let mut text = Vec::new();
        root.read(REPLY, &mut text)?;
        return parse(&text).map_err(|error| failed(&error));
    }
    let all = query_kernel().map_err(|errno| match errno {
        Errno::ACCESS | Errno::PERM => ReadError::Denied { path: "rtnetlink".to_owned() },
        other => failed(&other),
    })?;
    if root.is_recording() {
        let text: String = all.iter().map(|address| format!("{address}\n")).collect();
        root.note_reply(REPLY, text.as_bytes());
    }
    Ok(all)
}

fn failed(why: &impl fmt::Display) -> ReadError {
    ReadError::Failed { path: "rtnetlink".to_owned(), why: why.to_string() }
}

fn query_kernel() -> Result<Vec<Address>, Errno> {
    let (mut all, mut buf) = (Vec::new(), [0; DATAGRAM_BYTES_MAX]);
    let every_interface = (GET_ADDRESS, &[0; 8][..]);
    let memory = (&mut Vec::new(), &mut buf[..]);
    list(&open(None, 0)?, every_interface, memory, |message| take(message, &mut all))?;
    Ok(all)
}

/// Takes the address of a message.
fn take(message: &Message<'_>, all: &mut Vec<Address>) {
    if message.kind == NEW_ADDRESS && all.len() < ADDRESSES_MAX {
        all.extend(address(message.payload));
    }
}

/// The address of a message. `LOCAL` is the interface's own address if present: on a point-to-point link
/// `ADDRESS` is that of the peer.
fn address(payload: &[u8]) -> Option<Address> {
    let (prefix, index) = (*payload.get(1)?, u32_at(payload, 4)?);
    let of = |wanted: u16| {
        let mut all = attributes(payload.get(8..)?);
        let (_, bytes) = all.find(|(kind, _)| *kind == wanted)?;
        match *bytes {
            [a, b, c, d] => Some(IpAddr::V4(Ipv4Addr::new(a, b, c, d))),
            _ => Some(IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?))),
        }
    };
    Some(Address { index, ip: of(2).or_else(|| of(1))?, prefix })
}

/// Parses a recorded reply.
///
/// # Errors
/// The text is truncated, or a line lacks its number or address.
pub fn parse(text: &[u8]) -> Result<Vec<Address>, ParseError> {
    let line = |line| {
        let wrong = ParseError::at(line);
        let mut fields = Fields::of(line);
        let index = u32::try_from(fields.number()?).map_err(|_| wrong)?;
        let word = std::str::from_utf8(fields.word()?).map_err(|_| wrong)?;
        let (ip, prefix) = word.split_once('/').ok_or(wrong)?;
        let prefix = number(prefix.as_bytes()).and_then(|prefix| u8::try_from(prefix).ok());
        Ok(Address { index, ip: ip.parse().map_err(|_| wrong)?, prefix: prefix.ok_or(wrong)? })
    };
    whole_lines(text)?.take(ADDRESSES_MAX).map(line).collect()
}

/// The line of a recorded reply.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.index, self.ip, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::{DONE, push_message, take_list};
    use proptest::prelude::*;

    fn attribute(kind: u16, content: &[u8]) -> Vec<u8> {
        let length = u16::try_from(content.len() + 4).unwrap();
        [&length.to_ne_bytes(), &kind.to_ne_bytes(), content].concat()
    }

    #[test]
    fn the_live_machine_has_itself() {
        let all = addresses(&Root::live().unwrap()).unwrap();
        let itself = Address { index: 1, ip: IpAddr::V4(Ipv4Addr::LOCALHOST), prefix: 8 };
        assert!(all.contains(&itself), "{all:?}");
    }

    #[test]
    fn addresses_of_a_datagram() {
        let mut datagram = Vec::new();
        let of_link = [2, 24, 0, 0, 3, 0, 0, 0];
        let (peer, local) = (attribute(1, &[192, 0, 2, 1]), attribute(2, &[192, 0, 2, 7]));
        push_message(&mut datagram, NEW_ADDRESS, 1, false, &[&of_link, &peer, &local]);
        let six = attribute(1, &Ipv6Addr::LOCALHOST.octets());
        push_message(&mut datagram, NEW_ADDRESS, 1, false, &[&[10, 128, 0, 0, 1, 0, 0, 0], &six]);
        push_message(&mut datagram, NEW_ADDRESS, 1, false, &[&of_link, &attribute(1, &[1, 2, 3])]);
        let mut all = Vec::new();
        assert_eq!(take_list(&datagram, |message| take(message, &mut all)), Ok(false));
        let lines: Vec<_> = all.iter().map(ToString::to_string).collect();
        assert_eq!(lines, ["3 192.0.2.7/24", "1 ::1/128"]);
        push_message(&mut datagram, DONE, 1, false, &[]);
        assert_eq!(take_list(&datagram, |_| {}), Ok(true));
    }

    #[test]
    fn malformed_text_is_rejected() {
        for text in
            ["2 192.0.2.7\n", "2 192.0.2.7/300\n", "x ::1/1\n", "2 ::1/1", "2 ::g/1\n", "2\n"]
        {
            assert!(parse(text.as_bytes()).is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn replies_round_trip(index: u32, v4: [u8; 4], v6: [u8; 16], prefix: u8) {
            let all = [IpAddr::from(v4), IpAddr::from(v6)].map(|ip| Address { index, ip, prefix });
            let text: String = all.iter().map(|address| format!("{address}\n")).collect();
            prop_assert_eq!(parse(text.as_bytes()), Ok(all.to_vec()));
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            parse(&bytes).ok();
            address(&bytes);
            take_list(&bytes, |message| take(message, &mut Vec::new())).ok();
        }
    }
}
