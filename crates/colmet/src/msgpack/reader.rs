//! The few types of MessagePack that Colmet's Rust nodes send. Nothing is allocated by an announced length, and nothing
//! recurses.

use crate::msgpack::{MsgpackError, MsgpackReason};

/// Reads values from the front of a message.
#[derive(Clone, Debug)]
pub(super) struct Reader<'a> {
    length: usize,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn of(message: &'a [u8]) -> Self {
        Self { length: message.len(), rest: message }
    }

    /// Where the next value begins.
    pub(super) fn offset(&self) -> usize {
        self.length - self.rest.len()
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    fn bytes(&mut self, count: usize) -> Result<&'a [u8], MsgpackReason> {
        let (first, rest) = self.rest.split_at_checked(count).ok_or(MsgpackReason::Truncated)?;
        self.rest = rest;
        Ok(first)
    }

    /// A big-endian number of up to 8 bytes.
    fn big_endian(&mut self, bytes: usize) -> Result<u64, MsgpackReason> {
        let bytes = self.bytes(bytes)?;
        Ok(bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    /// Calls `read`; its errors have the offset of the value that it began to read.
    fn at<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, MsgpackReason>,
    ) -> Result<T, MsgpackError> {
        let offset = self.offset();
        read(self).map_err(|reason| MsgpackError { offset, reason })
    }

    /// An integer of any width that fits 64 signed bits.
    pub(super) fn integer(&mut self) -> Result<i64, MsgpackError> {
        self.at(|it| {
            let head = it.big_endian(1)?;
            let signed =
                |number: u64, bits: u64| number.cast_signed() << (64 - bits) >> (64 - bits);
            match head {
                0x00..=0x7f => Ok(head.cast_signed()),
                0xe0..=0xff => Ok(signed(head, 8)),
                0xcc..=0xcf => {
                    let number = it.big_endian(1 << (head - 0xcc))?;
                    i64::try_from(number).map_err(|_| MsgpackReason::Number(number))
                }
                0xd0..=0xd3 => {
                    let width = head - 0xd0;
                    Ok(signed(it.big_endian(1 << width)?, 8 << width))
                }
                _ => Err(MsgpackReason::Type("an integer")),
            }
        })
    }

    pub(super) fn text(&mut self) -> Result<&'a str, MsgpackError> {
        self.at(|it| {
            let head = it.big_endian(1)?;
            let length = match head {
                0xa0..=0xbf => head & 0x1f,
                0xd9..=0xdb => it.big_endian(1 << (head - 0xd9))?,
                _ => return Err(MsgpackReason::Type("a text")),
            };
            let length = usize::try_from(length).map_err(|_| MsgpackReason::Truncated)?;
            std::str::from_utf8(it.bytes(length)?).map_err(|_| MsgpackReason::Text)
        })
    }

    /// The length of an array, which has at least one byte for each element.
    pub(super) fn array(&mut self) -> Result<usize, MsgpackError> {
        self.sequence("an array", 0x90, 0xdc, 1)
    }

    /// The number of pairs of a map, which has at least two bytes for each.
    pub(super) fn map(&mut self) -> Result<usize, MsgpackError> {
        self.sequence("a map", 0x80, 0xde, 2)
    }

    fn sequence(
        &mut self,
        what: &'static str,
        short: u64,
        long: u64,
        bytes_each: u64,
    ) -> Result<usize, MsgpackError> {
        self.at(|it| {
            let head = it.big_endian(1)?;
            let length = if head & 0xf0 == short {
                head & 0x0f
            } else if head == long || head == long + 1 {
                it.big_endian(2 << (head - long))?
            } else {
                return Err(MsgpackReason::Type(what));
            };
            let left = it.rest.len();
            let fits = usize::try_from(length * bytes_each).is_ok_and(|bytes| bytes <= left);
            fits.then(|| usize::try_from(length).ok())
                .flatten()
                .ok_or(MsgpackReason::Length { announced: length, left })
        })
    }
}
