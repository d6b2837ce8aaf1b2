//! The head of a batch: origin, boot and number. A server decodes it before it decides whether to decode the rest.

use crate::decode::{DecodeError, Decoded, Decoder};
use crate::limits::{self, LimitError};
use model::{Boot, NAME_BYTES_MAX, Origin};
use prost::encoding::{WireType, check_wire_type, decode_key, decode_varint};

/// Fields of the head, in `proto/batch.proto`.
const ORIGIN: u32 = 1;
const BOOT: u32 = 2;
const SEQ: u32 = 3;

/// The identity of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The sender.
    pub origin: Origin,
    /// The boot of the sender.
    pub boot: Boot,
    /// The number of the batch within the boot.
    pub seq: u64,
}

/// A frame with only its head decoded.
#[derive(Debug)]
pub struct Opened<'a> {
    pub(crate) decoder: &'a mut Decoder,
    pub(crate) payload: &'a [u8],
    /// Size of the decompressed payload.
    pub(crate) size: usize,
    pub(crate) head: Head,
}

impl Opened<'_> {
    /// The head.
    pub const fn head(&self) -> &Head {
        &self.head
    }

    /// Decodes the rest of the batch, except for its table.
    ///
    /// # Errors
    /// The payload is not a batch, exceeds a limit, or contains another head after the first.
    pub fn decode(self) -> Result<Decoded, DecodeError> {
        let decoded = self.decoder.decode_rest(self.payload, self.size)?;
        let Head { origin, boot, seq } = self.head;
        if (&decoded.origin, decoded.boot, decoded.seq) != (&origin, boot, seq) {
            return Err(LimitError::Head.into());
        }
        Ok(decoded)
    }
}

impl Head {
    /// Decodes the head at the beginning of a message, which may be truncated after it.
    pub(crate) fn read(mut message: &[u8]) -> Result<Self, DecodeError> {
        let (mut origin, mut boot, mut seq) = (&[][..], &[][..], 0);
        while !message.is_empty() {
            let (tag, wire_type) = decode_key(&mut message)?;
            match tag {
                ORIGIN => origin = bytes(wire_type, &mut message)?,
                BOOT => boot = bytes(wire_type, &mut message)?,
                SEQ => {
                    check_wire_type(WireType::Varint, wire_type)?;
                    seq = decode_varint(&mut message)?;
                }
                _ => break,
            }
        }
        let origin = std::str::from_utf8(origin).map_err(|_| LimitError::Head)?;
        let origin = Origin::new(origin).map_err(LimitError::from)?;
        let boot = Boot(boot.try_into().map_err(|_| LimitError::Boot(boot.len()))?);
        Ok(Self { origin, boot, seq })
    }
}

fn bytes<'a>(wire_type: WireType, message: &mut &'a [u8]) -> Result<&'a [u8], DecodeError> {
    check_wire_type(WireType::LengthDelimited, wire_type)?;
    let length = usize::try_from(decode_varint(message)?).unwrap_or(usize::MAX);
    limits::bytes("origin or boot", length, NAME_BYTES_MAX)?;
    let (field, rest) = message.split_at_checked(length).ok_or(LimitError::Head)?;
    *message = rest;
    Ok(field)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Batch;
    use prost::Message;

    fn message() -> Batch {
        Batch { origin: "n1".to_owned(), boot: vec![7; 16], seq: 9, ..Batch::default() }
    }

    fn sealed(message: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; crate::FRAME_HEADER_BYTES];
        frame.extend(zstd::bulk::compress(message, 1).unwrap());
        crate::frame::seal(&mut frame, 0).unwrap();
        frame
    }

    /// The head of a frame, and the result for the rest.
    fn read(message: &[u8]) -> (Result<Head, DecodeError>, Option<Result<Decoded, DecodeError>>) {
        let bytes = sealed(message);
        let frame = crate::Frames::of(&bytes).next().unwrap().unwrap();
        let mut decoder = Decoder::default();
        match decoder.open(&frame, crate::PAYLOAD_BYTES_MAX) {
            Ok(opened) => (Ok(opened.head().clone()), Some(opened.decode())),
            Err(error) => (Err(error), None),
        }
    }

    #[test]
    fn the_head_is_read_without_the_samples() {
        // Two samples without a value are not a batch. A short payload, and one of several blocks.
        for samples in [2, 1 << 20] {
            let damaged = Batch { refs: vec![1; samples], ..message() };
            let (head, rest) = read(&damaged.encode_to_vec());
            let head = head.unwrap();
            assert_eq!((head.origin.as_str(), head.boot, head.seq), ("n1", Boot([7; 16]), 9));
            assert!(rest.unwrap().is_err());
        }
        let (head, rest) = read(&message().encode_to_vec());
        assert_eq!(head.unwrap().origin, rest.unwrap().unwrap().origin);
    }

    #[test]
    fn a_long_payload_is_decompressed_by_a_block_for_its_head() {
        let long = Batch { table: vec![7; 4 << 20], ..message() }.encode_to_vec();
        let mut bytes = sealed(&long);
        let whole = bytes.len();
        // The last block is damaged; the checksum matches the damaged payload.
        bytes.truncate(whole - 1);
        crate::frame::seal(&mut bytes, 0).unwrap();
        let frame = crate::Frames::of(&bytes).next().unwrap().unwrap();
        let mut decoder = Decoder::default();
        let opened = decoder.open(&frame, crate::PAYLOAD_BYTES_MAX).unwrap();
        assert!(opened.decoder.decompressed() <= 128 << 10);
        assert!(matches!(opened.decode(), Err(DecodeError::Compressed(_))));
        // The damaged frame does not affect the next one.
        let good = sealed(&Batch { seq: 10, ..message() }.encode_to_vec());
        let frame = crate::Frames::of(&good).next().unwrap().unwrap();
        assert_eq!(decoder.decode(&frame).unwrap().seq, 10);
    }

    #[test]
    fn more_samples_than_a_batch_may_have_are_not_decompressed() {
        for table in [0, 2048, 200 << 10] {
            // As an attacker sends it: the samples follow a table of any length.
            let begin = Batch { table: vec![7; table], ..message() }.encode_to_vec();
            let samples = Batch { refs: vec![0; 14 << 20], ..Batch::default() }.encode_to_vec();
            let bytes = sealed(&[begin, samples].concat());
            let frame = crate::Frames::of(&bytes).next().unwrap().unwrap();
            let mut decoder = Decoder::default();
            let opened = decoder.open(&frame, crate::PAYLOAD_BYTES_MAX).unwrap();
            let error = opened.decode().unwrap_err();
            assert!(error.to_string().contains("samples"), "{error}");
            assert!(decoder.decompressed() <= 512 << 10, "{}", decoder.decompressed());
        }
    }

    #[test]
    fn no_batch_has_another_head_behind_the_first() {
        let other = Batch { origin: "n2".to_owned(), ..Batch::default() };
        let two = [
            message().encode_to_vec(),
            Batch { table: vec![7], ..Batch::default() }.encode_to_vec(),
            other.encode_to_vec(),
        ];
        let (head, rest) = read(&two.concat());
        assert_eq!(head.unwrap().origin.as_str(), "n1");
        assert_eq!(rest, Some(Err(DecodeError::Limit(LimitError::Head))));
        // A late origin does not count as part of the head.
        let late = [Batch { table: vec![7], ..Batch::default() }, message()];
        assert!(read(&late.map(|part| part.encode_to_vec()).concat()).0.is_err());
        let long = Batch { origin: "x".repeat(2000), ..message() };
        assert!(matches!(
            read(&long.encode_to_vec()).0,
            Err(DecodeError::Limit(LimitError::Bytes { bytes: 2000, .. }))
        ));
    }
}
