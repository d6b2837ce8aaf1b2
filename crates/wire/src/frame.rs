//! Frames: the framing of payloads in a request body, a spool segment or a log segment.

const MAGIC: [u8; 4] = *b"JMB1";

/// Bytes before the payload.
pub const FRAME_HEADER_BYTES: usize = 12;
/// Maximum length of a frame, including its header.
pub const FRAME_BYTES_MAX: usize = FRAME_HEADER_BYTES + (8 << 20);

/// Why bytes are not a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The bytes end within the frame: a torn tail.
    #[error("the frame at byte {at} is cut: {have} of {want} bytes")]
    Cut {
        /// Its start.
        at: usize,
        /// Bytes present.
        have: usize,
        /// Bytes expected.
        want: usize,
    },
    /// Another magic: not a frame, or a frame of an unknown version.
    #[error("the bytes at {at} are no frame of this version (magic {found:02x?})")]
    Magic {
        /// Its position.
        at: usize,
        /// The bytes found.
        found: [u8; 4],
    },
    /// Longer than [`FRAME_BYTES_MAX`].
    #[error("the frame at byte {at} has {bytes} bytes; {FRAME_BYTES_MAX} at most")]
    TooLong {
        /// Its start.
        at: usize,
        /// Its length.
        bytes: usize,
    },
    /// The payload was changed.
    #[error("the frame at byte {at} is damaged: its checksum differs")]
    Checksum {
        /// Its start.
        at: usize,
        /// Bytes to skip to reach the next frame.
        bytes: usize,
    },
}

/// One good frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Its start in the bytes.
    pub at: usize,
    /// The whole frame, including its header, as stored in spool and log.
    pub bytes: &'a [u8],
    /// Its payload, compressed.
    pub payload: &'a [u8],
}

/// The frames of some bytes, in order. Ends at the end of the bytes, or after the first error. Only a
/// damaged payload does not end it, because its length is known.
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    bytes: &'a [u8],
    at: usize,
    ended: bool,
}

impl<'a> Frames<'a> {
    /// The frames of these bytes.
    pub const fn of(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, ended: false }
    }

    fn take(&mut self) -> Result<Frame<'a>, FrameError> {
        let at = self.at;
        let rest = self.bytes.get(at..).unwrap_or_default();
        let cut = |want| FrameError::Cut { at, have: rest.len(), want };
        let (magic, tail) = rest.split_first_chunk::<4>().ok_or(cut(FRAME_HEADER_BYTES))?;
        if *magic != MAGIC {
            return Err(FrameError::Magic { at, found: *magic });
        }
        let (length, tail) = tail.split_first_chunk::<4>().ok_or(cut(FRAME_HEADER_BYTES))?;
        let (crc, tail) = tail.split_first_chunk::<4>().ok_or(cut(FRAME_HEADER_BYTES))?;
        let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
        let whole = FRAME_HEADER_BYTES.saturating_add(length);
        if whole > FRAME_BYTES_MAX {
            return Err(FrameError::TooLong { at, bytes: whole });
        }
        let payload = tail.get(..length).ok_or(cut(whole))?;
        self.at = at + whole;
        if crc32c::crc32c(payload) != u32::from_le_bytes(*crc) {
            return Err(FrameError::Checksum { at, bytes: whole });
        }
        Ok(Frame { at, bytes: rest.get(..whole).unwrap_or_default(), payload })
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, FrameError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended || self.at >= self.bytes.len() {
            return None;
        }
        let frame = self.take();
        self.ended = matches!(&frame, Err(error) if !matches!(error, FrameError::Checksum { .. }));
        Some(frame)
    }
}

/// Writes the header of the frame at `start`; its payload follows the header.
pub(crate) fn seal(frame: &mut [u8], start: usize) -> Result<(), FrameError> {
    let whole = frame.len().saturating_sub(start);
    let at = start;
    let Some((header, payload)) = frame
        .get_mut(start..)
        .and_then(|frame| frame.split_first_chunk_mut::<FRAME_HEADER_BYTES>())
    else {
        return Err(FrameError::Cut { at, have: whole, want: FRAME_HEADER_BYTES });
    };
    let length = u32::try_from(payload.len()).ok().filter(|_| whole <= FRAME_BYTES_MAX);
    let Some(length) = length else { return Err(FrameError::TooLong { at, bytes: whole }) };
    let crc = crc32c::crc32c(payload);
    let fields = [MAGIC, length.to_le_bytes(), crc.to_le_bytes()];
    for (to, from) in header.iter_mut().zip(fields.iter().flatten()) {
        *to = *from;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; FRAME_HEADER_BYTES];
        bytes.extend_from_slice(payload);
        seal(&mut bytes, 0).unwrap();
        bytes
    }

    #[test]
    fn frames_one_after_another() {
        let mut bytes = frame(b"one");
        bytes.extend(frame(b"two"));
        let payloads: Vec<_> = Frames::of(&bytes).map(|f| f.unwrap().payload).collect();
        assert_eq!(payloads, [b"one", b"two"]);
    }

    #[test]
    fn every_cut_is_detected_and_earlier_frames_are_kept() {
        let mut bytes = frame(b"one");
        let whole = bytes.len();
        bytes.extend(frame(b"two"));
        for cut in whole + 1..bytes.len() {
            let frames: Vec<_> = Frames::of(&bytes[..cut]).collect();
            assert!(frames[0].is_ok(), "{cut}");
            assert!(matches!(frames[1], Err(FrameError::Cut { .. })), "{cut}");
            assert_eq!(frames.len(), 2);
        }
    }

    #[test]
    fn every_flipped_byte_is_detected() {
        let bytes = frame(b"payload");
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 0x40;
            assert!(Frames::of(&bad).any(|frame| frame.is_err()), "{at}");
        }
    }

    #[test]
    fn a_damaged_payload_affects_only_its_frame() {
        let mut bytes = frame(b"one");
        bytes[FRAME_HEADER_BYTES] ^= 1;
        bytes.extend(frame(b"two"));
        let frames: Vec<_> = Frames::of(&bytes).collect();
        assert!(matches!(frames[0], Err(FrameError::Checksum { at: 0, .. })));
        assert_eq!(frames[1].unwrap().payload, b"two");
    }
}
