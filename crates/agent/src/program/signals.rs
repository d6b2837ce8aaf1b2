//! SIGTERM and SIGINT end the agent, SIGHUP makes it read its configuration anew. The same again while it
//! ends, ends it at once.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level::pipe};
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    End,
    Reload,
}

/// The signals that came.
#[derive(Debug)]
pub(crate) struct Signals {
    end: Arc<AtomicBool>,
    reload: Arc<AtomicBool>,
    wakes: UnixStream,
    waker: UnixStream,
}

impl Signals {
    /// Takes the signals over from now on.
    ///
    /// # Errors
    /// No file descriptor is left.
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

    /// What wakes [`Self::wait`] as a signal does.
    ///
    /// # Errors
    /// No file descriptor is left.
    pub(crate) fn waker(&self) -> io::Result<UnixStream> {
        self.waker.try_clone()
    }

    /// Waits for a signal or for the waker, so long at most.
    pub(crate) fn wait(&self, at_most: Duration) -> Option<Signal> {
        let timeout = Timespec::try_from(at_most).ok();
        let mut fds = [PollFd::new(&self.wakes, PollFlags::IN)];
        // Interrupted by the very signal: what it said is looked at below.
        poll(&mut fds, timeout.as_ref()).ok();
        let mut bytes = [0; 64];
        while matches!((&self.wakes).read(&mut bytes), Ok(1..)) {}
        if self.end.load(Ordering::Relaxed) {
            return Some(Signal::End);
        }
        self.reload.swap(false, Ordering::Relaxed).then_some(Signal::Reload)
    }
}
