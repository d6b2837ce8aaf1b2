//! Requests over HTTP/1.1 with limits, and TLS as the description says.

use super::bounded_stream::{Allowance, BoundedStream};
use super::reading::Failure;
use super::tls;
use crate::descriptions::{Target, TlsVerification};
use crate::protocols::Protocol;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use flate2::read::GzDecoder;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1::SendRequest;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, LOCATION};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{CertificateError, ClientConfig};
use std::error::Error;
use std::io::{self, Read as _};
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Bytes until a response begins. The first bytes of the body come with it.
const HEAD_BYTES_MAX: usize = 1 << 20;
/// Redirects of a request.
const REDIRECTS_MAX: usize = 3;

/// A body with its type.
#[derive(Debug)]
pub(super) struct Body {
    pub(super) content_type: String,
    pub(super) bytes: Vec<u8>,
}

/// An HTTP client of one target. It keeps one connection with TLS open between requests: a BMC needs about a second for
/// a new one. Others are closed: a connection has 25 KiB of buffers, and a poller thousands of them.
pub(super) struct Client {
    target: Arc<Target>,
    connection: Option<Connection>,
    /// The TLS configuration of the connection, while requests succeed.
    tls: Option<(TlsVerification, Arc<ClientConfig>)>,
}

struct Connection {
    verification: TlsVerification,
    sender: SendRequest<Full<Bytes>>,
    allowance: Allowance,
    /// Aborted with the connection.
    _task: JoinSet<()>,
}

impl Connection {
    /// Sends a request. Until its response begins, the target may send as much as a head needs.
    async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
        bytes_max: usize,
    ) -> hyper::Result<Response<Incoming>> {
        self.allowance.set(HEAD_BYTES_MAX);
        let response = self.sender.send_request(request).await;
        // The framing of a body in small chunks needs a multiple of its bytes.
        self.allowance.set(bytes_max.saturating_mul(8));
        response
    }
}

/// A request.
#[derive(Clone)]
pub(super) struct Call<'a> {
    pub(super) method: Method,
    pub(super) path: &'a str,
    /// The types of the body that are accepted, and its bytes.
    pub(super) accept: &'a str,
    pub(super) bytes_max: usize,
    pub(super) authorization: Authorization<'a>,
    /// A JSON document; empty for none.
    pub(super) body: Bytes,
}

/// How a request names its user.
#[derive(Clone, Copy)]
pub(super) enum Authorization<'a> {
    /// Not at all.
    None,
    /// By the target's user and password, if it has a user.
    Basic,
    /// By the token of a Redfish session.
    Token(&'a str),
}

impl<'a> Call<'a> {
    /// GET of a path with the target's user.
    pub(super) fn get(path: &'a str, (accept, bytes_max): (&'a str, usize)) -> Self {
        let (authorization, body) = (Authorization::Basic, Bytes::new());
        Self { method: Method::GET, path, accept, bytes_max, authorization, body }
    }
}

/// A response. It has a body only if it is a success.
pub(super) struct Received {
    pub(super) status: StatusCode,
    headers: HeaderMap,
    pub(super) bytes: Vec<u8>,
    /// Whether the target has a user.
    has_user: bool,
}

impl Received {
    /// A header's value; empty if it is absent or not ASCII.
    pub(super) fn header(&self, name: &str) -> &str {
        header(&self.headers, name)
    }

    /// The body of a success.
    pub(super) fn into_body(self) -> Result<Body, Failure> {
        match self.status {
            status if status.is_success() => {
                let content_type = self.header(CONTENT_TYPE.as_str()).to_owned();
                Ok(Body { content_type, bytes: self.bytes })
            }
            status @ StatusCode::UNAUTHORIZED if !self.has_user => Err(Failure::denied(format!(
                "the target requires a user, and the URL has none: {status}"
            ))),
            status @ StatusCode::UNAUTHORIZED => {
                Err(Failure::rejected_user(format!("user or password is rejected: {status}")))
            }
            status @ StatusCode::FORBIDDEN => {
                Err(Failure::denied(format!("the target permits no reading of this: {status}")))
            }
            status => Err(Failure::broken(format!("the response is {status}"))),
        }
    }
}

impl Client {
    pub(super) fn new(target: &Arc<Target>) -> Self {
        Self { target: Arc::clone(target), connection: None, tls: None }
    }

    /// Sends a request. Redirects are followed to the same host only.
    pub(super) async fn follow(
        &mut self,
        verification: &TlsVerification,
        call: Call<'_>,
    ) -> Result<Received, Failure> {
        let mut path = call.path.to_owned();
        for _ in 0..=REDIRECTS_MAX {
            let received = self.send(verification, &Call { path: &path, ..call.clone() }).await?;
            if !received.status.is_redirection() {
                return Ok(received);
            }
            path = self.path_of(received.header(LOCATION.as_str()))?;
        }
        Err(Failure::broken(format!("more than {REDIRECTS_MAX} redirects")))
    }

    /// Sends a request.
    pub(super) async fn send(
        &mut self,
        verification: &TlsVerification,
        call: &Call<'_>,
    ) -> Result<Received, Failure> {
        let received = self.send_once(verification, call).await;
        if received.is_err() {
            self.tls = None;
        }
        received
    }

    /// The path of a URL of the target.
    pub(super) fn path_of(&self, location: &str) -> Result<String, Failure> {
        same_host(&self.target, location)
    }

    async fn send_once(
        &mut self,
        verification: &TlsVerification,
        call: &Call<'_>,
    ) -> Result<Received, Failure> {
        // Taken out: if time is up meanwhile, the connection ends with this future.
        let kept = self.connection.take().filter(|one| one.verification == *verification);
        // POST is not sent a second time.
        if let Some(mut connection) = kept.filter(|_| call.method != Method::POST)
            && let Ok(response) = connection.send(self.request(call)?, call.bytes_max).await
        {
            return self.receive_and_keep(connection, response, call.bytes_max).await;
        }
        // There was none, or the target has closed it.
        let mut connection = self.connect(verification).await?;
        let response = connection.send(self.request(call)?, call.bytes_max).await;
        let response = response.map_err(|error| Failure::unreachable(chain(&error)))?;
        self.receive_and_keep(connection, response, call.bytes_max).await
    }

    async fn receive_and_keep(
        &mut self,
        connection: Connection,
        response: Response<Incoming>,
        bytes_max: usize,
    ) -> Result<Received, Failure> {
        let received = receive(response, bytes_max).await?;
        let received = Received { has_user: self.target.user.is_some(), ..received };
        if received.status.is_success() && self.target.is_tls {
            self.connection = Some(connection);
        }
        Ok(received)
    }

    fn request(&self, call: &Call<'_>) -> Result<Request<Full<Bytes>>, Failure> {
        let target = &self.target;
        let (open, close) = if target.host.contains(':') { ("[", "]") } else { ("", "") };
        let mut request = Request::builder()
            .method(call.method.clone())
            .uri(call.path)
            .header("host", format!("{open}{}{close}:{}", target.host, target.port))
            .header("accept", call.accept)
            .header("accept-encoding", "gzip")
            .header("user-agent", concat!("jobmeter-poller/", env!("CARGO_PKG_VERSION")));
        request = match (call.authorization, &target.user) {
            (Authorization::Token(token), _) => request.header("x-auth-token", token),
            (Authorization::Basic, Some(user)) => {
                let password = target.password.as_ref().map_or("", |password| password.reveal());
                let both = STANDARD.encode(format!("{}:{password}", user.reveal()));
                request.header("authorization", format!("Basic {both}"))
            }
            (Authorization::Basic, None) | (Authorization::None, _) => request,
        };
        if !call.body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let request = request.body(Full::new(call.body.clone()));
        request.map_err(|_| Failure::broken("the path is not valid in HTTP"))
    }

    async fn connect(&mut self, verification: &TlsVerification) -> Result<Connection, Failure> {
        let target = &self.target;
        let tls = match &self.tls {
            _ if !target.is_tls => None,
            Some((of, config)) if of == verification => Some(Arc::clone(config)),
            _ => Some(tls::client(verification)?),
        };
        let stream = TcpStream::connect((&*target.host, target.port)).await;
        let stream =
            stream.map_err(|error| Failure::unreachable(format!("cannot connect: {error}")))?;
        let allowance = Allowance::default();
        let (sender, task) = match &tls {
            Some(config) => begin(connect_tls(target, config, stream).await?, &allowance).await?,
            None => begin(stream, &allowance).await?,
        };
        self.tls = tls.map(|config| (verification.clone(), config));
        Ok(Connection { verification: verification.clone(), sender, allowance, _task: task })
    }
}

pub(super) async fn connect_tls(
    target: &Target,
    config: &Arc<ClientConfig>,
    stream: TcpStream,
) -> Result<TlsStream<TcpStream>, Failure> {
    let name = ServerName::try_from(target.host.clone());
    let name = name.map_err(|_| Failure::denied("the host is no name of a certificate"))?;
    let stream = TlsConnector::from(Arc::clone(config)).connect(name, stream).await;
    stream.map_err(|error| {
        let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
        match cause {
            Some(rustls::Error::InvalidCertificate(why)) => {
                Failure::denied(format!("the certificate is not accepted: {}", reason(why)))
            }
            _ => Failure::unreachable(format!("cannot begin TLS: {error}")),
        }
    })
}

/// Why a certificate is not accepted, and what to do.
fn reason(error: &CertificateError) -> String {
    match error {
        CertificateError::UnknownIssuer => "no authority that is known here has signed it; name \
             one by `tls: {ca: FILE}`, or the certificate by `tls: {fingerprint: …}` or `jobmeter poll --pin`"
            .to_owned(),
        // rustls' error for a self-signed certificate that is its own authority.
        CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            "it is signed by itself, which `ca` cannot verify; name it by `tls: {fingerprint: …}` or \
             `jobmeter poll --pin`"
                .to_owned()
        }
        CertificateError::ApplicationVerificationFailure => {
            "its fingerprint differs from the one that is expected".to_owned()
        }
        other => other.to_string(),
    }
}

async fn begin(
    inner: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    allowance: &Allowance,
) -> Result<(SendRequest<Full<Bytes>>, JoinSet<()>), Failure> {
    let stream = BoundedStream { inner, allowance: allowance.clone() };
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (sender, connection) = handshake.map_err(|error| Failure::unreachable(chain(&error)))?;
    let mut task = JoinSet::new();
    task.spawn(async {
        // Its requests report the error.
        connection.await.ok();
    });
    Ok((sender, task))
}

async fn receive(response: Response<Incoming>, bytes_max: usize) -> Result<Received, Failure> {
    let (head, body) = response.into_parts();
    let (headers, bytes) = (head.headers, Vec::new());
    let mut received = Received { status: head.status, headers, bytes, has_user: false };
    if !received.status.is_success() {
        return Ok(received);
    }
    // A body of which the head states that it is too long is not read: many at once need much memory.
    if usize::try_from(body.size_hint().lower()).map_or(true, |bytes| bytes > bytes_max) {
        return Err(too_long(bytes_max));
    }
    let (mut body, mut bytes) = (Limited::new(body, bytes_max), Vec::new());
    while let Some(frame) = body.frame().await {
        match frame.map(|frame| frame.into_data().unwrap_or_default()) {
            Ok(data) => bytes.extend_from_slice(&data),
            // Some services end TLS without notice. A JSON document shows its own end.
            Err(error) if is_cut(&*error) && bytes.trim_ascii_end().ends_with(b"}") => break,
            Err(error) if error.is::<LengthLimitError>() => return Err(too_long(bytes_max)),
            Err(error) => return Err(Failure::broken(chain(&*error))),
        }
    }
    let is_packed = received.header(CONTENT_ENCODING.as_str()).eq_ignore_ascii_case("gzip");
    received.bytes = if is_packed { unpacked(&bytes, bytes_max)? } else { bytes };
    Ok(received)
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn unpacked(bytes: &[u8], bytes_max: usize) -> Result<Vec<u8>, Failure> {
    let mut unpacked = Vec::new();
    let most = u64::try_from(bytes_max).unwrap_or(u64::MAX);
    let read = GzDecoder::new(bytes).take(most + 1).read_to_end(&mut unpacked);
    read.map_err(|error| Failure::broken(format!("the body is no gzip: {error}")))?;
    if unpacked.len() > bytes_max { Err(too_long(bytes_max)) } else { Ok(unpacked) }
}

fn too_long(bytes_max: usize) -> Failure {
    Failure::broken(format!("the body has more than {} MiB", bytes_max >> 20))
}

/// The path of a redirect, if it leads to the same service.
fn same_host(target: &Target, location: &str) -> Result<String, Failure> {
    let scheme = if target.is_tls { "https" } else { "http" };
    let standard = if target.is_tls { 443 } else { 80 };
    let path = match location.strip_prefix(scheme).and_then(|rest| rest.strip_prefix("://")) {
        None if location.starts_with('/') && !location.starts_with("//") => Some(location),
        None => None,
        Some(rest) => {
            let (place, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            let is_same = place.eq_ignore_ascii_case(&format!("{}:{}", target.host, target.port))
                || (target.port == standard && place.eq_ignore_ascii_case(&target.host));
            is_same.then_some(if path.is_empty() { "/" } else { path })
        }
    };
    path.map(str::to_owned)
        .ok_or_else(|| Failure::broken("it redirects to another host, which is not followed"))
}

/// Reads bytes as a packed body, and as the place of a redirect, which leads to the same host only.
pub fn parse_any(bytes: &[u8]) {
    let body = unpacked(bytes, 1 << 16).unwrap_or_default();
    assert!(body.len() <= 1 << 16);
    let Ok(location) = std::str::from_utf8(bytes) else { return };
    let (host, user, password) = ("bmc".to_owned(), None, None);
    let protocol = Protocol::Json;
    let target = Target { protocol, is_tls: true, host, port: 8443, user, password, session: None };
    if let Ok(path) = same_host(&target, location) {
        assert!(path.starts_with('/') && location.ends_with(&*path) || path == "/");
    }
}

/// Whether a connection ended where more could follow.
fn is_cut(error: &(dyn Error + 'static)) -> bool {
    let of = |error: &io::Error| error.kind() == io::ErrorKind::UnexpectedEof;
    error.downcast_ref().is_some_and(of) || error.source().is_some_and(is_cut)
}

/// An error with its causes.
fn chain(error: &dyn Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {}", chain(cause)),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt as _;

    #[test]
    fn a_target_that_requires_a_user_is_not_one_that_rejects_it() {
        let why = |status, has_user| {
            let (headers, bytes) = (HeaderMap::new(), Vec::new());
            let received = Received { status, headers, bytes, has_user };
            received.into_body().err().map(|failure| failure.what.into_owned()).unwrap_or_default()
        };
        let none = "the target requires a user, and the URL has none: 401 Unauthorized";
        assert_eq!(why(StatusCode::UNAUTHORIZED, false), none);
        let rejected = "user or password is rejected: 401 Unauthorized";
        assert_eq!(why(StatusCode::UNAUTHORIZED, true), rejected);
    }

    #[test]
    fn redirects_to_other_hosts_are_errors() {
        let target = |is_tls, port| Target {
            protocol: Protocol::Json,
            is_tls,
            host: "bmc".into(),
            port,
            user: None,
            password: None,
            session: None,
        };
        let to = |target: &Target, location: &str| same_host(target, location).ok();
        let (plain, tls) = (target(false, 80), target(true, 8443));
        assert_eq!(to(&plain, "/redfish/v1/").as_deref(), Some("/redfish/v1/"));
        assert_eq!(to(&plain, "http://BMC/a").as_deref(), Some("/a"));
        assert_eq!(to(&plain, "http://bmc:80").as_deref(), Some("/"));
        assert_eq!(to(&tls, "https://bmc:8443/a?b").as_deref(), Some("/a?b"));
        for other in [
            "//evil/a",
            "http://evil/a",
            "https://bmc/a",
            "http://bmc:8443/a",
            "a",
            "",
            "https://bmc.evil:8443/",
        ] {
            assert_eq!(to(&tls, other), None, "{other}");
        }
    }

    #[tokio::test]
    async fn a_body_that_is_too_long_by_its_head_is_not_read() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let device = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            // Its body never follows.
            let head = b"HTTP/1.1 200 OK\r\nContent-Length: 1048577\r\n\r\n";
            stream.write_all(head).await.unwrap();
            stream
        });
        let mut client = Client::new(&Arc::new(local(port)));
        let call = Call::get("/", ("*/*", 1 << 20));
        let received = client.follow(&TlsVerification::SystemRoots, call).await;
        let failure = received.and_then(Received::into_body).err().unwrap();
        assert_eq!(failure.what, "the body has more than 1 MiB");
        device.await.unwrap();
    }

    fn local(port: u16) -> Target {
        Target {
            protocol: Protocol::Json,
            is_tls: false,
            host: "127.0.0.1".into(),
            port,
            user: None,
            password: None,
            session: None,
        }
    }

    #[tokio::test]
    async fn endless_interim_responses_end_the_request() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let many = "HTTP/1.1 100 Continue\r\n\r\n".repeat(1000);
            while stream.write_all(many.as_bytes()).await.is_ok() {}
        });
        let mut client = Client::new(&Arc::new(local(port)));
        let call = Call::get("/", ("*/*", 1 << 20));
        let received = client.follow(&TlsVerification::SystemRoots, call).await;
        let failure = received.err().unwrap();
        assert!(failure.what.contains("too much before its response"), "{failure}");
    }
}
