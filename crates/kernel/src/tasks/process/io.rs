//! `/proc/PID/io`: the io of a process, ended threads included (fs/proc/base.c, `do_io_accounting`).
//!
//! ```text
//! rchar: 6976
//! wchar: 0
//! syscr: 10
//! syscw: 0
//! read_bytes: 0
//! write_bytes: 0
//! cancelled_write_bytes: 0
//! ```

use crate::parse::{ParseError, number, whole_lines};

/// The numbers of `/proc/PID/io`: bytes and calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessIo {
    /// Bytes read by read calls, from any source.
    pub read_chars: u64,
    /// Bytes written by write calls.
    pub write_chars: u64,
    /// Read calls.
    pub read_calls: u64,
    /// Write calls.
    pub write_calls: u64,
    /// Bytes fetched from storage.
    pub read_bytes: u64,
    /// Bytes to be sent to storage.
    pub write_bytes: u64,
    /// Bytes not sent because of truncation.
    pub cancelled_write_bytes: u64,
}

/// Reads `/proc/PID/io`.
///
/// # Errors
/// A line is missing, truncated, or not a number.
pub fn process_io(text: &[u8]) -> Result<ProcessIo, ParseError> {
    let mut io = ProcessIo::default();
    let mut seen = 0_u8;
    for line in whole_lines(text)? {
        let mut parts = line.splitn(2, |byte| *byte == b':');
        let (name, value) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let (bit, to) = match name {
            b"rchar" => (1, &mut io.read_chars),
            b"wchar" => (2, &mut io.write_chars),
            b"syscr" => (4, &mut io.read_calls),
            b"syscw" => (8, &mut io.write_calls),
            b"read_bytes" => (16, &mut io.read_bytes),
            b"write_bytes" => (32, &mut io.write_bytes),
            b"cancelled_write_bytes" => (64, &mut io.cancelled_write_bytes),
            _ => continue,
        };
        *to = number(value.trim_ascii()).ok_or_else(|| ParseError::at(line))?;
        seen |= bit;
    }
    if seen == 127 { Ok(io) } else { Err(ParseError::at(text)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &[u8] = b"rchar: 6976\nwchar: 1\nsyscr: 10\nsyscw: 2\nread_bytes: 4096\n\
        write_bytes: 8192\ncancelled_write_bytes: 512\n";

    #[test]
    fn a_file_and_its_truncations() {
        let io = ProcessIo {
            read_chars: 6976,
            write_chars: 1,
            read_calls: 10,
            write_calls: 2,
            read_bytes: 4096,
            write_bytes: 8192,
            cancelled_write_bytes: 512,
        };
        assert_eq!(process_io(TEXT), Ok(io));
        for cut in 0..TEXT.len() {
            assert!(process_io(&TEXT[..cut]).is_err(), "{cut}");
        }
        let longer = [TEXT, b"later: x\n"].concat();
        assert_eq!(process_io(&longer), Ok(io), "an unknown line");
        let text = String::from_utf8(TEXT.to_vec()).unwrap();
        assert!(process_io(text.replace("6976", "-976").as_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            process_io(&bytes).ok();
        }

        #[test]
        fn no_change_of_a_byte_panics(place in 0..TEXT.len(), byte in any::<u8>()) {
            let mut bytes = TEXT.to_vec();
            bytes[place] = byte;
            process_io(&bytes).ok();
        }
    }
}
