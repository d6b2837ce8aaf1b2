//! Messages of a session as bytes (sections 13.6 and 13.8).

use super::crypto::{BLOCK, Keys, check_bytes, is_equal, keyed_hash};
use crate::protocols::IpmiCipher;

/// RMCP version 1.0, no sequence, class IPMI (section 13.1.3).
const RMCP: [u8; 4] = [6, 0, 0xff, 7];
/// Authentication type of the format of version 2.0.
const FORMAT: u8 = 6;
/// Bits of a payload's type: encrypted and authenticated.
const ENCRYPTED: u8 = 0x80;
const AUTHENTICATED: u8 = 0x40;
/// Bytes before the payload.
const HEAD: usize = 16;
/// The next header's type in a trailer.
const NEXT_HEADER: u8 = 7;

/// Types of payloads (section 13.27.3).
pub(super) const MESSAGE: u8 = 0x00;
pub(super) const OPEN_REQUEST: u8 = 0x10;
pub(super) const OPEN_RESPONSE: u8 = 0x11;
pub(super) const RAKP_1: u8 = 0x12;
pub(super) const RAKP_2: u8 = 0x13;
pub(super) const RAKP_3: u8 = 0x14;
pub(super) const RAKP_4: u8 = 0x15;

/// A packet without a session, as those that open one.
pub(super) fn plain(kind: u8, payload: &[u8]) -> Vec<u8> {
    packet(kind, (0, 0), payload)
}

/// A packet of a session, encrypted and with a check.
pub(super) fn sealed(
    keys: &Keys,
    (session, number): (u32, u32),
    message: &[u8],
    vector: [u8; BLOCK],
) -> Vec<u8> {
    let payload = keys.encrypt(message, vector);
    let kind = MESSAGE | ENCRYPTED | AUTHENTICATED;
    let mut packet = packet(kind, (session, number), &payload);
    // The checked part has a multiple of four bytes.
    let checked = packet.len() - RMCP.len() + 2;
    let pad = checked.next_multiple_of(4) - checked;
    packet.extend(std::iter::repeat_n(0xff, pad));
    packet.extend([u8::try_from(pad).unwrap_or(0), NEXT_HEADER]);
    let check = check(keys, packet.get(RMCP.len()..).unwrap_or_default());
    packet.extend(check);
    packet
}

/// The payload of a packet without a session, if it is of this kind.
pub(super) fn open_plain(packet: &[u8], kind: u8) -> Option<&[u8]> {
    let (found, _, payload) = parts(packet)?;
    (found == kind).then_some(payload)
}

/// The message and the number of a packet of a session; `None` if the check fails, or it belongs to another session.
pub(super) fn open_sealed(keys: &Keys, session: u32, packet: &[u8]) -> Option<(u32, Vec<u8>)> {
    let (kind, (found, number), payload) = parts(packet)?;
    if kind != MESSAGE | ENCRYPTED | AUTHENTICATED || found != session {
        return None;
    }
    let end = packet.len().checked_sub(check_bytes(keys.cipher))?;
    let (checked, found) = packet.split_at_checked(end)?;
    if !is_equal(found, &check(keys, checked.get(RMCP.len()..)?)) {
        return None;
    }
    Some((number, keys.decrypt(payload)?))
}

/// Reads bytes as a packet, and as the message in one. Packets of our own open again.
pub(super) fn parse_any(bytes: &[u8]) {
    for cipher in [IpmiCipher::Suite3, IpmiCipher::Suite17] {
        let keys = Keys::derive(cipher, b"key");
        open_sealed(&keys, 0, bytes);
        keys.decrypt(bytes);
        let message = bytes.get(..1024).unwrap_or(bytes);
        let opened = open_sealed(&keys, 7, &sealed(&keys, (7, 9), message, [1; BLOCK]));
        assert_eq!(opened, Some((9, message.to_vec())));
    }
    for sequence in 0..0x40 {
        answer(sequence, &[0x18, 0x01], bytes);
    }
}

fn packet(kind: u8, (session, number): (u32, u32), payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).unwrap_or(u16::MAX).to_le_bytes();
    let (session, number) = (session.to_le_bytes(), number.to_le_bytes());
    [&RMCP[..], &[FORMAT, kind], &session, &number, &length, payload].concat()
}

/// Kind, session, number and payload of a packet.
fn parts(packet: &[u8]) -> Option<(u8, (u32, u32), &[u8])> {
    let (head, rest) = packet.split_first_chunk::<HEAD>()?;
    let [a, b, c, d, FORMAT, kind, s0, s1, s2, s3, n0, n1, n2, n3, l0, l1] = *head else {
        return None;
    };
    let payload = rest.get(..usize::from(u16::from_le_bytes([l0, l1])))?;
    let session = u32::from_le_bytes([s0, s1, s2, s3]);
    let number = u32::from_le_bytes([n0, n1, n2, n3]);
    // The second byte is reserved, and the third a sequence that is not used.
    let _ = (b, c);
    (a == 6 && d & 0x1f == 7).then_some((kind, (session, number), payload))
}

fn check(keys: &Keys, bytes: &[u8]) -> Vec<u8> {
    let mut check = keyed_hash(keys.cipher, &keys.integrity, &[bytes]);
    check.truncate(check_bytes(keys.cipher));
    check
}

/// A request as a message on the LAN (section 13.8): `command` is network function and unit, command, data.
pub(super) fn message(sequence: u8, command: &[u8]) -> Vec<u8> {
    let (function, rest) =
        command.split_first().map_or((0, &[][..]), |(first, rest)| (*first, rest));
    let head = [BMC, function];
    let mut body = vec![CONSOLE, sequence << 2];
    body.extend(rest);
    let (first, second) = (sum(&head), sum(&body));
    [&head[..], &[first], &body, &[second]].concat()
}

/// The answer in a message, from its completion code on; `None` if it answers another request or is damaged.
pub(super) fn answer(sequence: u8, command: &[u8], message: &[u8]) -> Option<Vec<u8>> {
    let [to, function, first, rest @ .., last] = message else { return None };
    let [_, number, found, data @ ..] = rest else { return None };
    let is_whole = sum(&[*to, *function]) == *first && sum(rest) == *last;
    let asked = *command.first()?;
    let is_own = function >> 2 == (asked >> 2) | 1
        && number >> 2 == sequence
        && Some(found) == command.get(1);
    (is_whole && is_own && !data.is_empty()).then(|| data.to_vec())
}

/// Addresses of the BMC and of a console.
const BMC: u8 = 0x20;
const CONSOLE: u8 = 0x81;

/// The sum that makes all bytes zero.
fn sum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte)).wrapping_neg()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_message_is_that_of_the_standard() {
        // Get Device ID, as ipmitool sends it.
        assert_eq!(message(1, &[0x18, 0x01]), [0x20, 0x18, 0xc8, 0x81, 0x04, 0x01, 0x7a]);
        let response = [0x81, 0x1c, 0x63, 0x20, 0x04, 0x01, 0x00, 0x20, 0xbb];
        assert_eq!(answer(1, &[0x18, 0x01], &response), Some(vec![0x00, 0x20]));
        assert_eq!(answer(2, &[0x18, 0x01], &response), None);
        assert_eq!(answer(1, &[0x18, 0x02], &response), None);
        let damaged = [0x81, 0x1c, 0x63, 0x20, 0x04, 0x01, 0x00, 0x21, 0xbb];
        assert_eq!(answer(1, &[0x18, 0x01], &damaged), None);
    }

    #[test]
    fn sealed_packets_open_with_their_keys_only() {
        for cipher in [IpmiCipher::Suite3, IpmiCipher::Suite17] {
            let (keys, others) = (Keys::derive(cipher, b"key"), Keys::derive(cipher, b"other"));
            let packet = sealed(&keys, (77, 5), b"message", [1; BLOCK]);
            assert_eq!(open_sealed(&keys, 77, &packet), Some((5, b"message".to_vec())));
            assert_eq!(open_sealed(&others, 77, &packet), None);
            assert_eq!(open_sealed(&keys, 78, &packet), None);
            for place in 4..packet.len() {
                let mut bad = packet.clone();
                bad[place] ^= 1;
                assert_eq!(open_sealed(&keys, 77, &bad), None, "{place}");
            }
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let keys = Keys::derive(IpmiCipher::Suite3, b"key");
            open_sealed(&keys, 0, &bytes);
            open_plain(&bytes, RAKP_2);
            answer(1, &[0x18, 0x01], &bytes);
        }
    }
}
