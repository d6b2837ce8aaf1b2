//! A session on a TCP connection that never blocks.

use crate::error::PeerError;
use crate::session::Session;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Bytes that are read at once.
pub(crate) const READ_BYTES: usize = 64 * 1024;
/// After this time without a byte, the system probes whether the other host is still there.
const PROBE_AFTER: Duration = Duration::from_secs(60);
const PROBE_EACH: Duration = Duration::from_secs(15);
const PROBES: u32 = 4;

/// The time for deadlines of connections.
#[expect(clippy::disallowed_methods, reason = "limits waits, and decides nothing about data")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Waits until one of these is ready or the time is over.
pub(crate) fn wait(fds: &mut [PollFd<'_>], time: Duration) -> io::Result<()> {
    let time = Timespec::try_from(time).map_err(io::Error::other)?;
    match poll(fds, Some(&time)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[derive(Debug)]
pub(crate) struct Stream {
    tcp: TcpStream,
    pub(crate) session: Session,
}

impl Stream {
    pub(crate) fn new(tcp: TcpStream, session: Session) -> io::Result<Self> {
        tcp.set_nonblocking(true)?;
        tcp.set_nodelay(true)?;
        sockopt::set_socket_keepalive(&tcp, true)?;
        sockopt::set_tcp_keepidle(&tcp, PROBE_AFTER)?;
        sockopt::set_tcp_keepintvl(&tcp, PROBE_EACH)?;
        sockopt::set_tcp_keepcnt(&tcp, PROBES)?;
        Ok(Self { tcp, session })
    }

    /// What to wait for.
    pub(crate) fn poll_fd(&self) -> PollFd<'_> {
        let is_writing = !self.session.pending().is_empty();
        let out = if is_writing { PollFlags::OUT } else { PollFlags::empty() };
        PollFd::new(&self.tcp, PollFlags::IN | out)
    }

    /// Reads once into `buffer`, calls `each` with every whole message, and writes what can be written now.
    ///
    /// # Errors
    /// The connection ended: [`PeerError::Closed`] if nothing was cut off by that.
    pub(crate) fn turn(
        &mut self,
        buffer: &mut [u8],
        each: &mut dyn FnMut(Vec<u8>),
    ) -> Result<(), PeerError> {
        match self.tcp.read(buffer) {
            Ok(0) => return Err(self.closed()),
            Ok(length) => {
                self.session.receive(buffer.get(..length).unwrap_or_default(), each)?;
            }
            Err(error) if is_for_now(&error) => {}
            Err(_) => return Err(self.closed()),
        }
        while !self.session.pending().is_empty() {
            match self.tcp.write(self.session.pending()) {
                Ok(0) => return Err(self.closed()),
                Ok(length) => self.session.wrote(length),
                Err(error) if is_for_now(&error) => break,
                Err(_) => return Err(self.closed()),
            }
        }
        Ok(())
    }

    fn closed(&self) -> PeerError {
        if self.session.is_idle() { PeerError::Closed } else { PeerError::Truncated }
    }
}

fn is_for_now(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
