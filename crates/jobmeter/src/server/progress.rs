//! A line about work that takes longer than two seconds, on a terminal.

use std::io::{self, IsTerminal as _, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Work that is done sooner shows no line.
const AFTER: Duration = Duration::from_secs(2);
/// Interval between two lines.
const EVERY: Duration = Duration::from_secs(1);

/// Shows a line while it lives.
pub(crate) struct Progress {
    shown: Option<(SyncSender<()>, JoinHandle<()>)>,
}

impl Progress {
    /// Begins; without a terminal on standard error nothing is shown.
    pub(crate) fn start(what: &'static str) -> Self {
        if !io::stderr().is_terminal() {
            return Self { shown: None };
        }
        let (stop, stopped) = sync_channel(1);
        let thread = std::thread::Builder::new().name("progress".to_owned());
        // Work goes on without the line where no thread starts.
        let thread = thread.spawn(move || show(what, &stopped, &mut io::stderr(), (AFTER, EVERY)));
        Self { shown: thread.ok().map(|thread| (stop, thread)) }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.shown.take() {
            drop(stop);
            // A thread that panicked shows nothing more.
            thread.join().ok();
        }
    }
}

/// Writes the line again and again until the other end is gone, and clears it then.
fn show(
    what: &str,
    stopped: &Receiver<()>,
    out: &mut impl Write,
    (after, every): (Duration, Duration),
) {
    let (mut wait, mut passed) = (after, Duration::ZERO);
    while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(wait) {
        passed = passed.saturating_add(wait);
        wait = every;
        if write!(out, "\r\x1b[Kjobmeter: {what}, {} s", passed.as_secs())
            .and_then(|()| out.flush())
            .is_err()
        {
            return;
        }
    }
    if !passed.is_zero() {
        // Nobody reads it if standard error is closed.
        write!(out, "\r\x1b[K").and_then(|()| out.flush()).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keeps what is written, and says when a line is complete.
    struct Lines {
        text: Vec<u8>,
        line: SyncSender<()>,
    }

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.text.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            self.line.try_send(()).ok();
            Ok(())
        }
    }

    #[test]
    fn long_work_shows_a_line_and_clears_it() {
        let (stop, stopped) = sync_channel(1);
        let (line, lines) = sync_channel(1000);
        let shown = std::thread::spawn(move || {
            let mut out = Lines { text: Vec::new(), line };
            show(
                "copying",
                &stopped,
                &mut out,
                (Duration::from_millis(1), Duration::from_millis(1)),
            );
            String::from_utf8(out.text).unwrap()
        });
        // The work ends when two lines were shown.
        lines.recv().unwrap();
        lines.recv().unwrap();
        drop(stop);
        let text = shown.join().unwrap();
        assert!(
            text.starts_with("\r\x1b[Kjobmeter: copying, 0 s\r\x1b[Kjobmeter: copying, 0 s")
                && text.ends_with("\r\x1b[K"),
            "{text:?}"
        );
    }

    #[test]
    fn short_work_shows_nothing() {
        let (stop, stopped) = sync_channel::<()>(1);
        drop(stop);
        let mut out = Vec::new();
        show("copying", &stopped, &mut out, (AFTER, EVERY));
        assert!(out.is_empty());
    }
}
