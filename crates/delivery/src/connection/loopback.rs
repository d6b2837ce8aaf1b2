//! Connections to a server. On loopback without TLS, the client checks which user owns the other end before it
//! sends anything: any user could listen on the port, and a request contains a token.
//!
//! A server with TLS authenticates with its certificate. `docs/decisions/0019-local-callers.md` explains why the
//! owner found is that of this connection.

use config::place::is_private;
use kernel::Root;
use kernel::tcp_owners::{Ends, owners};
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;
use ureq::Error;
use ureq::unversioned::transport::{
    Buffers, ConnectProxyConnector, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout,
    RustlsConnector, TcpConnector, Transport,
};

/// Folder that systemd creates for the unit `jobmeter-server.service`. Its owner is the server's user.
const UNIT_FOLDER: &str = "jobmeter-server";
/// Parent of that folder.
const RUN: &str = "/run";
/// Maximum time for a program to accept the connection, if the request has no time limit.
const ACCEPT_TIME_MAX: Duration = Duration::from_secs(5);
/// Shortest and longest pause between two reads of the kernel's socket list, until a program accepts the
/// connection.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(50)];

/// Creates a connector for the server at a host. `server_uids` are users that may own a server on loopback, besides
/// root, the caller and the owner of the unit's folder.
pub fn connector(host: &str, server_uids: &[u32]) -> impl Connector<(), Out: Transport> {
    let own = rustix::process::geteuid().as_raw();
    let users = [0, own]
        .into_iter()
        .chain(unit_owner(Path::new(RUN), 0))
        .chain(server_uids.iter().copied());
    let checked = Checked { host: host.into(), users: users.collect() };
    ().chain(ConnectProxyConnector::default()).chain(checked).chain(RustlsConnector::default())
}

/// Owner of the unit's folder, if only root can have created it: root owns `run`, and others cannot write to it.
fn unit_owner(run: &Path, root: u32) -> Option<u32> {
    let about = std::fs::symlink_metadata(run.join(UNIT_FOLDER)).ok()?;
    (about.is_dir() && is_private(run, root)).then(|| about.uid())
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
        let local = details.addrs.iter().any(|address| address.ip().to_canonical().is_loopback());
        // A proxy on loopback is not the server.
        let to_server = details.uri.host() == Some(&*self.host);
        if chained.is_some() || details.needs_tls() || !local || !to_server {
            return Ok(TcpConnector::default().connect(details, chained)?.map(Either::A));
        }
        let wait = details.timeout.not_zero().map_or(ACCEPT_TIME_MAX, |wait| *wait);
        let mut last = Error::HostNotFound;
        for address in details.addrs.iter() {
            let connected = TcpStream::connect_timeout(address, wait).and_then(|stream| {
                if address.ip().to_canonical().is_loopback() {
                    self.check(&stream, wait.min(ACCEPT_TIME_MAX))?;
                }
                stream.set_nodelay(details.config.no_delay())?;
                Ok(stream)
            });
            match connected {
                Ok(stream) => {
                    let config = details.config;
                    let sizes = (config.input_buffer_size(), config.output_buffer_size());
                    let buffers = LazyBuffers::new(sizes.0, sizes.1);
                    return Ok(Some(Either::B(Plain { stream, buffers })));
                }
                Err(error) => last = error.into(),
            }
        }
        Err(last)
    }
}

impl Checked {
    /// Checks that a trusted user owns the other end.
    fn check(&self, stream: &TcpStream, wait: Duration) -> io::Result<()> {
        let ends = Ends { theirs: stream.peer_addr()?, ours: stream.local_addr()? };
        let root = Root::live().map_err(io::Error::other)?;
        let ([mut pause, longest], mut waited) = (PAUSES, Duration::ZERO);
        let owner = loop {
            let owner = owners(&root, &[ends]).into_iter().next().flatten();
            if owner.is_some() || waited >= wait {
                break owner;
            }
            std::thread::sleep(pause);
            waited += pause;
            pause = (pause * 2).min(longest);
        };
        let at = ends.theirs;
        let (kind, why) = match owner {
            Some(user) if self.users.contains(&user) => return Ok(()),
            Some(user) => (
                ErrorKind::PermissionDenied,
                format!(
                    "the server at {at} belongs to user {user}, not to root or you; nothing was sent; if you trust \
                     that user, set `server_uids = [{user}]`"
                ),
            ),
            None => (
                ErrorKind::TimedOut,
                format!(
                    "no program accepted the connection to {at}, or /proc/net/tcp does not show it"
                ),
            ),
        };
        Err(io::Error::new(kind, why))
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

    #[test]
    fn the_owner_of_the_other_end_decides() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let own = rustix::process::geteuid().as_raw();
        let trusting = |users: &[u32]| Checked { host: "localhost".into(), users: users.to_vec() };
        let short = Duration::from_millis(30);
        // Until the program accepts, the kernel reports root as the owner, whichever user listens.
        let error = trusting(&[0, own]).check(&client, short).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        let _served = listener.accept().unwrap();
        trusting(&[own]).check(&client, short).unwrap();
        let error = trusting(&[own + 1]).check(&client, short).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        assert!(error.to_string().contains(&format!("belongs to user {own}")), "{error}");
    }

    #[test]
    fn the_units_folder_names_a_user_only_where_root_alone_could_make_it() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let own = rustix::process::geteuid().as_raw();
        assert_eq!(unit_owner(dir.path(), own), None, "no folder");
        std::fs::create_dir(dir.path().join(UNIT_FOLDER)).unwrap();
        assert_eq!(unit_owner(dir.path(), own), Some(own));
        assert_eq!(unit_owner(dir.path(), own + 1), None, "of another user");
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o1777)).unwrap();
        assert_eq!(unit_owner(dir.path(), own), None, "everybody writes there");
    }

    #[test]
    fn a_connection_of_a_listener_that_is_gone_has_no_owner() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        drop(listener);
        let own = rustix::process::geteuid().as_raw();
        let checked = Checked { host: "localhost".into(), users: vec![0, own] };
        assert!(checked.check(&client, Duration::from_millis(30)).is_err());
    }
}
