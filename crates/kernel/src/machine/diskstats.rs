//! `/proc/diskstats`: what block devices did since they appeared (Documentation/admin-guide/iostats.rst;
//! block/genhd.c, Linux 6.18).
//!
//! ```text
//!  254       0 vda 98531 22473 9735962 107756 10268 32637 4485304 11541 0 11144 120003 5716 19 399384 671 362 33
//!  254       1 vda1 98210 22473 9731866 107702 10266 32637 4485288 11541 0 11130 119947 5716 19 399384 671 0 0
//! ```
//!
//! Numbers and name of the device; then for reads, and again for writes: requests done, requests merged
//! into others, sectors of 512 bytes, milliseconds that the requests took; requests in flight; milliseconds
//! with at least one in flight; milliseconds weighted with the number in flight; from Linux 4.18 on
//! discards, counted as reads are; from 5.5 on flushes and their milliseconds. The milliseconds are
//! numbers of 32 bits that wrap to 0.

use crate::parse::{Fields, ParseError, whole_lines};

/// Bytes in a sector, whatever the disk's own size of one (include/linux/blk_types.h, `SECTOR_SIZE`).
pub const SECTOR_BYTES: u64 = 512;

/// A line of `/proc/diskstats`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disk<'a> {
    /// `sda`, `sda1`, `nvme0n1p2`.
    pub name: &'a [u8],
    /// Reads.
    pub reads: Requests,
    /// Writes.
    pub writes: Requests,
    /// Requests passed to the driver and not yet done.
    pub in_flight: u64,
    /// Milliseconds with at least one request in flight.
    pub busy_ms: u64,
    /// Milliseconds weighted with the number of requests in flight.
    pub weighted_ms: u64,
    /// Discards, where the kernel counts them.
    pub discards: Option<Requests>,
    /// Flushes, where the kernel counts them.
    pub flushes: Option<Flushes>,
}

/// Requests of one kind since the device appeared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// Done.
    pub done: u64,
    /// Merged into an adjacent request, and so not among those done.
    pub merged: u64,
    /// Sectors of [`SECTOR_BYTES`].
    pub sectors: u64,
    /// Milliseconds that all of them took, queueing included.
    pub ms: u64,
}

/// Flush requests since the device appeared; partitions have none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flushes {
    /// Done.
    pub done: u64,
    /// Milliseconds that all of them took.
    pub ms: u64,
}

/// The lines of `/proc/diskstats`, each disk before its partitions.
///
/// # Errors
/// The text is truncated; then, line by line: one has fewer than 14 fields, or one that is not a number.
pub fn diskstats(
    text: &[u8],
) -> Result<impl Iterator<Item = Result<Disk<'_>, ParseError>>, ParseError> {
    Ok(whole_lines(text)?.map(disk))
}

/// Whether `name` is a partition of `disk` by the kernel's rule of names: the disk's name, a `p` if that
/// ends in a digit, and a number (block/partitions/core.c, `add_partition`).
pub fn is_partition(name: &[u8], disk: &[u8]) -> bool {
    let Some(rest) = name.strip_prefix(disk).filter(|_| !disk.is_empty()) else { return false };
    let number = match disk.last() {
        Some(last) if last.is_ascii_digit() => rest.strip_prefix(b"p"),
        _ => Some(rest),
    };
    number.is_some_and(|digits| !digits.is_empty() && digits.iter().all(u8::is_ascii_digit))
}

fn disk(line: &[u8]) -> Result<Disk<'_>, ParseError> {
    let mut fields = Fields::of(line);
    fields.number()?;
    fields.number()?;
    let mut disk = Disk {
        name: fields.word()?,
        reads: requests(&mut fields)?,
        writes: requests(&mut fields)?,
        in_flight: fields.number()?,
        busy_ms: fields.number()?,
        weighted_ms: fields.number()?,
        discards: None,
        flushes: None,
    };
    if !fields.rest().is_empty() {
        disk.discards = Some(requests(&mut fields)?);
    }
    if !fields.rest().is_empty() {
        disk.flushes = Some(Flushes { done: fields.number()?, ms: fields.number()? });
    }
    Ok(disk)
}

fn requests(fields: &mut Fields<'_>) -> Result<Requests, ParseError> {
    Ok(Requests {
        done: fields.number()?,
        merged: fields.number()?,
        sectors: fields.number()?,
        ms: fields.number()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LINE: &[u8] = b" 254       0 vda 98531 22473 9735962 107756 10268 32637 4485304 11541 \
        2 11144 120003 5716 19 399384 671 362 33\n";

    fn all(text: &[u8]) -> Result<Vec<Disk<'_>>, ParseError> {
        diskstats(text)?.collect()
    }

    fn first_fields(count: usize) -> Vec<u8> {
        let words: Vec<_> =
            LINE.trim_ascii().split(|b| *b == b' ').filter(|w| !w.is_empty()).collect();
        [words[..count].join(&b' '), b"\n".to_vec()].concat()
    }

    #[test]
    fn a_line_of_today() {
        let expected = Disk {
            name: b"vda",
            reads: Requests { done: 98531, merged: 22473, sectors: 9_735_962, ms: 107_756 },
            writes: Requests { done: 10268, merged: 32637, sectors: 4_485_304, ms: 11541 },
            in_flight: 2,
            busy_ms: 11144,
            weighted_ms: 120_003,
            discards: Some(Requests { done: 5716, merged: 19, sectors: 399_384, ms: 671 }),
            flushes: Some(Flushes { done: 362, ms: 33 }),
        };
        assert_eq!(all(LINE).unwrap(), [expected]);
    }

    #[test]
    fn older_kernels_have_fewer_columns_and_no_others() {
        for count in 0..=20 {
            let text = first_fields(count);
            let disks = all(&text);
            assert_eq!(disks.is_ok(), [0, 14, 18, 20].contains(&count), "{count}");
            if count == 14 {
                assert_eq!(
                    (disks.as_ref().unwrap()[0].discards, disks.unwrap()[0].flushes),
                    (None, None)
                );
            }
        }
        assert_eq!(all(b""), Ok(Vec::new()));
    }

    #[test]
    fn every_truncated_text_is_rejected() {
        for cut in 1..LINE.len() {
            assert!(all(&LINE[..cut]).is_err(), "{cut}");
        }
    }

    #[test]
    fn partitions_by_their_names() {
        for (name, disk, is) in [
            ("sda1", "sda", true),
            ("sda12", "sda", true),
            ("nvme0n1p2", "nvme0n1", true),
            ("mmcblk0p1", "mmcblk0", true),
            ("md127p1", "md127", true),
            ("sda", "sda", false),
            ("sdab", "sda", false),
            ("sdb1", "sda", false),
            ("dm-10", "dm-1", false),
            ("nvme0n12", "nvme0n1", false),
            ("mmcblk0boot0", "mmcblk0", false),
            ("nvme0n1p", "nvme0n1", false),
            ("1", "", false),
        ] {
            assert_eq!(is_partition(name.as_bytes(), disk.as_bytes()), is, "{name} of {disk}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            all(&bytes).ok();
            is_partition(&bytes, bytes.get(..3).unwrap_or_default());
        }

        #[test]
        fn no_changed_byte_panics(place in 0..LINE.len(), byte: u8) {
            let mut line = LINE.to_vec();
            line[place] = byte;
            all(&line).ok();
        }
    }
}
