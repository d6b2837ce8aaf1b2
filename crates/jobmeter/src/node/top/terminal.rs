//! The terminal during `top`: raw mode, alternate screen, no cursor. Every exit restores the previous state.

use anyhow::{Context as _, bail};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr};
use rustix::time::Timespec;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGWINCH};
use signal_hook::{flag, low_level::pipe};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The previous state of the terminal; also used by the panic hook.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// Enters the alternate screen, hides the cursor, disables automatic wrapping.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l\x1b[?7l";
/// Reverts `ENTER`.
const LEAVE: &[u8] = b"\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l";

/// The event that ended [`Terminal::wait`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum WakeReason {
    /// Input bytes.
    Typed(Vec<u8>),
    /// The window's size changed, or this process was stopped and continued.
    Changed,
    /// A signal requests the end, or the terminal is closed.
    End,
    /// Timeout.
    Nothing,
}

/// The terminal of standard input and output.
pub(super) struct Terminal {
    end: Arc<AtomicBool>,
    changed: Arc<AtomicBool>,
    continued: Arc<AtomicBool>,
    wakes: UnixStream,
}

impl Terminal {
    /// Takes control of the terminal.
    ///
    /// # Errors
    /// Standard input or output is not a terminal.
    pub(super) fn take() -> anyhow::Result<Self> {
        if !isatty(io::stdin()) || !isatty(io::stdout()) {
            bail!("`jobmeter top` needs a terminal; `jobmeter jobs` and `jobmeter get` do not");
        }
        let (wakes, waker) = UnixStream::pair()?;
        wakes.set_nonblocking(true)?;
        waker.set_nonblocking(true)?;
        let new = || Arc::new(AtomicBool::new(false));
        let terminal = Self { end: new(), changed: new(), continued: new(), wakes };
        for (signal, raised) in [
            (SIGTERM, &terminal.end),
            (SIGINT, &terminal.end),
            (SIGHUP, &terminal.end),
            (SIGWINCH, &terminal.changed),
            (SIGCONT, &terminal.continued),
        ] {
            flag::register(signal, Arc::clone(raised))?;
            pipe::register(signal, waker.try_clone()?)?;
        }
        let before = tcgetattr(io::stdin()).context("the terminal's settings")?;
        *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = Some(before);
        let previous_hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            // First restores the terminal; otherwise the message disappears with the alternate screen.
            give_back();
            previous_hook(panic);
        }));
        terminal.enter()?;
        Ok(terminal)
    }

    fn enter(&self) -> anyhow::Result<()> {
        let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut raw = before.context("the terminal was closed")?;
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw).context("the terminal's settings")?;
        write(ENTER).context("writing to the terminal")
    }

    /// Columns and rows; 80 and 24 if unknown.
    pub(super) fn size(&self) -> (usize, usize) {
        match tcgetwinsize(io::stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
                (usize::from(size.ws_col), usize::from(size.ws_row))
            }
            _ => (80, 24),
        }
    }

    /// Waits for input or a signal, up to a time limit.
    ///
    /// # Errors
    /// The terminal cannot be read.
    pub(super) fn wait(&self, at_most: Duration) -> anyhow::Result<WakeReason> {
        let timeout = Timespec::try_from(at_most).ok();
        let stdin = io::stdin();
        let mut fds = [PollFd::new(&stdin, PollFlags::IN), PollFd::new(&self.wakes, PollFlags::IN)];
        // A signal may interrupt the call; the code below handles its effect.
        poll(&mut fds, timeout.as_ref()).ok();
        let typed = !fds.first().is_none_or(|fd| fd.revents().is_empty());
        let mut bytes = [0; 64];
        while matches!((&self.wakes).read(&mut bytes), Ok(1..)) {}
        if self.end.load(Ordering::Relaxed) {
            return Ok(WakeReason::End);
        }
        if self.continued.swap(false, Ordering::Relaxed) {
            self.enter()?;
            return Ok(WakeReason::Changed);
        }
        if self.changed.swap(false, Ordering::Relaxed) {
            return Ok(WakeReason::Changed);
        }
        if !typed {
            return Ok(WakeReason::Nothing);
        }
        match rustix::io::read(&stdin, &mut bytes) {
            Ok(0) => Ok(WakeReason::End),
            Ok(length) => Ok(WakeReason::Typed(bytes.get(..length).unwrap_or_default().to_vec())),
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => Ok(WakeReason::Nothing),
            // The terminal is closed.
            Err(rustix::io::Errno::IO) => Ok(WakeReason::End),
            Err(errno) => Err(errno).context("reading the terminal"),
        }
    }

    /// Shows these lines and nothing else.
    ///
    /// # Errors
    /// The terminal cannot be written.
    pub(super) fn show(&self, lines: &[String]) -> anyhow::Result<()> {
        let mut bytes = Vec::from(b"\x1b[H");
        for (place, line) in lines.iter().enumerate() {
            if place > 0 {
                bytes.extend_from_slice(b"\r\n");
            }
            // Clears before writing: after a line as wide as the window, clearing would erase its last
            // character.
            let is_last = place + 1 == lines.len();
            bytes.extend_from_slice(if is_last { b"\x1b[J" } else { b"\x1b[K" });
            bytes.extend_from_slice(line.as_bytes());
            bytes.extend_from_slice(b"\x1b[0m");
        }
        write(&bytes).context("writing to the terminal")
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        give_back();
    }
}

/// Restores the terminal, once.
fn give_back() {
    let before = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(before) = before {
        // A closed terminal cannot be restored; the error is ignored.
        write(LEAVE).ok();
        tcsetattr(io::stdin(), OptionalActions::Now, &before).ok();
    }
}

fn write(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}
