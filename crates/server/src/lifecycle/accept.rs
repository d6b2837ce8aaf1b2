//! Accepts, counts, limits and serves connections, and identifies their peers.

use crate::app::App;
use crate::auth::certificate::common_name;
use crate::auth::connection::Connection;
use crate::auth::peer::{Ends, SocketOwners};
use crate::common::counts::{Arrival, Break};
use crate::common::limits::Limits;
use crate::common::tasks::{Tasks, stopped};
use crate::common::timed::Timed;
use crate::http::connection_limits::Peer;
use axum::Router;
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// Pause when the system has no more descriptors or memory for a connection.
const EXHAUSTED_WAIT: Duration = Duration::from_millis(100);

/// The shared state that serves connections.
#[derive(Clone, Debug)]
pub(crate) struct Serving {
    pub(crate) app: Arc<App>,
    pub(crate) router: Router,
    pub(crate) owners: SocketOwners,
    pub(crate) tasks: Arc<Tasks>,
}

/// Accepts connections until the server stops.
pub(crate) async fn accept(listener: TcpListener, serving: Serving) {
    let mut stopping = serving.app.stopping.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stopped(&mut stopping) => return,
        };
        match accepted {
            Ok((stream, theirs)) => arrived(stream, theirs, &serving),
            Err(error) if of_one_connection(&error) => {}
            Err(error) => {
                log::warn!("no connection can be accepted: {error}");
                tokio::time::sleep(EXHAUSTED_WAIT).await;
            }
        }
    }
}

/// Whether an error of accept(2) concerns only one connection, which ended before it was accepted.
fn of_one_connection(error: &io::Error) -> bool {
    let kinds = [
        io::ErrorKind::ConnectionAborted,
        io::ErrorKind::ConnectionReset,
        io::ErrorKind::ConnectionRefused,
        io::ErrorKind::Interrupted,
    ];
    kinds.contains(&error.kind())
}

fn arrived(stream: TcpStream, theirs: SocketAddr, serving: &Serving) {
    let Some(seat) = serving.app.seats.take() else {
        serving.app.counts.arrivals.add(Arrival::Full, 1);
        log::warn!(
            "all {} connections are in use; raise `connections_max` to allow more",
            serving.app.seats.max()
        );
        return;
    };
    let of_connection = serving.clone();
    serving.tasks.start("connection", async move {
        meet(stream, theirs, of_connection).await;
        drop(seat);
    });
}

/// Identifies the peer of a connection, and serves it.
async fn meet(stream: TcpStream, theirs: SocketAddr, serving: Serving) {
    let Ok(ours) = stream.local_addr() else { return };
    // Responses are small and urgent. A socket that does not support the option still works.
    stream.set_nodelay(true).ok();
    let ends = Ends { theirs, ours };
    let local = theirs.ip().to_canonical().is_loopback();
    let owner = if local { serving.owners.of(&stream, ends).await } else { None };
    let arrivals = &serving.app.counts.arrivals;
    // The owner found belongs to this connection only if its socket still holds its ports: see
    // docs/decisions/0019-local-callers.md. A socket that its peer has reset does not, and has no peer address.
    if stream.peer_addr().is_err() {
        arrivals.add(Arrival::Gone, 1);
        return;
    }
    let peer = match (owner, local) {
        (Some(uid), _) => Peer::User(uid),
        (None, true) => Peer::Unknown,
        (None, false) => Peer::Address(theirs.ip().to_canonical()),
    };
    let Some(_place) = serving.app.seats.take_of(peer) else {
        arrivals.add(Arrival::FullForPeer, 1);
        let most = serving.app.seats.max_of_one();
        log::warn!("{peer} has {most} connections; `connections_per_peer_max` allows more");
        return;
    };
    // Without this setting the owner only limits connections: a user must not take those of a proxy or of root.
    let caller = owner.filter(|_| serving.app.live().access.by_kernel);
    let mut connection = Connection { ends, owner: caller, socket_owner: owner, certificate: None };
    let stream = Timed::new(stream, serving.app.limits.write_time);
    let tls = serving.app.live().tls.clone();
    match tls {
        None => {
            arrivals.add(Arrival::Served, 1);
            serve(stream, connection, &serving).await;
        }
        Some(config) => {
            let handshake = TlsAcceptor::from(config).accept(stream);
            let limit = serving.app.limits.handshake_time;
            let Ok(Ok(stream)) = tokio::time::timeout(limit, handshake).await else {
                arrivals.add(Arrival::Handshake, 1);
                return;
            };
            let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
            if let Some(certificate) = shown {
                // A certificate without a name identifies no agent, rather than every agent.
                let Some(name) = common_name(certificate) else {
                    arrivals.add(Arrival::Handshake, 1);
                    return;
                };
                connection.certificate = Some(name.into());
            }
            arrivals.add(Arrival::Served, 1);
            serve(stream, connection, &serving).await;
        }
    }
}

/// Serves a connection's requests, one after another, until it ends or the server stops.
async fn serve<S>(stream: S, connection: Connection, serving: &Serving)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let requests =
        Requests { router: TowerToHyperService::new(serving.router.clone()), connection };
    let http = http(&serving.app.limits).serve_connection(TokioIo::new(stream), requests);
    tokio::pin!(http);
    let mut stopping = serving.app.stopping.clone();
    let ended = tokio::select! {
        ended = &mut http => ended,
        () = stopped(&mut stopping) => {
            http.as_mut().graceful_shutdown();
            http.await
        }
    };
    if let Err(error) = ended {
        serving.app.counts.breaks.add(kind(&error), 1);
        log::debug!("a connection broke: {error}");
    }
}

fn http(limits: &Limits) -> http1::Builder {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(limits.header_time)
        .max_buf_size(limits.header_bytes_max);
    http
}

fn kind(error: &hyper::Error) -> Break {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>()
            && error.kind() == io::ErrorKind::TimedOut
        {
            return Break::WriteTimeout;
        }
        cause = error.source();
    }
    match error {
        _ if error.is_parse() => Break::Malformed,
        _ if error.is_timeout() => Break::HeaderTimeout,
        _ => Break::Lost,
    }
}

/// The router, which attaches the connection to each request.
struct Requests {
    router: TowerToHyperService<Router>,
    connection: Connection,
}

type Answered =
    <TowerToHyperService<Router> as hyper::service::Service<axum::http::Request<Incoming>>>::Future;

impl hyper::service::Service<axum::http::Request<Incoming>> for Requests {
    type Response = Response;
    type Error = std::convert::Infallible;
    type Future = Answered;

    fn call(&self, mut request: axum::http::Request<Incoming>) -> Answered {
        request.extensions_mut().insert(self.connection.clone());
        self.router.call(request)
    }
}
