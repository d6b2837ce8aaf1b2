//! Checksums of a block's pages. The Parquet library writes none, and a flipped bit must neither be read as a
//! value nor end the process.

use crate::files::varint::{Bytes, put};

/// Bytes of the file that are read together, and their CRC-32C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) crc: u32,
}

/// The extents of a file, in file order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Checks(Vec<Extent>);

impl Checks {
    /// Adds the bytes at `offset`, after all earlier ones.
    pub(crate) fn push(&mut self, offset: u64, bytes: &[u8]) {
        self.0.push(Extent { offset, length: bytes.len() as u64, crc: crc32c::crc32c(bytes) });
    }

    /// Whether the bytes at an offset match their checksum. Bytes that are not a whole extent are not a page;
    /// other checksums cover them.
    pub(crate) fn hold(&self, offset: u64, bytes: &[u8]) -> bool {
        let position = self.0.binary_search_by_key(&offset, |extent| extent.offset).ok();
        let extent = position.and_then(|position| self.0.get(position));
        extent.is_some_and(|extent| {
            extent.length == bytes.len() as u64 && extent.crc == crc32c::crc32c(bytes)
        })
    }

    /// All extents, in file order.
    pub(crate) fn extents(&self) -> &[Extent] {
        &self.0
    }

    /// Appends the extents: their number, then for each the distance from the one before, its length, its checksum.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        put(out, self.0.len() as u64);
        let mut end = 0;
        for extent in &self.0 {
            put(out, extent.offset.saturating_sub(end));
            put(out, extent.length);
            out.extend_from_slice(&extent.crc.to_le_bytes());
            end = extent.offset + extent.length;
        }
    }

    /// Reads them back.
    pub(crate) fn take(bytes: &mut Bytes<'_>) -> Option<Self> {
        let count = bytes.count()?;
        let mut extents = Vec::with_capacity(count.min(1 << 16));
        let mut end = 0_u64;
        for _ in 0..count {
            let offset = end.checked_add(bytes.number()?)?;
            let length = bytes.number()?;
            let crc = u32::from_le_bytes(bytes.fixed()?);
            end = offset.checked_add(length)?;
            extents.push(Extent { offset, length, crc });
        }
        Some(Self(extents))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_round_trip_and_detect_every_flip() {
        let mut checks = Checks::default();
        checks.push(4, b"first");
        checks.push(9, b"second");
        checks.push(40, b"third");
        let mut out = Vec::new();
        checks.put(&mut out);
        let mut bytes = Bytes(&out);
        assert_eq!(Checks::take(&mut bytes), Some(checks.clone()));
        assert!(bytes.0.is_empty());
        assert!(checks.hold(9, b"second"));
        assert!(!checks.hold(9, b"sebond"));
        assert!(!checks.hold(9, b"secon"));
        assert!(!checks.hold(10, b"econd"));
    }
}
