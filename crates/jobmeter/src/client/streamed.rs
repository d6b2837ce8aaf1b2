//! Streamed answers: if the server ends one early, the last line states the reason.

use std::io::{self, Read};

/// Start of the last line if the server ended the answer early.
const ERROR: &[u8] = b"error: ";
/// Maximum length of a held-back reason, in bytes.
const REASON_BYTES_MAX: usize = 4096;

/// A reader that passes a body on. It holds back a last line `error: …` until the answer's end is clear. If the
/// connection breaks there, the line becomes the error.
#[derive(Debug)]
pub(crate) struct Streamed<R> {
    body: R,
    /// Bytes ready for the reader.
    ready: Vec<u8>,
    given: usize,
    /// A last line that may be the reason.
    held: Vec<u8>,
    is_line_start: bool,
    is_over: bool,
}

impl<R: Read> Streamed<R> {
    pub(crate) const fn new(body: R) -> Self {
        let ready = Vec::new();
        Self { body, ready, given: 0, held: Vec::new(), is_line_start: true, is_over: false }
    }

    fn fill(&mut self) -> io::Result<()> {
        let mut piece = vec![0; 64 << 10];
        self.ready.clear();
        self.given = 0;
        match self.body.read(&mut piece) {
            Ok(0) => {
                self.is_over = true;
                self.ready.append(&mut self.held);
            }
            Ok(length) => self.take(piece.get(..length).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(self.ended(&error)),
        }
        Ok(())
    }

    /// Adds a piece, and holds back a last line that begins like a reason.
    fn take(&mut self, piece: &[u8]) {
        let is_start = if self.held.is_empty() { self.is_line_start } else { true };
        let mut all = std::mem::take(&mut self.held);
        all.extend_from_slice(piece);
        let line_end = all.strip_suffix(b"\n").unwrap_or(&all);
        let start = line_end.iter().rposition(|byte| *byte == b'\n').map(|place| place + 1);
        let start = start.or(is_start.then_some(0));
        let last = start.and_then(|start| line_end.get(start..)).unwrap_or_default();
        let may_be_reason = !last.is_empty()
            && last.len() <= REASON_BYTES_MAX
            && (last.starts_with(ERROR) || ERROR.starts_with(last));
        if let Some(start) = start.filter(|_| may_be_reason) {
            self.held = all.split_off(start);
        }
        self.is_line_start = all.last().is_none_or(|byte| *byte == b'\n');
        self.ready = all;
    }

    /// The error of an aborted answer.
    fn ended(&mut self, error: &io::Error) -> io::Error {
        let held = std::mem::take(&mut self.held);
        let text = match held.strip_prefix(ERROR) {
            Some(reason) => String::from_utf8_lossy(reason).trim().to_owned(),
            None => format!("the connection broke ({error}); retry, or query less"),
        };
        io::Error::other(format!("the server aborted the response: {text}"))
    }
}

impl<R: Read> Read for Streamed<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.given == self.ready.len() && !self.is_over {
            self.fill()?;
        }
        let rest = self.ready.get(self.given..).unwrap_or_default();
        let count = rest.len().min(into.len());
        for (to, from) in into.iter_mut().zip(rest) {
            *to = *from;
        }
        self.given += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A test reader that returns its pieces, then ends or fails.
    struct Pieces(Vec<&'static str>, bool);

    impl Read for Pieces {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() {
                return if self.1 { Err(io::Error::other("Peer disconnected")) } else { Ok(0) };
            }
            let piece = self.0.remove(0).as_bytes();
            into[..piece.len()].copy_from_slice(piece);
            Ok(piece.len())
        }
    }

    fn read(pieces: &[&'static str], breaks: bool) -> (String, Option<String>) {
        let (mut text, mut body) = (Vec::new(), Streamed::new(Pieces(pieces.to_vec(), breaks)));
        let error = body.read_to_end(&mut text).err();
        (String::from_utf8(text).unwrap(), error.map(|error| error.to_string()))
    }

    #[test]
    fn the_reason_of_an_early_end_is_the_error() {
        let why = "the server aborted the response: more than 20 rows; add LIMIT".to_owned();
        let reasons: [&[&str]; 3] = [
            &["a\n1\n", "\nerror: more than 20 rows; add LIMIT\n"],
            &["a\n1\n\nerr", "or: more than 20 rows; add LIMIT\n"],
            &["a\n1\n\n", "error: more than 20 rows", "; add LIMIT\n"],
        ];
        for pieces in reasons {
            assert_eq!(read(pieces, true), ("a\n1\n\n".to_owned(), Some(why.clone())));
        }
        let (text, error) = read(&["a\n1"], true);
        assert_eq!(text, "a\n1");
        assert!(error.unwrap().contains("the connection broke (Peer disconnected)"));
    }

    #[test]
    fn rows_that_look_like_a_reason_are_rows() {
        for pieces in [&["a\nerror: x\n"][..], &["a\nerr", "or: x\n", "b\n"], &["error: "]] {
            assert_eq!(read(pieces, false), (pieces.concat(), None));
        }
    }
}
