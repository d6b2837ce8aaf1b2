//! Connections to a server. On loopback without TLS, the client checks which user owns the other end before it
//! sends anything: any user could listen on the port, and a request contains a token.
//!
//! A server with TLS authenticates with its certificate. `docs/decisions/0019-local-callers.md` explains why the
//! owner found is that of this connection.

use kernel::Root;
use kernel::tcp_owners::{Ends, owners};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use ureq::Error;
use ureq::unversioned::transport::{
    Buffers, ConnectProxyConnector, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout,
    RustlsConnector, TcpConnector, Transport,
};

/// Maximum time for a program to accept the connection, if the request has no time limit.
const ACCEPT_TIME_MAX: Duration = Duration::from_secs(5);
/// Shortest and longest pause between two reads of the kernel's socket list, until a program accepts the
/// connection.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(50)];

/// Creates a connector for the server at a host. `server_uids` are users that may own a server on loopback, besides
/// root, the caller and the owner of the unit's folder.
pub fn connector(host: &str, server_uids: &[u32]) -> impl Connector<(), Out: Transport> {
    let own = rustix::process::geteuid().as_raw();
    let users =
        [0, own].into_iter().chain(config::paths::unit_owner()).chain(server_uids.iter().copied());
    let checked = Checked { host: host.into(), users: users.collect() };
    ().chain(ConnectProxyConnector::default()).chain(checked).chain(RustlsConnector::default())
}

/// Opens connections, and checks those within this machine.
#[derive(Debug)]
struct Checked {
    host: Box<str>,
    users: Vec<u32>,
}

impl<In: Transport> Connector<In> for Checked {
    type Out = Either<<TcpConnector as Connector<In>>::Out, Plain>;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, Error> {
        let (within, beyond): (Vec<SocketAddr>, Vec<SocketAddr>) =
            details.addrs.iter().partition(|address| is_within(**address));
        // A proxy on loopback is not the server.
        let to_server = details.uri.host() == Some(&*self.host);
        if chained.is_some() || details.needs_tls() || within.is_empty() || !to_server {
            return Ok(TcpConnector::default().connect(details, chained)?.map(Either::A));
        }
        let wait = details.timeout.not_zero().map_or(ACCEPT_TIME_MAX, |wait| *wait);
        let connected = self.connect_within(&within, wait.min(ACCEPT_TIME_MAX)).or_else(|error| {
            let mut beyond = beyond.iter();
            beyond.find_map(|at| TcpStream::connect_timeout(at, wait).ok()).ok_or(error)
        });
        let (stream, config) = (connected?, details.config);
        stream.set_nodelay(config.no_delay())?;
        let sizes = (config.input_buffer_size(), config.output_buffer_size());
        let buffers = LazyBuffers::new(sizes.0, sizes.1);
        Ok(Some(Either::B(Plain { stream, buffers })))
    }
}

/// Tests whether a connection to an address stays within this machine. Linux connects to the unspecified address
/// as to loopback.
fn is_within(address: SocketAddr) -> bool {
    let ip = address.ip().to_canonical();
    ip.is_loopback() || ip.is_unspecified()
}

/// Starts to connect, without waiting.
fn start(address: SocketAddr) -> io::Result<TcpStream> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket.into()),
        Err(error) => Err(error.into()),
    }
}

impl Checked {
    /// Connects to all addresses at once. Returns the first connection with a trusted user at the other end: a
    /// listener of another user on one address (`localhost` often has two) then neither receives a request nor delays it.
    fn connect_within(&self, addresses: &[SocketAddr], wait: Duration) -> io::Result<TcpStream> {
        let root = Root::live().map_err(io::Error::other)?;
        let ([mut pause, longest], mut waited) = (PAUSES, Duration::ZERO);
        let mut last = io::Error::from(ErrorKind::AddrNotAvailable);
        // The most useful error is that of another user's listener.
        let mut note = |error: io::Error| {
            if last.kind() != ErrorKind::PermissionDenied {
                last = error;
            }
        };
        let started = addresses.iter().map(|at| Ok((*at, start(*at)?)));
        let mut open: Vec<(SocketAddr, TcpStream)> =
            started.filter_map(|one: io::Result<_>| one.map_err(&mut note).ok()).collect();
        loop {
            let mut undecided = Vec::with_capacity(open.len());
            for (at, stream) in open {
                match self.check(&root, &stream) {
                    Ok(true) => return stream.set_nonblocking(false).map(|()| stream),
                    Ok(false) => undecided.push((at, stream)),
                    Err(error) => note(error),
                }
            }
            if undecided.is_empty() || waited >= wait {
                for (at, _) in undecided {
                    let why = format!(
                        "no program accepted the connection to {at}, or /proc/net/tcp does not show it"
                    );
                    note(io::Error::new(ErrorKind::TimedOut, why));
                }
                return Err(last);
            }
            std::thread::sleep(pause);
            waited += pause;
            pause = (pause * 2).min(longest);
            open = undecided;
        }
    }

    /// Returns whether a trusted user owns the other end; false while no program has accepted the connection.
    fn check(&self, root: &Root, stream: &TcpStream) -> io::Result<bool> {
        if let Some(error) = stream.take_error()? {
            return Err(error);
        }
        let theirs = match stream.peer_addr() {
            Err(error) if error.kind() == ErrorKind::NotConnected => return Ok(false),
            theirs => theirs?,
        };
        let ends = Ends { theirs, ours: stream.local_addr()? };
        match owners(root, &[ends]).into_iter().next().flatten() {
            None => Ok(false),
            Some(user) if self.users.contains(&user) => Ok(true),
            Some(user) => Err(io::Error::new(
                ErrorKind::PermissionDenied,
                format!(
                    "the server at {theirs} belongs to user {user}, not to root or to you; nothing \
                     was sent; if you trust that user, set `server_uids = [{user}]`"
                ),
            )),
        }
    }
}

/// A connection without TLS.
#[derive(Debug)]
struct Plain {
    stream: TcpStream,
    buffers: LazyBuffers,
}

impl Transport for Plain {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        let timeout = timeout.for_write();
        let written = limit(&timeout).and_then(|limit| {
            self.stream.set_write_timeout(limit)?;
            let output = self.buffers.output().get(..amount).unwrap_or_default();
            self.stream.write_all(output)
        });
        written.map_err(|error| or_timeout(error, &timeout))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        let timeout = timeout.for_read();
        let read = limit(&timeout).and_then(|limit| {
            self.stream.set_read_timeout(limit)?;
            loop {
                match self.stream.read(self.buffers.input_append_buf()) {
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    read => break read,
                }
            }
        });
        let amount = read.map_err(|error| or_timeout(error, &timeout))?;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        // An idle connection has nothing to read. Any data, or its end, makes the connection unusable.
        let idle = self.stream.set_nonblocking(true).and_then(|()| self.stream.peek(&mut [0]));
        let idle = idle.is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
        idle && self.stream.set_nonblocking(false).is_ok()
    }
}

/// Remaining time for a transfer.
fn limit(timeout: &NextTimeout) -> io::Result<Option<Duration>> {
    if timeout.after.is_zero() {
        return Err(ErrorKind::TimedOut.into());
    }
    Ok(timeout.not_zero().map(|left| *left))
}

fn or_timeout(error: io::Error, timeout: &NextTimeout) -> Error {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Error::Timeout(timeout.reason),
        _ => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    const SHORT: Duration = Duration::from_millis(30);

    fn trusting(users: &[u32]) -> Checked {
        Checked { host: "localhost".into(), users: users.to_vec() }
    }

    fn own() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    /// Listens on a port of 127.0.0.1 that is free on `[::1]`; returns both addresses, `[::1]` first as most
    /// machines resolve `localhost`.
    fn two_addresses() -> (TcpListener, [SocketAddr; 2]) {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = server.local_addr().unwrap();
        (server, [SocketAddr::new(std::net::Ipv6Addr::LOCALHOST.into(), at.port()), at])
    }

    #[test]
    fn the_owner_of_the_other_end_decides() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        // Until the program accepts, the kernel reports root as the owner, whichever user listens.
        let error = trusting(&[0, own()]).connect_within(&[at], SHORT).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        let served =
            std::thread::spawn(move || [listener.accept(), listener.accept(), listener.accept()]);
        trusting(&[own()]).connect_within(&[at], ACCEPT_TIME_MAX).unwrap();
        let error = trusting(&[own() + 1]).connect_within(&[at], ACCEPT_TIME_MAX).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        assert!(error.to_string().contains(&format!("belongs to user {}", own())), "{error}");
        drop(served.join().unwrap());
    }

    #[test]
    fn a_connection_of_a_listener_that_is_gone_has_no_owner() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        drop(listener);
        let checked = trusting(&[0, own()]).check(&Root::live().unwrap(), &client);
        assert!(!checked.is_ok_and(|trusted| trusted));
    }

    #[test]
    fn a_listener_that_does_not_accept_on_the_other_address_of_localhost_delays_nobody() {
        let (server, [v6, v4]) = two_addresses();
        let Ok(silent) = TcpListener::bind(v6) else { return };
        // With a backlog of one connection that is full, the kernel does not even answer a new one.
        rustix::net::listen(&silent, 0).unwrap();
        let _full = [TcpStream::connect(v6), start(v6), start(v6)];
        let served = std::thread::spawn(move || server.accept());
        // Without an address that works, this would wait for an hour.
        let wait = Duration::from_secs(3600);
        let stream = trusting(&[own()]).connect_within(&[v6, v4], wait).unwrap();
        assert_eq!(stream.peer_addr().unwrap(), v4);
        served.join().unwrap().unwrap();
    }

    #[test]
    fn another_users_listener_on_the_other_address_of_localhost_receives_nothing() {
        if own() != 0 {
            eprintln!("skipped: only root can listen as two users");
            return;
        }
        let (server, [v6, v4]) = two_addresses();
        let (send, bound) = std::sync::mpsc::sync_channel(1);
        let squatter = std::thread::spawn(move || {
            let user = rustix::thread::Uid::from_raw(65_534);
            // Of this thread alone; the owner of a socket is the thread that creates it.
            rustix::thread::set_thread_res_uid(user, user, user).unwrap();
            let Ok(listener) = TcpListener::bind(v6) else { return Vec::new() };
            send.send(()).unwrap();
            let read = |_| {
                let mut got = Vec::new();
                listener.accept().unwrap().0.read_to_end(&mut got).ok();
                got
            };
            (0..2).flat_map(read).collect()
        });
        if bound.recv().is_err() {
            return;
        }
        // The server is down, then it is there.
        let error = trusting(&[0]).connect_within(&[v6], ACCEPT_TIME_MAX).unwrap_err();
        assert!(error.to_string().contains("belongs to user 65534"), "{error}");
        let served = std::thread::spawn(move || server.accept());
        let mut stream = trusting(&[0]).connect_within(&[v6, v4], ACCEPT_TIME_MAX).unwrap();
        assert_eq!(stream.peer_addr().unwrap(), v4);
        stream.write_all(b"a token").unwrap();
        served.join().unwrap().unwrap();
        drop(stream);
        assert_eq!(squatter.join().unwrap(), b"");
    }

    #[test]
    fn the_unspecified_address_is_checked_as_loopback() {
        for (text, within) in [
            ("127.0.0.1:1", true),
            ("[::1]:1", true),
            ("0.0.0.0:1", true),
            ("[::]:1", true),
            ("[::ffff:127.0.0.2]:1", true),
            ("192.0.2.1:1", false),
        ] {
            assert_eq!(is_within(text.parse().unwrap()), within, "{text}");
        }
    }
}
