//! Signals: SIGTERM and SIGINT end the agent, SIGHUP reloads its configuration. A second SIGTERM or SIGINT during
//! shutdown ends it at once.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level::pipe};
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The action that a signal requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    End,
    Reload,
}

/// Signals received by the agent.
#[derive(Debug)]
pub(crate) struct Signals {
    end: Arc<AtomicBool>,
    reload: Arc<AtomicBool>,
    wakes: UnixStream,
    waker: UnixStream,
}

impl Signals {
    /// Installs the signal handlers.
    ///
    /// # Errors
    /// No file descriptor is available.
    pub(crate) fn new() -> io::Result<Self> {
        let (end, reload) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (wakes, waker) = UnixStream::pair()?;
        wakes.set_nonblocking(true)?;
        waker.set_nonblocking(true)?;
        for signal in [SIGTERM, SIGINT] {
            flag::register_conditional_shutdown(signal, 1, Arc::clone(&end))?;
            flag::register(signal, Arc::clone(&end))?;
            pipe::register(signal, waker.try_clone()?)?;
        }
        flag::register(SIGHUP, Arc::clone(&reload))?;
        pipe::register(SIGHUP, waker.try_clone()?)?;
        Ok(Self { end, reload, wakes, waker })
    }

    /// Returns a socket that wakes [`Self::wait`] like a signal.
    ///
    /// # Errors
    /// No file descriptor is available.
    pub(crate) fn waker(&self) -> io::Result<UnixStream> {
        self.waker.try_clone()
    }

    /// Waits for a signal or for the waker, at most the given time.
    pub(crate) fn wait(&self, at_most: Duration) -> Option<Signal> {
        let timeout = Timespec::try_from(at_most).ok();
        let mut fds = [PollFd::new(&self.wakes, PollFlags::IN)];
        // A signal may interrupt the poll. Its flag is read below.
        poll(&mut fds, timeout.as_ref()).ok();
        let mut bytes = [0; 64];
        while matches!((&self.wakes).read(&mut bytes), Ok(1..)) {}
        if self.end.load(Ordering::Relaxed) {
            return Some(Signal::End);
        }
        self.reload.swap(false, Ordering::Relaxed).then_some(Signal::Reload)
    }
}
