//! GET over HTTP/1.1 on a unix socket, TCP or TLS: one connection per call.

use crate::{SchedulerError, Tls, loopback};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use std::path::PathBuf;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinSet;

/// Longest part of an error's body in a message, in characters.
const WORDS_MAX: usize = 300;

/// The HTTP interface of a scheduler.
#[derive(Clone, Debug)]
pub struct Endpoint {
    address: Address,
    /// The header `Host`.
    host: String,
    /// The prefix of every path, without a `/` at its end.
    prefix: String,
    target: String,
}

#[derive(Clone, Debug)]
enum Address {
    Unix(PathBuf),
    /// Host and port.
    Tcp(String, u16),
    /// Host and port, the name in its certificate, and the authorities.
    Tls(String, u16, ServerName<'static>, Tls),
}

/// The limits of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallLimits {
    /// Longest time of the call.
    pub(crate) time_max: Duration,
    /// Longest answer, in bytes.
    pub(crate) bytes_max: u64,
}

impl Endpoint {
    /// The interface at `unix:PATH`, `http://host[:port][/path]` or, with `tls`, `https://host[:port][/path]`.
    /// `service` names it in errors. `None` if the URL is malformed, or `https` without `tls`.
    pub fn new(service: &str, url: &str, tls: Option<Tls>) -> Option<Self> {
        let target = format!("{service} at {}", url.trim_start_matches("unix:"));
        if let Some(path) = url.strip_prefix("unix:") {
            let (host, prefix) = ("localhost".to_owned(), String::new());
            return Some(Self { address: Address::Unix(path.into()), host, prefix, target });
        }
        let (rest, port, tls) = match url.strip_prefix("https://") {
            Some(rest) => (rest, 443, Some(tls?)),
            None => (url.strip_prefix("http://")?, 80, None),
        };
        let (host, prefix) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        let host = (!host.is_empty()).then_some(host)?;
        let given = host.rsplit_once(':').and_then(|(name, port)| Some((name, port.parse().ok()?)));
        let (name, port) = given.unwrap_or((host, port));
        let name = name.trim_start_matches('[').trim_end_matches(']').to_owned();
        let address = match tls {
            None => Address::Tcp(name, port),
            Some(tls) => {
                let certified = ServerName::try_from(name.clone()).ok()?;
                Address::Tls(name, port, certified, tls)
            }
        };
        let prefix = prefix.trim_end_matches('/').to_owned();
        Some(Self { address, host: host.to_owned(), prefix, target })
    }

    /// The name in errors.
    pub(crate) fn target(&self) -> String {
        self.target.clone()
    }

    /// Fetches a path. Returns the status and the body.
    pub(crate) async fn get(
        &self,
        path: &str,
        headers: &[(&'static str, String)],
        limits: CallLimits,
    ) -> Result<(StatusCode, Bytes), SchedulerError> {
        let call = async {
            match &self.address {
                Address::Unix(socket) => {
                    let stream = UnixStream::connect(socket).await;
                    self.call(stream, path, headers, limits.bytes_max).await
                }
                Address::Tcp(host, port) => {
                    let stream = loopback::connect(host, *port).await;
                    self.call(stream, path, headers, limits.bytes_max).await
                }
                Address::Tls(host, port, name, tls) => {
                    let stream = TcpStream::connect((host.as_str(), *port)).await;
                    let stream = stream.map_err(|error| self.broken(&error))?;
                    let stream = tls.connect(name.clone(), stream).await;
                    self.call(stream, path, headers, limits.bytes_max).await
                }
            }
        };
        let silent = |_| SchedulerError::Silent { target: self.target(), time: limits.time_max };
        tokio::time::timeout(limits.time_max, call).await.map_err(silent)?
    }

    async fn call(
        &self,
        stream: std::io::Result<impl AsyncRead + AsyncWrite + Unpin + Send + 'static>,
        path: &str,
        headers: &[(&'static str, String)],
        bytes_max: u64,
    ) -> Result<(StatusCode, Bytes), SchedulerError> {
        let stream = stream.map_err(|error| self.broken(&error))?;
        let mut request = Request::get(format!("{}{path}", self.prefix))
            .header("host", &self.host)
            .header("accept", "application/json");
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let request = request.body(Empty::<Bytes>::new()).map_err(|error| self.broken(&error))?;
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|error| self.broken(&error))?;
        // Aborted when this call ends, in any case.
        let mut task = JoinSet::new();
        task.spawn(connection);
        let answer = sender.send_request(request).await.map_err(|error| self.broken(&error))?;
        let status = answer.status();
        let limit = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        let body = Limited::new(answer.into_body(), limit).collect().await;
        let body = body.map_err(|error| match error.downcast_ref::<LengthLimitError>() {
            Some(_) => self.malformed(format!("more than {bytes_max} bytes")),
            None => self.broken(&*error),
        })?;
        Ok((status, body.to_bytes()))
    }

    /// The error for an answer of unknown format.
    pub(crate) fn malformed(&self, what: String) -> SchedulerError {
        SchedulerError::Answer { target: self.target(), what }
    }

    /// The error for an answer with the status of an error.
    pub(crate) fn rejected(&self, status: StatusCode, body: &[u8]) -> SchedulerError {
        let text = String::from_utf8_lossy(body);
        let words: String = text.trim().chars().take(WORDS_MAX).collect();
        SchedulerError::Rejected { target: self.target(), what: format!("{status}: {words}") }
    }

    fn broken(&self, error: &dyn std::error::Error) -> SchedulerError {
        let what = match error.source() {
            Some(cause) => format!("{error}: {cause}"),
            None => error.to_string(),
        };
        SchedulerError::Unreachable { target: self.target(), what }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TlsError;
    use rcgen::{CertifiedKey, generate_simple_self_signed};
    use rustls::ServerConfig;
    use rustls::pki_types::PrivateKeyDer;
    use std::sync::Arc;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    const LIMITS: CallLimits = CallLimits { time_max: Duration::from_secs(20), bytes_max: 1 << 20 };

    #[test]
    fn urls_are_parsed() {
        let parts = |url: &str| match Endpoint::new("it", url, None)? {
            Endpoint { address: Address::Tcp(name, port), host, prefix, .. } => {
                Some((format!("{name}:{port}"), host, prefix))
            }
            _ => None,
        };
        let of = |address: &str, host: &str, prefix: &str| {
            Some((address.to_owned(), host.to_owned(), prefix.to_owned()))
        };
        assert_eq!(parts("http://front/oarapi/"), of("front:80", "front", "/oarapi"));
        assert_eq!(parts("http://front:6668/api"), of("front:6668", "front:6668", "/api"));
        assert_eq!(parts("http://[::1]"), of("::1:80", "[::1]", ""));
        assert_eq!((parts("https://front"), parts("http:///x")), (None, None));
        let socket = Endpoint::new("slurmrestd", "unix:/run/rest.sock", None).unwrap();
        assert_eq!(socket.target(), "slurmrestd at /run/rest.sock");
    }

    /// A TLS server with a certificate for `localhost` of its own authority. Returns its port and the certificate.
    async fn tls_server() -> (u16, String) {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let Ok(mut stream) = acceptor.accept(stream).await else { continue };
                let mut head = vec![0; 4096];
                let length = stream.read(&mut head).await.unwrap();
                let head = String::from_utf8_lossy(&head[..length]).replace("\r\n", "|");
                let answer =
                    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{head}", head.len());
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        (port, cert.pem())
    }

    #[tokio::test]
    async fn a_secret_is_sent_to_the_owner_of_a_verified_certificate_only() {
        let (port, authority) = tls_server().await;
        let secret = [("authorization", "Basic eDp5".to_owned())];
        let get = async |host: &str, authorities: &str| {
            let tls = Tls::new(authorities.as_bytes()).unwrap();
            let url = format!("https://{host}:{port}/api/");
            let endpoint = Endpoint::new("it", &url, Some(tls)).unwrap();
            endpoint.get("/jobs", &secret, LIMITS).await
        };
        let (status, head) = get("localhost", &authority).await.unwrap();
        let head = String::from_utf8(head.to_vec()).unwrap();
        assert_eq!(status, StatusCode::OK);
        assert!(head.starts_with("GET /api/jobs HTTP/1.1|") && head.contains("eDp5"), "{head}");
        // Another name, and another authority.
        let wrong = get("127.0.0.1", &authority).await.unwrap_err().to_string();
        assert!(wrong.contains("not valid for name"), "{wrong}");
        let (_, other) = tls_server().await;
        let wrong = get("localhost", &other).await.unwrap_err().to_string();
        assert!(wrong.contains("invalid peer certificate"), "{wrong}");
    }

    #[test]
    fn authorities_without_a_certificate_are_an_error() {
        assert!(matches!(Tls::new(b""), Err(TlsError::None)));
        let wrong = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(matches!(Tls::new(wrong), Err(TlsError::None)));
    }
}
