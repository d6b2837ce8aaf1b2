//! Sockets of PostgreSQL's protocol, and their connections.

use crate::app::App;
use crate::auth::connection::Connection;
use crate::auth::peer::{Ends, SocketOwners};
use crate::common::counts::Arrival;
use crate::common::tasks::{Tasks, stopped};
use crate::common::timed::Timed;
use crate::http::connection_limits::Peer;
use crate::lifecycle::pg::startup::{Greeted, meet};
use crate::lifecycle::server::StartError;
use config::{PgAddress, PgSettings};
use kernel::Root;
use pg_wire::backend::{Messages, Report};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// Pause when the system has no more descriptors or memory for a connection.
const EXHAUSTED_WAIT: Duration = Duration::from_millis(100);
/// Port in the name of a socket without an address beside it, as in PostgreSQL.
const DEFAULT_PORT: u16 = 5432;
/// The ends of a connection by a unix socket, which has no addresses.
const LOCAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// The sockets of PostgreSQL's protocol.
#[derive(Debug, Default)]
pub(crate) struct PgListener {
    tcp: Vec<TcpListener>,
    unix: Option<(UnixListener, SocketFile)>,
}

/// A socket in the file system, which is removed when the server stops.
#[derive(Debug)]
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0) {
            log::warn!("{}: {error}", self.0.display());
        }
    }
}

/// What a connection needs.
#[derive(Clone, Debug)]
pub(crate) struct PgServing {
    pub(crate) app: Arc<App>,
    pub(crate) owners: SocketOwners,
    pub(crate) root: Root,
    tasks: Arc<Tasks>,
}

impl PgListener {
    /// Listens on the configured addresses and in the folder.
    pub(crate) fn bind(settings: &PgSettings) -> Result<Self, StartError> {
        let mut listener = Self::default();
        let mut port = None;
        for place in &settings.listen {
            let PgAddress::Tcp(address) = place else { continue };
            let bound = crate::http::listen::listen(*address, true);
            let bound = bound.and_then(|bound| Ok((bound.local_addr()?, bound)));
            let failed = |error| StartError::PgListen { place: address.to_string(), error };
            let (address, bound) = bound.map_err(failed)?;
            log::info!("PostgreSQL's protocol: listening on {address}");
            port.get_or_insert(address.port());
            listener.tcp.push(bound);
        }
        for place in &settings.listen {
            let PgAddress::Folder(folder) = place else { continue };
            let path = folder.join(format!(".s.PGSQL.{}", port.unwrap_or(DEFAULT_PORT)));
            let failed = |error| StartError::PgListen { place: path.display().to_string(), error };
            listener.unix = Some((socket(&path).map_err(failed)?, SocketFile(path.clone())));
            log::info!("PostgreSQL's protocol: listening on {}", path.display());
        }
        Ok(listener)
    }
}

/// Listens on a socket that every user of this machine may open. Replaces the socket of a server that has ended.
fn socket(path: &Path) -> io::Result<UnixListener> {
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => return Err(io::Error::new(io::ErrorKind::AddrInUse, "another server uses it")),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path)?;
        }
        Err(_) => {}
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777))?;
    Ok(listener)
}

/// Starts the tasks that accept connections.
pub(crate) fn serve_pg(app: &Arc<App>, tasks: &Arc<Tasks>, listener: PgListener, root: Root) {
    if listener.tcp.is_empty() && listener.unix.is_none() {
        return;
    }
    let (owners, answering) = SocketOwners::new(root.clone());
    tasks.start("owners of sessions", answering);
    let serving = PgServing { app: Arc::clone(app), owners, root, tasks: Arc::clone(tasks) };
    for tcp in listener.tcp {
        tasks.start("accept sessions", accept_tcp(tcp, serving.clone()));
    }
    if let Some((unix, file)) = listener.unix {
        tasks.start("accept sessions", accept_unix(unix, file, serving));
    }
}

async fn accept_tcp(listener: TcpListener, serving: PgServing) {
    let mut stopping = serving.app.stopping.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stopped(&mut stopping) => return,
        };
        match accepted {
            Ok((stream, theirs)) => {
                let serve = move |stream, serving| by_tcp(stream, theirs, serving);
                serving.start(stream, |stream, text| drop(stream.try_write(text)), serve);
            }
            Err(error) => exhausted(&error).await,
        }
    }
}

async fn accept_unix(listener: UnixListener, file: SocketFile, serving: PgServing) {
    let mut stopping = serving.app.stopping.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stopped(&mut stopping) => break,
        };
        match accepted {
            Ok((stream, _)) => {
                serving.start(stream, |stream, text| drop(stream.try_write(text)), by_unix);
            }
            Err(error) => exhausted(&error).await,
        }
    }
    drop(file);
}

async fn exhausted(error: &io::Error) {
    log::warn!("no session can be accepted: {error}");
    tokio::time::sleep(EXHAUSTED_WAIT).await;
}

impl PgServing {
    /// Serves a connection, if the limit permits one more; otherwise sends the reason and closes it.
    fn start<S: Send + 'static, F: Future<Output = ()> + Send + 'static>(
        &self,
        stream: S,
        reject: impl Fn(&S, &[u8]),
        serve: impl FnOnce(S, Self) -> F,
    ) {
        let pg = &self.app.pg;
        let Some(seat) = pg.seats.take() else {
            pg.counts.arrivals.add(Arrival::Full, 1);
            reject(&stream, &too_many());
            return;
        };
        let serving = serve(stream, self.clone());
        self.tasks.start("session", async move {
            serving.await;
            drop(seat);
        });
    }
}

/// The error of a connection beyond the limit.
fn too_many() -> Vec<u8> {
    let mut messages = Messages::default();
    messages.report(&Report::fatal("53300", "the server has too many sessions; retry later"));
    messages.0
}

async fn by_tcp(stream: TcpStream, theirs: SocketAddr, serving: PgServing) {
    let Ok(ours) = stream.local_addr() else { return };
    stream.set_nodelay(true).ok();
    let ends = Ends { theirs, ours };
    let is_local = theirs.ip().to_canonical().is_loopback();
    let owner = if is_local { serving.owners.of(&stream, ends).await } else { None };
    // As for HTTP: the owner found belongs to this connection only if its socket still holds its ports.
    if stream.peer_addr().is_err() {
        serving.app.pg.counts.arrivals.add(Arrival::Gone, 1);
        return;
    }
    let peer = match (owner, is_local) {
        (Some(uid), _) => Peer::User(uid),
        (None, true) => Peer::Unknown,
        (None, false) => Peer::Address(theirs.ip().to_canonical()),
    };
    let socket = stream.as_fd().try_clone_to_owned().ok();
    let greeted = Greeted { ends, owner, is_local, is_unix: false, socket };
    limited(stream, peer, greeted, serving).await;
}

async fn by_unix(stream: UnixStream, serving: PgServing) {
    let owner = stream.peer_cred().ok().map(|peer| peer.uid());
    let ends = Ends { theirs: LOCAL, ours: LOCAL };
    let socket = stream.as_fd().try_clone_to_owned().ok();
    let greeted = Greeted { ends, owner, is_local: true, is_unix: true, socket };
    let peer = owner.map_or(Peer::Unknown, Peer::User);
    limited(stream, peer, greeted, serving).await;
}

/// Serves a connection if its peer has one more.
async fn limited<S>(stream: S, peer: Peer, greeted: Greeted, serving: PgServing)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + Sync + 'static,
{
    let Some(_place) = serving.app.pg.seats.take_of(peer) else {
        serving.app.pg.counts.arrivals.add(Arrival::FullForPeer, 1);
        log::warn!("{peer} has too many sessions; `pg.connections_per_user_max` allows more");
        return;
    };
    let stream = Timed::new(stream, serving.app.limits.write_time);
    meet(Box::new(stream), greeted, &serving).await;
}

impl Greeted {
    /// The connection as the authentication of requests knows it. The kernel's user counts only where the settings
    /// permit it.
    pub(super) fn connection(&self, by_kernel: bool) -> Connection {
        let owner = self.owner.filter(|_| by_kernel);
        Connection { ends: self.ends, owner, socket_owner: self.owner, certificate: None }
    }
}
