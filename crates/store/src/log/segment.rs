//! Reads a log segment after a crash: its good records, its torn tail, its damaged places.

use crate::log::files::SEGMENT_MAGIC;
use crate::log::record::{LogRecord, is_damaged, next_record, record};
use model::Timestamp;

/// What a segment contains beside good records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    /// End of the last good record; a torn tail follows. 0 if neither the header is good nor any record is found.
    pub(crate) good: usize,
    /// Unreadable places: followed by good records, or with a known length from their header.
    pub(crate) unread_ranges: Vec<UnreadRange>,
}

/// An unreadable place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnreadRange {
    /// Its start.
    pub(crate) at: usize,
    /// Its bytes.
    pub(crate) bytes: usize,
    /// Time of receipt of the last good record before it.
    pub(crate) from: Option<Timestamp>,
    /// Time of receipt of the first good record after it.
    pub(crate) to: Option<Timestamp>,
}

/// Shows every good record of a segment, with its offset, to `each`, which returns whether it could use it; an
/// unusable record counts as unreadable too.
pub(crate) fn read_segment(
    bytes: &[u8],
    number: u64,
    mut each: impl FnMut(u64, LogRecord<'_>) -> bool,
) -> Findings {
    let mut findings = Findings::default();
    let header = [SEGMENT_MAGIC, number.to_le_bytes()].concat();
    let mut at = if bytes.starts_with(&header) {
        header.len()
    } else {
        let Some(first) = next_record(bytes, 0) else { return findings };
        findings.unread_ranges.push(UnreadRange { at: 0, bytes: first, from: None, to: None });
        first
    };
    findings.good = at;
    let mut before = None;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let used =
            record(rest).map(|(record, length)| (record.received, length, each(at as u64, record)));
        let (next, unread_range) = match used {
            Some((received, length, true)) => {
                close(&mut findings.unread_ranges, received);
                before = Some(received);
                (at + length, false)
            }
            Some((_, length, false)) => (at + length, true),
            None => match next_record(bytes, at + 1) {
                Some(next) => (next, true),
                // The whole record is present, but with other content than written.
                None if is_damaged(rest) => (bytes.len(), true),
                None => return findings,
            },
        };
        if unread_range {
            findings.unread_ranges.push(UnreadRange {
                at,
                bytes: next - at,
                from: before,
                to: None,
            });
        }
        at = next;
        findings.good = at;
    }
    findings
}

/// Sets the end of open unreadable places: the time of receipt of the first good record after them.
fn close(unread_ranges: &mut [UnreadRange], received: Timestamp) {
    for unread_range in
        unread_ranges.iter_mut().rev().take_while(|unread_range| unread_range.to.is_none())
    {
        unread_range.to = Some(received);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::record::{RECORD_HEADER_BYTES, RecordKind, put_record};
    use proptest::prelude::*;

    fn segment() -> (Vec<u8>, Vec<usize>) {
        let mut bytes = [SEGMENT_MAGIC, 3_u64.to_le_bytes()].concat();
        let mut ends = vec![bytes.len()];
        for (at, payload) in [(10, "one"), (20, "two, longer"), (30, "three")] {
            put_record(&mut bytes, RecordKind::Frame, Timestamp(at), payload.as_bytes());
            ends.push(bytes.len());
        }
        (bytes, ends)
    }

    fn number(count: usize) -> i64 {
        i64::try_from(count).unwrap()
    }

    fn read(bytes: &[u8]) -> (Vec<i64>, Findings) {
        let mut seen = Vec::new();
        let findings = read_segment(bytes, 3, |_, record| {
            seen.push(record.received.0);
            true
        });
        (seen, findings)
    }

    #[test]
    fn a_whole_segment() {
        let (bytes, _) = segment();
        assert_eq!(
            read(&bytes),
            (vec![10, 20, 30], Findings { good: bytes.len(), unread_ranges: vec![] })
        );
    }

    #[test]
    fn every_truncation_keeps_the_records_before_it() {
        let (bytes, ends) = segment();
        for cut in 0..bytes.len() {
            let (seen, findings) = read(&bytes[..cut]);
            let whole = ends.iter().filter(|end| **end <= cut).count();
            assert_eq!(seen.len(), whole.saturating_sub(1), "{cut}");
            assert_eq!(findings.good, ends[..whole].last().copied().unwrap_or(0), "{cut}");
            assert_eq!(findings.unread_ranges, []);
        }
    }

    #[test]
    fn every_flipped_byte_costs_one_record_and_is_reported() {
        let (bytes, ends) = segment();
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 0x10;
            let (seen, findings) = read(&bad);
            let hit = ends.iter().filter(|end| **end <= at).count();
            let kept: Vec<i64> =
                [10, 20, 30].into_iter().filter(|t| *t != number(hit) * 10).collect();
            assert_eq!(seen, kept, "{at}");
            if hit == 3 && at < ends[2] + RECORD_HEADER_BYTES {
                assert_eq!(findings, Findings { good: ends[2], unread_ranges: vec![] }, "a tail");
            } else if hit == 3 {
                let (bytes, from) = (bytes.len() - ends[2], Some(Timestamp(20)));
                let unread_range = UnreadRange { at: ends[2], bytes, from, to: None };
                assert_eq!(
                    findings,
                    Findings { good: bad.len(), unread_ranges: vec![unread_range] },
                    "{at}"
                );
            } else {
                let first = if hit == 0 { 0 } else { ends[hit - 1] };
                assert_eq!(findings.unread_ranges.len(), 1, "{at}");
                let unread_range = findings.unread_ranges[0];
                assert_eq!(
                    (unread_range.at, unread_range.at + unread_range.bytes),
                    (first, ends[hit]),
                    "{at}"
                );
                assert_eq!(unread_range.to, Some(Timestamp((number(hit) + 1) * 10)), "{at}");
            }
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(damage in proptest::collection::vec((0_usize..300, any::<u8>()), 0..20)) {
            let (mut bytes, _) = segment();
            for (at, byte) in damage {
                let length = bytes.len();
                bytes[at % length] = byte;
            }
            let (seen, findings) = read(&bytes);
            prop_assert!(findings.good <= bytes.len());
            prop_assert!(seen.iter().all(|at| [10, 20, 30].contains(at)));
        }
    }

    #[test]
    fn an_unusable_record_is_an_unreadable_place() {
        let (bytes, ends) = segment();
        let findings = read_segment(&bytes, 3, |_, record| record.received.0 != 20);
        let (from, to) = (Some(Timestamp(10)), Some(Timestamp(30)));
        assert_eq!(
            findings.unread_ranges,
            [UnreadRange { at: ends[1], bytes: ends[2] - ends[1], from, to }]
        );
    }
}
