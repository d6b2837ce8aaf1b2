//! Records of the log: a header with its own checksum, then a frame as received.
//!
//! ```text
//! offset  size  what
//! 0       4     "JMR1"
//! 4       1     kind: 1 a frame, 2 a gap that the store itself found, 3 the rejected series of the next frame
//! 5       3     zero
//! 8       4     length of the payload, little endian
//! 12      4     CRC-32C of the payload
//! 16      8     time of receipt, microseconds since 1970, little endian
//! 24      4     CRC-32C of the bytes 0 to 24
//! 28      n     payload
//! ```
//!
//! The header's own checksum locates the next good record after damage: the magic may occur in a payload by
//! chance, the magic with a valid checksum does not.

use model::Timestamp;

/// Bytes before the payload.
pub(crate) const RECORD_HEADER_BYTES: usize = 28;
/// First bytes of a record.
const MAGIC: [u8; 4] = *b"JMR1";
/// Longest accepted payload: a frame.
const PAYLOAD_BYTES_MAX: usize = wire::FRAME_BYTES_MAX;

/// The kind of a record's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordKind {
    /// A frame of the wire.
    Frame,
    /// A gap in the manifest's JSON.
    Gap,
    /// The rejected series of the next frame.
    RejectedSeries,
}

/// A good record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogRecord<'a> {
    /// The kind of the payload.
    pub(crate) kind: RecordKind,
    /// Time of receipt.
    pub(crate) received: Timestamp,
    /// The payload.
    pub(crate) payload: &'a [u8],
}

/// Appends a record.
pub(crate) fn put_record(out: &mut Vec<u8>, kind: RecordKind, received: Timestamp, payload: &[u8]) {
    let start = out.len();
    let number = match kind {
        RecordKind::Frame => 1,
        RecordKind::Gap => 2,
        RecordKind::RejectedSeries => 3,
    };
    // A payload is a frame, with a length checked by the wire, or a gap of some hundred bytes.
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&[number, 0, 0, 0]);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&crc32c::crc32c(payload).to_le_bytes());
    out.extend_from_slice(&received.0.to_le_bytes());
    let crc = crc32c::crc32c(out.get(start..).unwrap_or_default());
    out.extend_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(payload);
}

/// The header at the start of the bytes, without its checksum, if that is valid.
fn header(bytes: &[u8]) -> Option<&[u8]> {
    let (header, _) = bytes.split_first_chunk::<RECORD_HEADER_BYTES>()?;
    let (checked, crc) = header.split_last_chunk::<4>()?;
    let is_ours = checked.first_chunk() == Some(&MAGIC);
    (is_ours && crc32c::crc32c(checked) == u32::from_le_bytes(*crc)).then_some(checked)
}

/// Whether the bytes begin with a good header and end before its record does.
pub(crate) fn is_cut_short(bytes: &[u8]) -> bool {
    let length = header(bytes).and_then(|header| header.get(8..)?.first_chunk().copied());
    length.is_some_and(|length| {
        RECORD_HEADER_BYTES.saturating_add(u32::from_le_bytes(length) as usize) > bytes.len()
    })
}

/// Whether the bytes begin with a good header and contain its whole record, with a wrong checksum.
pub(crate) fn is_damaged(bytes: &[u8]) -> bool {
    header(bytes).is_some() && !is_cut_short(bytes) && record(bytes).is_none()
}

/// The record at the start of the bytes, and its whole length; `None` if it is not a good one.
pub(crate) fn record(bytes: &[u8]) -> Option<(LogRecord<'_>, usize)> {
    let checked = header(bytes)?;
    let kind = match checked.get(4) {
        Some(1) => RecordKind::Frame,
        Some(2) => RecordKind::Gap,
        Some(3) => RecordKind::RejectedSeries,
        _ => return None,
    };
    let length = u32::from_le_bytes(*checked.get(8..)?.first_chunk()?) as usize;
    let payload_crc = u32::from_le_bytes(*checked.get(12..)?.first_chunk()?);
    let received = Timestamp(i64::from_le_bytes(*checked.get(16..)?.first_chunk()?));
    if length > PAYLOAD_BYTES_MAX {
        return None;
    }
    let whole = RECORD_HEADER_BYTES + length;
    let payload = bytes.get(RECORD_HEADER_BYTES..whole)?;
    (crc32c::crc32c(payload) == payload_crc)
        .then_some((LogRecord { kind, received, payload }, whole))
}

/// Start of the next good record, at `from` or after it.
pub(crate) fn next_record(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    loop {
        let rest = bytes.get(at..)?;
        at += rest.windows(MAGIC.len()).position(|window| window == MAGIC)?;
        if record(bytes.get(at..)?).is_some() {
            return Some(at);
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn two() -> (Vec<u8>, usize) {
        let mut out = Vec::new();
        put_record(&mut out, RecordKind::Frame, Timestamp(7), b"JMR1 first");
        let second = out.len();
        put_record(&mut out, RecordKind::Gap, Timestamp(-8), b"second");
        (out, second)
    }

    #[test]
    fn round_trip() {
        let (bytes, second) = two();
        let (first, length) = record(&bytes).unwrap();
        assert_eq!(length, second);
        let (kind, received, payload) = (RecordKind::Frame, Timestamp(7), &b"JMR1 first"[..]);
        assert_eq!(first, LogRecord { kind, received, payload });
        let (next, _) = record(&bytes[second..]).unwrap();
        assert_eq!((next.kind, next.received), (RecordKind::Gap, Timestamp(-8)));
    }

    #[test]
    fn every_truncation_and_flip_is_detected_and_the_next_record_found() {
        let (bytes, second) = two();
        for cut in 0..second {
            assert_eq!(record(&bytes[..cut]), None, "{cut}");
        }
        for at in 0..second {
            for bit in 0..8 {
                let mut bad = bytes.clone();
                bad[at] ^= 1 << bit;
                assert_eq!(record(&bad), None, "{at}");
                assert_eq!(next_record(&bad, 0), Some(second), "{at}");
            }
        }
        assert_eq!(next_record(&bytes, second + 1), None);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let mut after_magic = MAGIC.to_vec();
            after_magic.extend(bytes);
            prop_assert_eq!(record(&after_magic), None);
            prop_assert_eq!(next_record(&after_magic, 0), None);
        }
    }
}
