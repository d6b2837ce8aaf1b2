//! GET over HTTP/1.1 with limits, and TLS as the description says.

use super::reading::Failure;
use super::tls;
use crate::descriptions::{Target, TlsVerification};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use flate2::read::GzDecoder;
use http_body_util::{BodyExt as _, Empty, LengthLimitError, Limited};
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, LOCATION};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use std::error::Error;
use std::io::Read as _;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

/// Bytes of a body, and of what it unpacks to.
const BODY_BYTES_MAX: usize = 64 << 20;
/// Redirects of a request.
const REDIRECTS_MAX: usize = 3;

/// A body with its type.
#[derive(Debug)]
pub(super) struct Body {
    pub(super) content_type: String,
    pub(super) bytes: Vec<u8>,
}

/// Fetches a path of a target. Redirects are followed to the same host only.
pub(super) async fn get(
    target: &Target,
    verification: &TlsVerification,
    path: &str,
    accept: &str,
) -> Result<Body, Failure> {
    let mut path = path.to_owned();
    for _ in 0..=REDIRECTS_MAX {
        let response = match target.is_tls {
            true => call(connect_tls(target, verification).await?, target, &path, accept).await?,
            false => call(connect(target).await?, target, &path, accept).await?,
        };
        match response {
            Answer::Body(body) => return Ok(body),
            Answer::Redirect(location) => path = same_host(target, &location)?,
        }
    }
    Err(Failure::broken(format!("more than {REDIRECTS_MAX} redirects")))
}

enum Answer {
    Body(Body),
    Redirect(String),
}

async fn connect(target: &Target) -> Result<TcpStream, Failure> {
    let stream = TcpStream::connect((&*target.host, target.port)).await;
    stream.map_err(|error| Failure::broken(format!("cannot connect: {error}")))
}

async fn connect_tls(
    target: &Target,
    verification: &TlsVerification,
) -> Result<impl AsyncRead + AsyncWrite + Unpin + Send + 'static, Failure> {
    let client = tls::client(verification)?;
    let name = ServerName::try_from(target.host.clone());
    let name = name.map_err(|_| Failure::denied("the host is no name of a certificate"))?;
    let stream = connect(target).await?;
    let stream = TlsConnector::from(Arc::clone(&client)).connect(name, stream).await;
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

async fn call(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    target: &Target,
    path: &str,
    accept: &str,
) -> Result<Answer, Failure> {
    let broken = |error: hyper::Error| Failure::broken(chain(&error));
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
    let request = request.body(Empty::<Bytes>::new());
    let request = request.map_err(|_| Failure::broken("the path is not valid in HTTP"))?;
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(broken)?;
    // Aborted when this call ends, in any case.
    let mut task = JoinSet::new();
    task.spawn(connection);
    let response = sender.send_request(request).await.map_err(broken)?;
    answer(response).await
}

async fn answer(response: Response<hyper::body::Incoming>) -> Result<Answer, Failure> {
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
    let body = Limited::new(response.into_body(), BODY_BYTES_MAX).collect().await;
    let body = body.map_err(|error| match error.downcast_ref::<LengthLimitError>() {
        Some(_) => too_long(),
        None => Failure::broken(chain(&*error)),
    })?;
    let bytes = body.to_bytes();
    let bytes = if is_packed { unpacked(&bytes)? } else { bytes.into() };
    Ok(Answer::Body(Body { content_type, bytes }))
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn unpacked(bytes: &[u8]) -> Result<Vec<u8>, Failure> {
    let mut unpacked = Vec::new();
    let most = u64::try_from(BODY_BYTES_MAX).unwrap_or(u64::MAX);
    let read = GzDecoder::new(bytes).take(most + 1).read_to_end(&mut unpacked);
    read.map_err(|error| Failure::broken(format!("the body is no gzip: {error}")))?;
    if unpacked.len() > BODY_BYTES_MAX { Err(too_long()) } else { Ok(unpacked) }
}

fn too_long() -> Failure {
    Failure::broken(format!("the body has more than {} MiB", BODY_BYTES_MAX >> 20))
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
}
