//! The header of a frame: flags, then the length of the body in one or eight bytes.
//!
//! ```text
//! 00 05              a message of 5 bytes
//! 02 0000000000010000  a message of 65 536 bytes
//! 04 26              a command of 38 bytes
//! ```

use crate::error::PeerError;

/// More parts of the message follow. Colmet's collector takes each part for a message, and so does this crate.
const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// A header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) is_command: bool,
    /// Bytes of the body, as announced.
    pub(crate) length: u64,
}

impl Header {
    /// Bytes of the header that begins with these flags.
    ///
    /// # Errors
    /// The protocol has no such flags.
    pub(crate) const fn bytes(flags: u8) -> Result<usize, PeerError> {
        let is_known = flags & !(MORE | LONG | COMMAND) == 0;
        if !is_known || flags & (MORE | COMMAND) == MORE | COMMAND {
            return Err(PeerError::Flags(flags));
        }
        Ok(if flags & LONG == 0 { 2 } else { 9 })
    }

    /// A complete header.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let (flags, length) = bytes.split_first().unwrap_or((&0, &[]));
        let length = length.iter().fold(0, |length, byte| length << 8 | u64::from(*byte));
        Self { is_command: flags & COMMAND != 0, length }
    }

    /// Appends it.
    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        let flags = if self.is_command { COMMAND } else { 0 };
        match u8::try_from(self.length) {
            Ok(length) => out.extend([flags, length]),
            Err(_) => {
                out.push(flags | LONG);
                out.extend(self.length.to_be_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_written() {
        for (is_command, length, bytes) in
            [(false, 0, 2), (true, 255, 2), (false, 256, 9), (true, 10u64.pow(12), 9)]
        {
            let (header, mut out) = (Header { is_command, length }, Vec::new());
            header.encode(&mut out);
            assert_eq!((out.len(), Header::bytes(out[0])), (bytes, Ok(bytes)));
            assert_eq!(Header::of(&out), header);
        }
    }

    #[test]
    fn unknown_flags_are_errors() {
        for flags in 0..=u8::MAX {
            assert_eq!(Header::bytes(flags).is_ok(), matches!(flags, 0..=4 | 6), "{flags}");
        }
    }
}
