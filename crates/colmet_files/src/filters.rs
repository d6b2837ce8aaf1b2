//! The filters shuffle and deflate, in both directions.

use crate::error::{FileError, Result};
use flate2::Compression;
use flate2::read::{ZlibDecoder, ZlibEncoder};
use std::io::Read;

/// The numbers of filters in files.
pub(crate) const DEFLATE: u16 = 1;
pub(crate) const SHUFFLE: u16 = 2;
pub(crate) const FLETCHER32: u16 = 3;

/// Puts the first bytes of all rows together, then the second ones, and so on.
pub(crate) fn shuffle(bytes: &[u8], row: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    for place in 0..row {
        out.extend(bytes.iter().skip(place).step_by(row));
    }
    out
}

/// The opposite of [`shuffle`].
pub(crate) fn unshuffle(bytes: &[u8], row: usize) -> Vec<u8> {
    let rows = bytes.len() / row.max(1);
    let mut out = vec![0; bytes.len()];
    for (place, bytes) in bytes.chunks(rows.max(1)).enumerate().take(row) {
        for (to, from) in out.iter_mut().skip(place).step_by(row).zip(bytes) {
            *to = *from;
        }
    }
    out
}

/// Compresses with zlib's format.
///
/// # Errors
/// None is known: it only reads memory.
pub(crate) fn deflate(bytes: &[u8], level: u32) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    ZlibEncoder::new(bytes, Compression::new(level)).read_to_end(&mut out)?;
    Ok(out)
}

/// Decompresses to at most that many bytes.
///
/// # Errors
/// It is no such format, or cut short.
pub(crate) fn inflate(bytes: &[u8], most: usize) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let limit = u64::try_from(most).unwrap_or(u64::MAX);
    let read = ZlibDecoder::new(bytes).take(limit).read_to_end(&mut out);
    read.map(|_| out).map_err(|_| FileError::Damaged("a compressed chunk"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_restore_what_they_got() {
        let bytes: Vec<u8> = (0..21 * 7).map(|n: u32| (n % 251) as u8).collect();
        let shuffled = shuffle(&bytes, 21);
        assert_eq!(shuffled[..3], [0, 21, 42]);
        assert_eq!(unshuffle(&shuffled, 21), bytes);
        for level in [0, 1, 9] {
            let packed = deflate(&shuffled, level).unwrap();
            assert_eq!(inflate(&packed, bytes.len()).unwrap(), shuffled);
            assert!(inflate(&packed[..packed.len() / 2], bytes.len()).is_err());
        }
    }
}
