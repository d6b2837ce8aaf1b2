//! `/proc/net/dev`: what network interfaces did since they appeared (proc_pid_net(5);
//! Documentation/networking/statistics.rst; net/core/net-procfs.c, Linux 6.18).
//!
//! ```text
//! Inter-|   Receive                                                |  Transmit
//!  face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
//!   eth0: 208452484   11191    0    0    0     0          0         0   716302    6404    0    0    0     0       0          0
//! ```
//!
//! The numbers have 64 bits; with a driver that keeps 32, they wrap to 0 after 4 GiB. They are those
//! of the network namespace of the process that opens the file.

use crate::parse::{Fields, ParseError, whole_lines};

/// A line of `/proc/net/dev`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface<'a> {
    /// `eth0`.
    pub name: &'a [u8],
    /// Received traffic.
    pub received: Received,
    /// Transmitted traffic.
    pub transmitted: Transmitted,
}

/// Received traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Bytes of good packets.
    pub bytes: u64,
    /// Good packets.
    pub packets: u64,
    /// Bad packets.
    pub errors: u64,
    /// Packets dropped by the kernel or, for lack of buffers, by the hardware.
    pub dropped: u64,
    /// Overruns of the hardware's queue.
    pub fifo_errors: u64,
    /// The bad packets of wrong length, checksum or alignment.
    pub frame_errors: u64,
    /// Compressed packets.
    pub compressed: u64,
    /// Multicast packets.
    pub multicast: u64,
}

/// Transmitted traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transmitted {
    /// Bytes of packets sent.
    pub bytes: u64,
    /// Packets sent.
    pub packets: u64,
    /// Packets that could not be sent.
    pub errors: u64,
    /// Packets dropped before transmission.
    pub dropped: u64,
    /// Underruns of the hardware's queue.
    pub fifo_errors: u64,
    /// Collisions.
    pub collisions: u64,
    /// The errors of carrier, window or heartbeat, and aborted packets.
    pub carrier_errors: u64,
    /// Compressed packets.
    pub compressed: u64,
}

/// The interfaces of `/proc/net/dev`.
///
/// # Errors
/// The text is truncated; then, line by line: one has no name or fewer than 16 numbers.
pub fn net_dev(
    text: &[u8],
) -> Result<impl Iterator<Item = Result<Interface<'_>, ParseError>>, ParseError> {
    Ok(whole_lines(text)?.filter(|line| !line.contains(&b'|')).map(interface))
}

fn interface(line: &[u8]) -> Result<Interface<'_>, ParseError> {
    let wrong = ParseError::at(line);
    // A name may have a colon, a number has none; old kernels leave no blank before the first number.
    let colon = line.iter().rposition(|b| *b == b':').ok_or(wrong)?;
    let (name, rest) = line.split_at_checked(colon).ok_or(wrong)?;
    let name = name.trim_ascii();
    if name.is_empty() {
        return Err(wrong);
    }
    let mut fields = Fields::of(rest.strip_prefix(b":").unwrap_or(rest));
    Ok(Interface {
        name,
        received: Received {
            bytes: fields.number()?,
            packets: fields.number()?,
            errors: fields.number()?,
            dropped: fields.number()?,
            fifo_errors: fields.number()?,
            frame_errors: fields.number()?,
            compressed: fields.number()?,
            multicast: fields.number()?,
        },
        transmitted: Transmitted {
            bytes: fields.number()?,
            packets: fields.number()?,
            errors: fields.number()?,
            dropped: fields.number()?,
            fifo_errors: fields.number()?,
            collisions: fields.number()?,
            carrier_errors: fields.number()?,
            compressed: fields.number()?,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEADER: &str = "Inter-|   Receive          |  Transmit\n face |bytes    packets|bytes\n";
    const LINE: &str = "  eth0: 208452484 11191 1 2 3 4 5 6 716302 6404 7 8 9 10 11 12\n";

    fn all(text: &[u8]) -> Result<Vec<Interface<'_>>, ParseError> {
        net_dev(text)?.collect()
    }

    fn eth0(name: &[u8]) -> Interface<'_> {
        Interface {
            name,
            received: Received {
                bytes: 208_452_484,
                packets: 11191,
                errors: 1,
                dropped: 2,
                fifo_errors: 3,
                frame_errors: 4,
                compressed: 5,
                multicast: 6,
            },
            transmitted: Transmitted {
                bytes: 716_302,
                packets: 6404,
                errors: 7,
                dropped: 8,
                fifo_errors: 9,
                collisions: 10,
                carrier_errors: 11,
                compressed: 12,
            },
        }
    }

    #[test]
    fn a_line() {
        let text = format!("{HEADER}{LINE}");
        assert_eq!(all(text.as_bytes()).unwrap(), [eth0(b"eth0")]);
        assert_eq!(all(HEADER.as_bytes()).unwrap(), []);
    }

    #[test]
    fn old_kernels_leave_no_blank_and_names_may_have_a_colon() {
        let text = LINE.replace(": ", ":");
        assert_eq!(all(text.as_bytes()).unwrap(), [eth0(b"eth0")]);
        let text = LINE.replace("eth0", "eth0:1");
        assert_eq!(all(text.as_bytes()).unwrap(), [eth0(b"eth0:1")]);
    }

    #[test]
    fn every_truncated_text_is_rejected() {
        for cut in 1..LINE.len() {
            assert!(all(&LINE.as_bytes()[..cut]).is_err(), "{cut}");
        }
        for text in ["eth0 1 2 3\n", ": 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n", "eth0: 1 2\n"] {
            assert!(all(text.as_bytes()).is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            all(&bytes).ok();
        }

        #[test]
        fn no_changed_byte_panics(place in 0..LINE.len(), byte: u8) {
            let mut line = LINE.as_bytes().to_vec();
            line[place] = byte;
            all(&line).ok();
        }
    }
}
