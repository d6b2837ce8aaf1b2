//! Standard input in lines, and the signals that end the program.

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::{self, Read as _};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::Builder;

/// Bytes of a line.
const LINE_BYTES_MAX: usize = 64 << 10;
/// Bytes that are read at once: those of a pipe.
const CHUNK_BYTES: usize = 64 << 10;
/// Chunks in memory.
const CHUNKS_MAX: usize = 4;

/// What happens to the program.
#[derive(Debug)]
pub(super) enum Input {
    /// Bytes arrived.
    Bytes(Vec<u8>),
    /// The input ends: well, or with an error.
    End(io::Result<()>),
    /// SIGTERM or SIGINT.
    Signal,
}

/// Starts to read standard input and to wait for signals.
///
/// # Errors
/// The operating system gives no thread or signal.
pub(super) fn start() -> io::Result<Receiver<Input>> {
    let (sender, receiver) = sync_channel(CHUNKS_MAX);
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    let of_signals = sender.clone();
    Builder::new().name("signals".into()).spawn(move || {
        for _ in signals.forever() {
            if of_signals.send(Input::Signal).is_err() {
                return;
            }
        }
    })?;
    // It ends with the process: a read cannot be interrupted.
    Builder::new().name("input".into()).spawn(move || read(&sender))?;
    Ok(receiver)
}

fn read(sender: &SyncSender<Input>) {
    let mut stdin = io::stdin().lock();
    loop {
        let mut bytes = vec![0; CHUNK_BYTES];
        let input = match stdin.read(&mut bytes) {
            Ok(0) => Input::End(Ok(())),
            Ok(count) => {
                bytes.truncate(count);
                Input::Bytes(bytes)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => Input::End(Err(error)),
        };
        let is_end = matches!(input, Input::End(_));
        if sender.send(input).is_err() || is_end {
            return;
        }
    }
}

/// Splits bytes into lines.
#[derive(Debug, Default)]
pub struct Lines {
    /// The begin of a line whose end has not arrived.
    begun: Vec<u8>,
    /// Whether that line is too long.
    is_too_long: bool,
}

impl Lines {
    /// Calls `each` for every line that ends in `bytes`, without its end; with `None` for a line that is too long.
    ///
    /// # Errors
    /// That of `each`.
    pub fn split<E>(
        &mut self,
        mut bytes: &[u8],
        mut each: impl FnMut(Option<&[u8]>) -> Result<(), E>,
    ) -> Result<(), E> {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let (line, rest) = bytes.split_at(end);
            bytes = rest.get(1..).unwrap_or_default();
            if self.begun.is_empty() && !self.is_too_long && line.len() <= LINE_BYTES_MAX {
                each(Some(line))?;
                continue;
            }
            self.add(line);
            let is_too_long = std::mem::take(&mut self.is_too_long);
            each((!is_too_long).then_some(&self.begun))?;
            self.begun.clear();
        }
        self.add(bytes);
        Ok(())
    }

    /// The last line, which has no end. The number that was last written may be cut, so its field is left empty.
    pub fn end(&mut self) -> Option<Option<Vec<u8>>> {
        if std::mem::take(&mut self.is_too_long) {
            return Some(None);
        }
        let mut line = std::mem::take(&mut self.begun);
        if let Some(comma) = line.iter().rposition(|byte| *byte == b',') {
            line.truncate(comma + 1);
        }
        (!line.is_empty()).then_some(Some(line))
    }

    fn add(&mut self, bytes: &[u8]) {
        self.is_too_long |= self.begun.len() + bytes.len() > LINE_BYTES_MAX;
        match self.is_too_long {
            true => self.begun.clear(),
            false => self.begun.extend_from_slice(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    fn lines(parts: &[&[u8]]) -> Vec<Option<Vec<u8>>> {
        let (mut lines, mut found) = (Lines::default(), Vec::new());
        for part in parts {
            let each = |line: Option<&[u8]>| -> Result<(), Infallible> {
                found.push(line.map(<[u8]>::to_vec));
                Ok(())
            };
            lines.split(part, each).unwrap();
        }
        found.extend(lines.end());
        found
    }

    #[test]
    fn lines_do_not_depend_on_the_parts() {
        let text = b"a,1\n\nb,2\r\nc,3,4";
        let expected = [&b"a,1"[..], b"", b"b,2\r", b"c,3,"].map(|line| Some(line.to_vec()));
        for size in 1..=text.len() {
            let parts: Vec<&[u8]> = text.chunks(size).collect();
            assert_eq!(lines(&parts), expected, "{size}");
        }
        assert_eq!(lines(&[b"a\n"]), [Some(b"a".to_vec())]);
    }

    #[test]
    fn a_line_that_is_too_long_is_one_fault() {
        let long = vec![b'x'; LINE_BYTES_MAX];
        assert_eq!(lines(&[&long, b"\n"]), [Some(long.clone())]);
        assert_eq!(lines(&[&long, b"x", &long, b"\na\n"]), [None, Some(b"a".to_vec())]);
        assert_eq!(lines(&[&long, b"x"]), [None]);
        let whole = [&long[..], b"x\na\n"].concat();
        assert_eq!(lines(&[&whole]), [None, Some(b"a".to_vec())]);
    }
}
