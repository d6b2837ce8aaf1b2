//! Quotes empty CSV rows: a row with one null is an empty line, which CSV readers skip.

use std::io::{self, Read};

/// A reader that replaces each empty line by an empty quoted text.
#[derive(Debug)]
pub(crate) struct BlankRows<R> {
    inner: R,
    quoted: bool,
    line_start: bool,
    ready: Vec<u8>,
    given: usize,
}

impl<R: Read> BlankRows<R> {
    pub(crate) const fn new(inner: R) -> Self {
        Self { inner, quoted: false, line_start: true, ready: Vec::new(), given: 0 }
    }

    fn fill(&mut self) -> io::Result<()> {
        let mut piece = [0; 16 << 10];
        let length = self.inner.read(&mut piece)?;
        self.ready.clear();
        self.given = 0;
        for byte in piece.get(..length).unwrap_or_default() {
            if *byte == b'\n' && self.line_start && !self.quoted {
                self.ready.extend(b"\"\"");
            }
            // A quote within quotes is doubled.
            self.quoted ^= *byte == b'"';
            self.line_start = *byte == b'\n';
            self.ready.push(*byte);
        }
        Ok(())
    }
}

impl<R: Read> Read for BlankRows<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.given == self.ready.len() {
            self.fill()?;
        }
        let rest = self.ready.get(self.given..).unwrap_or_default();
        let count = rest.len().min(to.len());
        for (to, from) in to.iter_mut().zip(rest) {
            *to = *from;
        }
        self.given += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_lines_are_rows() {
        let mut text = String::new();
        BlankRows::new("a\n\n1\n\"x\n\n\"\"y\"\n\n".as_bytes()).read_to_string(&mut text).unwrap();
        assert_eq!(text, "a\n\"\"\n1\n\"x\n\n\"\"y\"\n\"\"\n");
    }
}
