//! Receives messages from many peers, without threads: everything happens within [`Pull::receive`].

use crate::error::PeerError;
use crate::session::{Role, Session};
use crate::stream::{READ_BYTES, Stream, now, wait};
use rustix::event::{PollFd, PollFlags};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Connections that a listener accepts after one wait.
const ACCEPTED_AT_ONCE: usize = 16;
/// Pause of new connections after an error of the system, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);
/// Interval in which handshakes that take too long are looked for.
const HANDSHAKE_CHECK: Duration = Duration::from_secs(1);

/// What peers may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a message.
    pub message_bytes: usize,
    /// Connections.
    pub peers: usize,
    /// Connections of one address.
    pub peers_per_address: usize,
    /// Bytes of the unfinished messages of all peers.
    pub unfinished_bytes: usize,
    /// Time from the connection to the end of the handshake.
    pub handshake: Duration,
}

impl Default for Limits {
    /// A node of Colmet with 100 jobs sends messages of 0.3 MB.
    fn default() -> Self {
        Self {
            message_bytes: 4 << 20,
            peers: 4096,
            peers_per_address: 64,
            unfinished_bytes: 64 << 20,
            handshake: Duration::from_secs(10),
        }
    }
}

/// What [`Pull::receive`] returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A message.
    Message {
        /// The address of its sender.
        peer: SocketAddr,
        /// Its content.
        bytes: Vec<u8>,
    },
    /// A peer broke a rule: its connection was closed, or not accepted. [`PeerError::word`] is for counters.
    Ended {
        /// Its address.
        peer: SocketAddr,
        /// The reason.
        why: PeerError,
    },
}

/// Whether an address may connect.
pub type Admits = Box<dyn Fn(IpAddr) -> bool + Send>;

/// A PULL socket that listens. Dropping it closes all connections.
///
/// Nothing is read outside of [`Self::receive`], so peers keep their messages while the caller does not receive. To lose as
/// little as possible at the end, receive with a time of 0 until nothing is returned, then drop it.
pub struct Pull {
    limits: Limits,
    admits: Admits,
    listeners: Vec<TcpListener>,
    peers: BTreeMap<u64, Peer>,
    /// The number of the next peer.
    next: u64,
    /// Peers that the last wait found ready.
    ready: VecDeque<u64>,
    /// Events of the last peer that was read, and of connections that were not accepted.
    events: VecDeque<Event>,
    /// Bytes of unfinished messages.
    unfinished: usize,
    buffer: Vec<u8>,
    /// No connection is accepted before this.
    accept_after: Option<Instant>,
}

struct Peer {
    stream: Stream,
    address: SocketAddr,
    connected: Instant,
}

impl fmt::Debug for Pull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let peers = self.peers.len();
        f.debug_struct("Pull").field("peers", &peers).finish_non_exhaustive()
    }
}

impl Pull {
    /// Listens on these addresses. `admits` decides which addresses may connect.
    ///
    /// # Errors
    /// An address is in use or not of this machine.
    pub fn bind(addresses: &[SocketAddr], limits: Limits, admits: Admits) -> io::Result<Self> {
        let mut listeners = Vec::new();
        for address in addresses {
            let listener = TcpListener::bind(address)
                .map_err(|error| io::Error::new(error.kind(), format!("{address}: {error}")))?;
            listener.set_nonblocking(true)?;
            listeners.push(listener);
        }
        Ok(Self {
            limits,
            admits,
            listeners,
            peers: BTreeMap::new(),
            next: 0,
            ready: VecDeque::new(),
            events: VecDeque::new(),
            unfinished: 0,
            buffer: vec![0; READ_BYTES],
            accept_after: None,
        })
    }

    /// The addresses on which it listens; a port 0 is replaced by the system's choice.
    ///
    /// # Errors
    /// The system does not return one.
    pub fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        self.listeners.iter().map(TcpListener::local_addr).collect()
    }

    /// Connected peers.
    pub fn peers(&self) -> usize {
        self.peers.len()
    }

    /// The next message or wrong peer; `None` if the time is over.
    ///
    /// # Errors
    /// The system has no file descriptor or memory for a connection. Later calls continue.
    pub fn receive(&mut self, time: Duration) -> io::Result<Option<Event>> {
        let deadline = now() + time;
        let mut has_waited = false;
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(Some(event));
            }
            if let Some(number) = self.ready.pop_front() {
                self.read(number);
                continue;
            }
            let now = now();
            // Only after a wait: handshakes may have arrived while the caller did not receive.
            if has_waited {
                self.end_slow_handshakes(now);
                if !self.events.is_empty() {
                    continue;
                }
                if now >= deadline {
                    return Ok(None);
                }
            }
            self.wait(deadline.saturating_duration_since(now).min(HANDSHAKE_CHECK), now)?;
            has_waited = true;
        }
    }

    /// Waits for bytes and connections, and notes which peers are ready.
    fn wait(&mut self, time: Duration, now: Instant) -> io::Result<()> {
        let is_paused = self.accept_after.is_some_and(|after| now < after);
        let listeners = if is_paused { &[] } else { &*self.listeners };
        let mut fds: Vec<PollFd<'_>> =
            listeners.iter().map(|listener| PollFd::new(listener, PollFlags::IN)).collect();
        fds.extend(self.peers.values().map(|peer| peer.stream.poll_fd()));
        wait(&mut fds, time)?;
        let is_ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let (of_listeners, of_peers) = is_ready.split_at(listeners.len());
        let ready = self.peers.keys().zip(of_peers).filter(|(_, is_ready)| **is_ready);
        self.ready.extend(ready.map(|(number, _)| *number));
        for (place, _) in of_listeners.iter().enumerate().filter(|(_, is_ready)| **is_ready) {
            self.accept(place, now)?;
        }
        Ok(())
    }

    fn accept(&mut self, listener: usize, now: Instant) -> io::Result<()> {
        for _ in 0..ACCEPTED_AT_ONCE {
            let Some(listener) = self.listeners.get(listener) else { return Ok(()) };
            match listener.accept() {
                Ok((tcp, address)) => {
                    if let Err(why) = self.admit(tcp, address, now) {
                        self.events.push_back(Event::Ended { peer: address, why });
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                // The peer has left already.
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::Interrupted | ErrorKind::ConnectionAborted
                    ) => {}
                Err(error) => {
                    self.accept_after = Some(now + ACCEPT_PAUSE);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn admit(
        &mut self,
        tcp: TcpStream,
        address: SocketAddr,
        now: Instant,
    ) -> Result<(), PeerError> {
        let ip = address.ip().to_canonical();
        let of_address = |peer: &&Peer| peer.address.ip().to_canonical() == ip;
        if !(self.admits)(ip) {
            return Err(PeerError::Address);
        }
        if self.peers.len() >= self.limits.peers {
            return Err(PeerError::TooMany);
        }
        if self.peers.values().filter(of_address).count() >= self.limits.peers_per_address {
            return Err(PeerError::TooManyOfAddress);
        }
        let session = Session::new(Role::Pull, self.limits.message_bytes);
        let stream = Stream::new(tcp, session)?;
        self.peers.insert(self.next, Peer { stream, address, connected: now });
        self.ready.push_back(self.next);
        self.next += 1;
        Ok(())
    }

    /// Reads a peer once.
    fn read(&mut self, number: u64) {
        let Some(peer) = self.peers.get_mut(&number) else { return };
        let (address, events) = (peer.address, &mut self.events);
        let mut each = |bytes| events.push_back(Event::Message { peer: address, bytes });
        self.unfinished -= peer.stream.session.unfinished();
        let result = peer.stream.turn(&mut self.buffer, &mut each);
        self.unfinished += peer.stream.session.unfinished();
        if let Err(why) = result {
            self.end(number, why);
        }
        while self.unfinished > self.limits.unfinished_bytes {
            let largest = self.peers.iter().max_by_key(|(_, it)| it.stream.session.unfinished());
            let Some((number, _)) = largest else { return };
            self.end(*number, PeerError::Memory);
        }
    }

    fn end_slow_handshakes(&mut self, now: Instant) {
        let is_slow = |peer: &Peer| {
            !peer.stream.session.is_open() && now >= peer.connected + self.limits.handshake
        };
        let slow = self.peers.iter().filter(|(_, peer)| is_slow(peer));
        let slow: Vec<u64> = slow.map(|(number, _)| *number).collect();
        slow.into_iter().for_each(|number| self.end(number, PeerError::Handshake));
    }

    fn end(&mut self, number: u64, why: PeerError) {
        let Some(peer) = self.peers.remove(&number) else { return };
        self.unfinished -= peer.stream.session.unfinished();
        if why != PeerError::Closed {
            self.events.push_back(Event::Ended { peer: peer.address, why });
        }
    }
}
