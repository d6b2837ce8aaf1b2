//! Sends messages to one peer, over one connection.

use crate::error::PeerError;
use crate::session::{Role, Session};
use crate::stream::{READ_BYTES, Stream, now, wait};
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// A PUSH socket with one connection. After an error it must be dropped; a message that is not wholly written then must be sent
/// again over the next connection.
#[derive(Debug)]
pub struct Push {
    stream: Stream,
    buffer: Vec<u8>,
}

impl Push {
    /// Connects to `HOST:PORT`, and waits for the end of the handshake, at most this long.
    ///
    /// # Errors
    /// Nobody listens there, or the peer is no PULL.
    pub fn connect(address: &str, time: Duration) -> Result<Self, PeerError> {
        let deadline = now() + time;
        // A PULL sends no messages.
        let session = Session::new(Role::Push, 0);
        let stream = Stream::new(tcp(address, deadline)?, session)?;
        let mut push = Self { stream, buffer: vec![0; READ_BYTES] };
        while !push.stream.session.is_open() {
            if !push.is_in_time(deadline)? {
                return Err(PeerError::Handshake);
            }
            push.turn()?;
        }
        Ok(push)
    }

    /// Adds a message to those that [`Self::flush`] writes.
    pub fn put(&mut self, message: &[u8]) {
        self.stream.session.send(message);
    }

    /// Writes, and answers the peer. Returns whether all messages are wholly written; `false` if the time is over before.
    ///
    /// # Errors
    /// The connection ended.
    pub fn flush(&mut self, time: Duration) -> Result<bool, PeerError> {
        let deadline = now() + time;
        loop {
            self.turn()?;
            if self.stream.session.pending().is_empty() {
                return Ok(true);
            }
            if !self.is_in_time(deadline)? {
                return Ok(false);
            }
        }
    }

    fn turn(&mut self) -> Result<(), PeerError> {
        self.stream.turn(&mut self.buffer, &mut |_| ())
    }

    /// Waits for the connection. Returns whether there was time for it.
    fn is_in_time(&self, deadline: Instant) -> Result<bool, PeerError> {
        let left = deadline.saturating_duration_since(now());
        if left.is_zero() {
            return Ok(false);
        }
        wait(&mut [self.stream.poll_fd()], left)?;
        Ok(true)
    }
}

/// Connects to the first address of the name that accepts.
fn tcp(address: &str, deadline: Instant) -> io::Result<TcpStream> {
    let mut failed = io::Error::other("the name has no address");
    for address in address.to_socket_addrs()? {
        // A time of 0 is an error of its own.
        let left = deadline.saturating_duration_since(now()).max(Duration::from_millis(1));
        match TcpStream::connect_timeout(&address, left) {
            Ok(tcp) => return Ok(tcp),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}
