//! Shows a progress line on a terminal for work that takes longer than 2 s.

use std::io::{self, IsTerminal as _, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Delay before the first line.
const AFTER: Duration = Duration::from_secs(2);
/// Interval between updates.
const EVERY: Duration = Duration::from_secs(1);

/// Shows a line until it is dropped.
pub(crate) struct Progress {
    shown: Option<(SyncSender<()>, JoinHandle<()>)>,
}

impl Progress {
    /// Starts the line. Without a terminal on standard error, nothing is shown.
    pub(crate) fn start(what: &'static str) -> Self {
        if !io::stderr().is_terminal() {
            return Self { shown: None };
        }
        let (stop, stopped) = sync_channel(1);
        let thread = std::thread::Builder::new().name("progress".to_owned());
        // If the thread does not start, the work continues without the line.
        let thread = thread.spawn(move || show(what, &stopped, &mut io::stderr(), (AFTER, EVERY)));
        Self { shown: thread.ok().map(|thread| (stop, thread)) }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.shown.take() {
            drop(stop);
            // A panicked thread has stopped writing.
            thread.join().ok();
        }
    }
}

/// Rewrites the line until the other end of the channel is dropped, then clears it.
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
        // The error of a closed standard error is ignored.
        write!(out, "\r\x1b[K").and_then(|()| out.flush()).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stores written text, and signals each complete line.
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
        // The work ends after two lines.
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
