//! Passes a streamed text on, and counts it.

use std::io::{self, Read, Write};

/// Amount of text passed on.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct BytesPassed {
    pub(super) lines: u64,
    /// Number of non-blank bytes.
    pub(super) marks: u64,
}

/// Passes a streamed text on.
pub(super) fn pass(mut body: impl Read, out: &mut impl Write) -> io::Result<BytesPassed> {
    let (mut passed, mut piece) = (BytesPassed::default(), vec![0; 64 << 10]);
    loop {
        let length = match body.read(&mut piece) {
            Ok(0) => {
                out.flush()?;
                return Ok(passed);
            }
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let piece = piece.get(..length).unwrap_or_default();
        out.write_all(piece)?;
        for byte in piece {
            passed.lines += u64::from(*byte == b'\n');
            passed.marks += u64::from(!byte.is_ascii_whitespace());
        }
    }
}
