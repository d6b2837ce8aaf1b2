//! Encoding of values as bytes. Both ends run the same build of the same program, so that the format has no
//! version.
//!
//! Decoding trusts no input: it compares each length with the remaining bytes before it allocates memory.

use std::io::{self, Read};

/// Appends values to a message.
#[derive(Debug, Default)]
pub(crate) struct MessageWriter(Vec<u8>);

impl MessageWriter {
    /// Starts a message of this kind, with space for its length in front.
    pub(crate) fn message(kind: u8) -> Self {
        Self(vec![0, 0, 0, 0, kind])
    }

    /// Returns the complete message.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        let length = u32::try_from(self.0.len().saturating_sub(4)).unwrap_or(u32::MAX);
        if let Some(place) = self.0.first_chunk_mut() {
            *place = length.to_le_bytes();
        }
        self.0
    }

    /// Returns the values alone.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    pub(crate) fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    pub(crate) fn flag(&mut self, flag: bool) {
        self.byte(u8::from(flag));
    }

    pub(crate) fn u32(&mut self, number: u32) {
        self.0.extend(number.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, number: u64) {
        self.0.extend(number.to_le_bytes());
    }

    pub(crate) fn i64(&mut self, number: i64) {
        self.0.extend(number.to_le_bytes());
    }

    pub(crate) fn f64(&mut self, number: f64) {
        self.0.extend(number.to_le_bytes());
    }

    pub(crate) fn count(&mut self, count: usize) {
        self.u64(u64::try_from(count).unwrap_or(u64::MAX));
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.0.extend(bytes);
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    pub(crate) fn maybe<T>(&mut self, value: Option<T>, put: impl FnOnce(&mut Self, T)) {
        self.flag(value.is_some());
        if let Some(value) = value {
            put(self, value);
        }
    }

    pub(crate) fn all<T>(
        &mut self,
        values: impl ExactSizeIterator<Item = T>,
        mut put: impl FnMut(&mut Self, T),
    ) {
        self.count(values.len());
        values.for_each(|value| put(self, value));
    }
}

/// Reads values from a message. Returns `None` if the message is invalid.
#[derive(Debug)]
pub(crate) struct MessageReader<'a>(&'a [u8]);

impl<'a> MessageReader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn chunk<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (chunk, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*chunk)
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.chunk().map(|[byte]: [u8; 1]| byte)
    }

    pub(crate) fn flag(&mut self) -> Option<bool> {
        match self.byte()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.chunk().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.chunk().map(u64::from_le_bytes)
    }

    pub(crate) fn i64(&mut self) -> Option<i64> {
        self.chunk().map(i64::from_le_bytes)
    }

    pub(crate) fn f64(&mut self) -> Option<f64> {
        self.chunk().map(f64::from_le_bytes)
    }

    pub(crate) fn count(&mut self) -> Option<usize> {
        usize::try_from(self.u64()?).ok()
    }

    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.count()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(crate) fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }

    pub(crate) fn owned(&mut self) -> Option<String> {
        self.text().map(str::to_owned)
    }

    pub(crate) fn maybe<T>(
        &mut self,
        take: impl FnOnce(&mut Self) -> Option<T>,
    ) -> Option<Option<T>> {
        if self.flag()? { take(self).map(Some) } else { Some(None) }
    }

    /// Reads several values of at least one byte each.
    pub(crate) fn all<T, C: FromIterator<T>>(
        &mut self,
        mut take: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<C> {
        let count = self.count().filter(|count| *count <= self.0.len())?;
        (0..count).map(|_| take(self)).collect()
    }

    /// Whether the message is fully read.
    pub(crate) const fn is_done(&self) -> bool {
        self.0.is_empty()
    }
}

/// Reads one message from a blocking stream, without its length. Returns `None` at the end of the stream.
pub(crate) fn read_message(stream: &mut impl Read, longest: usize) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    match stream.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let length = length_of(length, longest)?;
    let mut message = vec![0; length];
    stream.read_exact(&mut message)?;
    Ok(Some(message))
}

/// Decodes the length of a message, and checks it against the limit.
pub(crate) fn length_of(bytes: [u8; 4], longest: usize) -> io::Result<usize> {
    let length = usize::try_from(u32::from_le_bytes(bytes)).unwrap_or(usize::MAX);
    if length > longest {
        let text = format!("a message of {length} bytes; {longest} at most");
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    Ok(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_and_cut_ones_do_not() {
        let mut put = MessageWriter::message(7);
        put.maybe(Some("a"), MessageWriter::text);
        put.maybe(None::<i64>, MessageWriter::i64);
        put.all([1.5, f64::INFINITY].into_iter(), MessageWriter::f64);
        let bytes = put.finish();
        let read = |mut bytes: &[u8]| {
            let message = read_message(&mut bytes, 100).ok().flatten()?;
            let mut take = MessageReader::new(&message);
            let values = (
                take.byte()?,
                take.maybe(MessageReader::owned)?,
                take.maybe(MessageReader::i64)?,
                take.all::<f64, Vec<_>>(MessageReader::f64)?,
            );
            take.is_done().then_some(values)
        };
        let want = (7, Some("a".to_owned()), None, vec![1.5, f64::INFINITY]);
        assert_eq!(read(&bytes), Some(want));
        for cut in 0..bytes.len() {
            assert_eq!(read(&bytes[..cut]), None, "{cut}");
        }
        assert!(read_message(&mut &bytes[..], 10).is_err(), "too long");
    }

    #[test]
    fn a_length_beyond_the_message_allocates_nothing() {
        let bytes = u64::MAX.to_le_bytes();
        assert_eq!(MessageReader::new(&bytes).bytes(), None);
        assert_eq!(MessageReader::new(&bytes).all::<u8, Vec<_>>(MessageReader::byte), None);
    }
}
