//! GET over HTTP/1.1 with limits, and TLS as the description says.

use super::bounded_stream::{Allowance, BoundedStream};
use super::reading::Failure;
use super::tls;
use crate::descriptions::{Target, TlsVerification};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use flate2::read::GzDecoder;
use http_body_util::{BodyExt as _, Empty, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, LOCATION};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::error::Error;
use std::io::Read as _;
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

/// An HTTP client of one target. It keeps one connection open between requests: a BMC needs about a second for a new one.
pub(super) struct Client {
    target: Target,
    connection: Option<Connection>,
    /// The TLS configuration of the connection, while requests succeed.
    tls: Option<(TlsVerification, Arc<ClientConfig>)>,
}

struct Connection {
    verification: TlsVerification,
    sender: SendRequest<Empty<Bytes>>,
    allowance: Allowance,
    /// Aborted with the connection.
    _task: JoinSet<()>,
}

impl Connection {
    /// Sends a request. Until its response begins, the target may send as much as a head needs.
    async fn send(
        &mut self,
        request: Request<Empty<Bytes>>,
        bytes_max: usize,
    ) -> hyper::Result<Response<Incoming>> {
        self.allowance.set(HEAD_BYTES_MAX);
        let response = self.sender.send_request(request).await;
        // The framing of a body in small chunks needs a multiple of its bytes.
        self.allowance.set(bytes_max.saturating_mul(8));
        response
    }
}

enum Answer {
    Body(Body),
    Redirect(String),
}

impl Client {
    pub(super) fn new(target: &Target) -> Self {
        Self { target: target.clone(), connection: None, tls: None }
    }

    /// Fetches a path of the target. Redirects are followed to the same host only.
    pub(super) async fn get(
        &mut self,
        verification: &TlsVerification,
        path: &str,
        (accept, bytes_max): (&str, usize),
    ) -> Result<Body, Failure> {
        let mut path = path.to_owned();
        for _ in 0..=REDIRECTS_MAX {
            let response = self.call(verification, &path, (accept, bytes_max)).await;
            if response.is_err() {
                self.tls = None;
            }
            match response? {
                Answer::Body(body) => return Ok(body),
                Answer::Redirect(location) => path = same_host(&self.target, &location)?,
            }
        }
        Err(Failure::broken(format!("more than {REDIRECTS_MAX} redirects")))
    }

    async fn call(
        &mut self,
        verification: &TlsVerification,
        path: &str,
        (accept, bytes_max): (&str, usize),
    ) -> Result<Answer, Failure> {
        // Taken out: if time is up meanwhile, the connection ends with this future.
        let kept = self.connection.take().filter(|one| one.verification == *verification);
        if let Some(mut connection) = kept
            && let Ok(response) = connection.send(self.request(path, accept)?, bytes_max).await
        {
            return self.answer_and_keep(connection, response, bytes_max).await;
        }
        // There was none, or the target has closed it.
        let mut connection = self.connect(verification).await?;
        let response = connection.send(self.request(path, accept)?, bytes_max).await;
        let response = response.map_err(|error| Failure::broken(chain(&error)))?;
        self.answer_and_keep(connection, response, bytes_max).await
    }

    async fn answer_and_keep(
        &mut self,
        connection: Connection,
        response: Response<Incoming>,
        bytes_max: usize,
    ) -> Result<Answer, Failure> {
        let answer = answer(response, bytes_max).await?;
        if let Answer::Body(_) = answer {
            self.connection = Some(connection);
        }
        Ok(answer)
    }

    fn request(&self, path: &str, accept: &str) -> Result<Request<Empty<Bytes>>, Failure> {
        let target = &self.target;
        let (open, close) = if target.host.contains(':') { ("[", "]") } else { ("", "") };
        let mut request = Request::get(path)
            .header("host", format!("{open}{}{close}:{}", target.host, target.port))
            .header("accept", accept)
            .header("accept-encoding", "gzip")
            .header("user-agent", concat!("jobmeter-poller/", env!("CARGO_PKG_VERSION")));
        if let Some(user) = &target.user {
            let password = target.password.as_ref().map_or("", |password| password.reveal());
            let both = STANDARD.encode(format!("{}:{password}", user.reveal()));
            request = request.header("authorization", format!("Basic {both}"));
        }
        let request = request.body(Empty::new());
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
        let stream = stream.map_err(|error| Failure::broken(format!("cannot connect: {error}")))?;
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
            Some(rustls::Error::InvalidCertificate(_)) => {
                Failure::denied(format!("the certificate is not accepted: {error}"))
            }
            _ => Failure::broken(format!("cannot begin TLS: {error}")),
        }
    })
}

async fn begin(
    inner: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    allowance: &Allowance,
) -> Result<(SendRequest<Empty<Bytes>>, JoinSet<()>), Failure> {
    let stream = BoundedStream { inner, allowance: allowance.clone() };
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (sender, connection) = handshake.map_err(|error| Failure::broken(chain(&error)))?;
    let mut task = JoinSet::new();
    task.spawn(async {
        // Its requests report the error.
        connection.await.ok();
    });
    Ok((sender, task))
}

async fn answer(response: Response<Incoming>, bytes_max: usize) -> Result<Answer, Failure> {
    let status = response.status();
    match status {
        _ if status.is_success() => {}
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            return Err(Failure::denied(format!("user or password is rejected: {status}")));
        }
        _ if status.is_redirection() => {
            let location = header(response.headers(), LOCATION.as_str());
            return Ok(Answer::Redirect(location.to_owned()));
        }
        _ => return Err(Failure::broken(format!("the response is {status}"))),
    }
    let headers = response.headers();
    let content_type = header(headers, CONTENT_TYPE.as_str()).to_owned();
    let is_packed = header(headers, CONTENT_ENCODING.as_str()).eq_ignore_ascii_case("gzip");
    let body = Limited::new(response.into_body(), bytes_max).collect().await;
    let body = body.map_err(|error| match error.downcast_ref::<LengthLimitError>() {
        Some(_) => too_long(bytes_max),
        None => Failure::broken(chain(&*error)),
    })?;
    let bytes = body.to_bytes();
    let bytes = if is_packed { unpacked(&bytes, bytes_max)? } else { bytes.into() };
    Ok(Answer::Body(Body { content_type, bytes }))
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
    use crate::protocols::Protocol;
    use tokio::io::AsyncWriteExt as _;

    #[test]
    fn redirects_to_other_hosts_are_errors() {
        let target = |is_tls, port| Target {
            protocol: Protocol::Json,
            is_tls,
            host: "bmc".into(),
            port,
            user: None,
            password: None,
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
    async fn endless_interim_responses_end_the_request() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let many = "HTTP/1.1 100 Continue\r\n\r\n".repeat(1000);
            while stream.write_all(many.as_bytes()).await.is_ok() {}
        });
        let target = Target {
            protocol: Protocol::Json,
            is_tls: false,
            host: "127.0.0.1".into(),
            port,
            user: None,
            password: None,
        };
        let mut client = Client::new(&target);
        let get = client.get(&TlsVerification::SystemRoots, "/", ("*/*", 1 << 20));
        let failure = get.await.unwrap_err();
        assert!(failure.what.contains("too much before its response"), "{failure}");
    }
}
