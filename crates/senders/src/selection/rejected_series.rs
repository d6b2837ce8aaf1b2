//! A log record of the series of a batch that were rejected when it was stored.
//!
//! The limits of series depend on the live series at that moment, so replay cannot decide again: a rejected
//! sample would return, and its gap with it.
//! A record of this kind precedes the record of its frame.
//!
//! ```text
//! offset  size  what
//! 0       4     CRC-32C of the frame that follows, little endian
//! 4       2     length of the reason, little endian
//! 6       n     the reason, UTF-8
//! 6 + n   m     a bit for each position of the batch's table, the lowest first: rejected or not
//! ```

use crate::series_table::Table;

/// The rejected positions of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectedSeries {
    pub(crate) why: String,
    bits: Vec<u8>,
}

impl RejectedSeries {
    /// The record for a frame, if its table has rejected positions.
    pub fn record(table: &Table, frame: &[u8]) -> Option<Vec<u8>> {
        let first = table.rejected.first()?;
        let why = first.why.get(..first.why.floor_char_boundary(1000)).unwrap_or_default();
        let mut bits = vec![0_u8; table.places.len().div_ceil(8)];
        for rejected in &table.rejected {
            if let Some(byte) = bits.get_mut(rejected.place as usize / 8) {
                *byte |= 1 << (rejected.place % 8);
            }
        }
        let length = u16::try_from(why.len()).unwrap_or(0);
        let head = [&crc32c::crc32c(frame).to_le_bytes()[..], &length.to_le_bytes()].concat();
        Some([&head, why.as_bytes(), &bits].concat())
    }

    /// The rejected positions of a record, and the checksum of its frame.
    pub fn read(record: &[u8]) -> Option<(u32, Self)> {
        let (crc, rest) = record.split_first_chunk::<4>()?;
        let (length, rest) = rest.split_first_chunk::<2>()?;
        let (why, bits) = rest.split_at_checked(u16::from_le_bytes(*length).into())?;
        let why = std::str::from_utf8(why).ok()?.to_owned();
        Some((u32::from_le_bytes(*crc), Self { why, bits: bits.to_vec() }))
    }

    /// Whether the samples of a position were rejected.
    pub(crate) fn has(&self, place: u32) -> bool {
        self.bits.get(place as usize / 8).is_some_and(|byte| byte & (1 << (place % 8)) != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40), place: u32) {
            if let Some((_, withheld)) = RejectedSeries::read(&bytes) {
                withheld.has(place);
            }
        }
    }
}
