//! Transfers of a cgroup with block devices: version 2's `io.stat` (Documentation/admin-guide/cgroup-v2.rst,
//! "IO Interface Files"), version 1's `blkio.*.io_service_bytes` and `io_serviced`
//! (Documentation/admin-guide/cgroup-v1/blkio-controller.rst; block/blk-cgroup.c, block/blk-cgroup-rwstat.c),
//! Linux 6.18, and the names of the devices from `/proc/diskstats`.
//!
//! ```text
//! 254:0 rbytes=4751360 wbytes=8192 rios=113 wios=2 dbytes=0 dios=0
//! ```
//!
//! Version 1 has a line for each direction, and at the end the sum over devices:
//!
//! ```text
//! 254:0 Read 4751360
//! 254:0 Write 8192
//! 254:0 Sync 4759552
//! 254:0 Async 0
//! 254:0 Discard 0
//! 254:0 Total 4759552
//! Total 4759552
//! ```

use crate::parse::{Fields, ParseError, number, whole_lines};

/// A block device's numbers, `254:0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceNumber {
    /// Of the driver.
    pub major: u32,
    /// Of the device or partition.
    pub minor: u32,
}

impl std::fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

impl DeviceNumber {
    fn parse(word: &[u8]) -> Option<Self> {
        let colon = word.iter().position(|byte| *byte == b':')?;
        let (major, minor) = (word.get(..colon)?, word.get(colon + 1..)?);
        let small = |digits| number(digits).and_then(|value| u32::try_from(value).ok());
        Some(Self { major: small(major)?, minor: small(minor)? })
    }
}

/// A line of version 2's `io.stat`; a value is `None` where the kernel has none (discards before
/// 5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoStat {
    /// The device.
    pub device: DeviceNumber,
    /// Bytes read, and reads.
    pub read: Transfers,
    /// Bytes written, and writes.
    pub written: Transfers,
    /// Bytes discarded, and discards.
    pub discarded: Transfers,
}

/// Bytes and operations in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transfers {
    /// Bytes.
    pub bytes: Option<u64>,
    /// Operations.
    pub operations: Option<u64>,
}

/// The lines of version 2's `io.stat`. Skips a device without counters, for which some kernels print the
/// numbers alone, and unknown words (`cost.usage`).
///
/// # Errors
/// The text is truncated; then, line by line: no device, or a known word without a number.
pub fn io_stat(
    text: &[u8],
) -> Result<impl Iterator<Item = Result<IoStat, ParseError>>, ParseError> {
    Ok(whole_lines(text)?.filter_map(|line| io_line(line).transpose()))
}

fn io_line(line: &[u8]) -> Result<Option<IoStat>, ParseError> {
    let wrong = ParseError::at(line);
    let mut fields = Fields::of(line);
    let device = DeviceNumber::parse(fields.word()?).ok_or(wrong)?;
    let none = Transfers::default();
    let mut stat = IoStat { device, read: none, written: none, discarded: none };
    let mut any = false;
    while let Ok(word) = fields.word() {
        let equals = word.iter().position(|byte| *byte == b'=').ok_or(wrong)?;
        let (key, value) = word.split_at_checked(equals).ok_or(wrong)?;
        let slot = match key {
            b"rbytes" => &mut stat.read.bytes,
            b"rios" => &mut stat.read.operations,
            b"wbytes" => &mut stat.written.bytes,
            b"wios" => &mut stat.written.operations,
            b"dbytes" => &mut stat.discarded.bytes,
            b"dios" => &mut stat.discarded.operations,
            _ => continue,
        };
        *slot = Some(value.strip_prefix(b"=").and_then(number).ok_or(wrong)?);
        any = true;
    }
    Ok(any.then_some(stat))
}

/// The operation that a line of a version 1 file counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlkioOperation {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Discards, since Linux 5.2.
    Discard,
}

/// A line of version 1's `blkio.*.io_service_bytes` or `io_serviced`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blkio {
    /// The device.
    pub device: DeviceNumber,
    /// The operation.
    pub operation: BlkioOperation,
    /// Bytes or operations, depending on the file.
    pub value: u64,
}

/// The lines of a version 1 file that count reads, writes and discards; `Sync`, `Async` and the
/// sums are skipped.
///
/// # Errors
/// The text is truncated; then, line by line: no device, or not a number.
pub fn blkio(text: &[u8]) -> Result<impl Iterator<Item = Result<Blkio, ParseError>>, ParseError> {
    Ok(whole_lines(text)?.filter_map(|line| blkio_line(line).transpose()))
}

fn blkio_line(line: &[u8]) -> Result<Option<Blkio>, ParseError> {
    let mut fields = Fields::of(line);
    let first = fields.word()?;
    if first == b"Total" {
        return Ok(None);
    }
    let device = DeviceNumber::parse(first).ok_or(ParseError::at(line))?;
    let operation = match fields.word()? {
        b"Read" => BlkioOperation::Read,
        b"Write" => BlkioOperation::Write,
        b"Discard" => BlkioOperation::Discard,
        _ => return Ok(None),
    };
    Ok(Some(Blkio { device, operation, value: fields.number()? }))
}

/// The numbers and the name of each line of `/proc/diskstats`, and the bytes read and written since
/// the device appeared. Malformed lines, and names that are not UTF-8, are skipped.
pub fn disk_names(text: &[u8]) -> impl Iterator<Item = (DeviceNumber, &str, u64)> {
    crate::parse::lines(text).filter_map(|line| {
        let mut fields = Fields::of(line);
        let mut small = || fields.number().ok().and_then(|value| u32::try_from(value).ok());
        let device = DeviceNumber { major: small()?, minor: small()? };
        let name = std::str::from_utf8(fields.word().ok()?).ok()?;
        fields.skip(2).ok()?;
        let read = fields.number().ok()?;
        fields.skip(3).ok()?;
        let sectors = read.checked_add(fields.number().ok()?)?;
        Some((device, name, sectors.checked_mul(crate::machine::diskstats::SECTOR_BYTES)?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const VDA: DeviceNumber = DeviceNumber { major: 254, minor: 0 };
    const V2: &[u8] = b"254:0 rbytes=4751360 wbytes=8192 rios=113 wios=2 dbytes=7 dios=1\n\
        7:0 \n8:16 rbytes=1 wbytes=2 rios=3 wios=4 cost.usage=9\n";
    const V1: &[u8] = b"254:0 Read 4751360\n254:0 Write 8192\n254:0 Sync 4759552\n254:0 Async 0\n\
        254:0 Discard 5\n254:0 Total 4759557\nTotal 4759557\n";

    #[test]
    fn version_2() {
        let stats: Vec<_> = io_stat(V2).unwrap().collect::<Result<_, _>>().unwrap();
        let transfers =
            |bytes, operations| Transfers { bytes: Some(bytes), operations: Some(operations) };
        assert_eq!(stats.len(), 2);
        assert_eq!(stats[0].device, VDA);
        assert_eq!(stats[0].read, transfers(4_751_360, 113));
        assert_eq!(stats[0].written, transfers(8192, 2));
        assert_eq!(stats[0].discarded, transfers(7, 1));
        assert_eq!(stats[1].discarded, Transfers::default());
        assert_eq!(stats[1].device.to_string(), "8:16");
    }

    #[test]
    fn version_1() {
        let lines: Vec<_> = blkio(V1).unwrap().collect::<Result<_, _>>().unwrap();
        let line = |operation, value| Blkio { device: VDA, operation, value };
        let expected = [
            line(BlkioOperation::Read, 4_751_360),
            line(BlkioOperation::Write, 8192),
            line(BlkioOperation::Discard, 5),
        ];
        assert_eq!(lines, expected);
        assert_eq!(blkio(b"Total 0\n").unwrap().count(), 0);
    }

    #[test]
    fn every_truncated_line_is_rejected() {
        for (text, cut) in
            (1..V2.len()).map(|cut| (V2, cut)).chain((1..V1.len()).map(|cut| (V1, cut)))
        {
            if text[..cut].ends_with(b"\n") {
                continue;
            }
            assert!(io_stat(&text[..cut]).is_err() && blkio(&text[..cut]).is_err(), "{cut}");
        }
        for text in [
            "x rbytes=1\n",
            "8: rbytes=1\n",
            "8:0 rbytes=\n",
            "8:0 rbytes\n",
            "4294967296:0 rios=1\n",
        ] {
            assert!(io_stat(text.as_bytes()).unwrap().any(|line| line.is_err()), "{text:?}");
        }
        for text in ["x Read 1\n", "8:0 Read\n", "8:0 Read x\n", "8:0\n"] {
            assert!(blkio(text.as_bytes()).unwrap().any(|line| line.is_err()), "{text:?}");
        }
    }

    #[test]
    fn names_of_disks() {
        let text = b" 254       0 vda 98531 22473 100 107756 10268 32637 50 11541 0 11144 120003\n\
             254       1 vda1 1 0 2 3 4 5 6 7 0 0 0\nnonsense\n";
        let all: Vec<_> = disk_names(text).collect();
        let vda1 = DeviceNumber { major: 254, minor: 1 };
        assert_eq!(all, [(VDA, "vda", 150 * 512), (vda1, "vda1", 8 * 512)]);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            io_stat(&bytes).map(Iterator::count).ok();
            blkio(&bytes).map(Iterator::count).ok();
            disk_names(&bytes).count();
        }

        #[test]
        fn no_changed_byte_panics(place in 0..V2.len().min(V1.len()), byte: u8) {
            for text in [V2, V1] {
                let mut text = text.to_vec();
                text[place] = byte;
                io_stat(&text).map(Iterator::count).ok();
                blkio(&text).map(Iterator::count).ok();
            }
        }
    }
}
