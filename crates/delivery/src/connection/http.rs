//! HTTP client: sends frames to a server and reads its acknowledgements.

use crate::connection::loopback::connector;
use crate::connection::resolve::Addresses;
use config::{ServerSettings, ServerUrl, Token};
use model::setting::AgentStatus;
use rustls::crypto::ring;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use ureq::http::{HeaderMap, StatusCode};
use ureq::tls::{
    Certificate, ClientCert, PemItem, RootCerts, TlsConfig, TlsConfigBuilder, parse_pem,
};
use ureq::typestate::WithBody;
use ureq::{RequestBuilder, Timeout};
use wire::{Answer, STATUS_HEADER};

/// Maximum size of a response body.
const ANSWER_BYTES_MAX: u64 = 4 << 20;
/// Maximum length of the reason kept from an invalid response.
const REASON_BYTES_MAX: u64 = 300;
/// Buffer size of a connection. It is small because frames are sent from the sender's memory.
const BUFFER_BYTES: usize = 16 << 10;

/// Client of one server. It reconnects as needed.
#[derive(Debug)]
pub struct Http {
    agent: ureq::Agent,
    addresses: Addresses,
    /// URL of the batches.
    url: String,
    /// URL of the server.
    base: String,
    authorization: Option<Authorization>,
    user_agent: String,
    /// Time limit of a request.
    time_max: Option<Duration>,
}

/// Value of the `Authorization` header. Its `Debug` output hides it.
struct Authorization(String);

impl std::fmt::Debug for Authorization {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Authorization(...)")
    }
}

/// Reason why frames were not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The server is unreachable, or its response is invalid.
    Unreached(String),
    /// The server did not answer in time. It may have stored some or all of the frames.
    TimedOut(String),
    /// The server rejects the frames temporarily.
    Later {
        /// HTTP status of the response.
        status: u16,
        /// Reason in the response.
        reason: String,
        /// Delay that the server requests, if any.
        after: Option<Duration>,
    },
    /// The server rejects the frames permanently.
    Never {
        /// HTTP status of the response.
        status: u16,
        /// Reason in the response.
        reason: String,
    },
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unreached(why) | Self::TimedOut(why) => f.write_str(why),
            Self::Later { status, reason, .. } | Self::Never { status, reason } => {
                write!(f, "the server responds {status}: {reason}")
            }
        }
    }
}

impl Http {
    /// Creates a client of a server, without sending a request. The client names itself as `program`.
    ///
    /// # Errors
    /// A certificate, key or token cannot be read. The text names the file and the reason.
    pub fn new(url: &ServerUrl, settings: &ServerSettings, program: &str) -> Result<Self, String> {
        let token = settings.token_file.as_deref().map(Token::read).transpose();
        let token = token.map_err(|e| e.to_string())?;
        let mut builder = ureq::Agent::config_builder()
            .timeout_connect(Some(settings.connect_time_max))
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .max_idle_connections(1)
            .max_idle_connections_per_host(1)
            .input_buffer_size(BUFFER_BYTES)
            .output_buffer_size(BUFFER_BYTES);
        if !url.is_plain() {
            let ServerSettings { ca, cert, key, .. } = settings;
            let tls = client_tls(ca.as_deref(), cert.as_deref(), key.as_deref())?;
            builder = builder.tls_config(tls);
        }
        let addresses = Addresses::default();
        let connector = connector(url.host(), &settings.server_uids);
        let agent = ureq::Agent::with_parts(builder.build(), connector, addresses.clone());
        let program = format!("{program}/{}", env!("CARGO_PKG_VERSION"));
        let time_max = Some(settings.answer_time_max);
        Ok(Self::with(agent, addresses, url.as_str(), token.as_ref(), &program, time_max))
    }

    /// Wraps an existing HTTP client of the command, to send batches with it.
    pub fn over(
        agent: ureq::Agent,
        url: &str,
        token: Option<&Token>,
        time_max: Option<Duration>,
    ) -> Self {
        let program = concat!("jobmeter/", env!("CARGO_PKG_VERSION"));
        Self::with(agent, Addresses::default(), url, token, program, time_max)
    }

    fn with(
        agent: ureq::Agent,
        addresses: Addresses,
        url: &str,
        token: Option<&Token>,
        program: &str,
        time_max: Option<Duration>,
    ) -> Self {
        Self {
            agent,
            addresses,
            url: format!("{url}/v1/batches"),
            base: url.to_owned(),
            authorization: token.map(|token| Authorization(format!("Bearer {}", token.secret()))),
            user_agent: program.to_owned(),
            time_max,
        }
    }

    fn request(&self, url: &str, kind: &str) -> RequestBuilder<WithBody> {
        let request = self.agent.post(url).config().timeout_global(self.time_max).build();
        let request = request.header("Content-Type", kind).header("User-Agent", &self.user_agent);
        match &self.authorization {
            Some(Authorization(text)) => request.header("Authorization", text),
            None => request,
        }
    }

    /// URL that the client sends to.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// A failure without a response.
    fn unreached(url: &str, error: &ureq::Error) -> Failure {
        let why = match error {
            // Without the name of its kind in the HTTP library.
            ureq::Error::Io(error) => error.to_string(),
            error => error.to_string(),
        };
        let why = format!("{url}: {why}");
        match error {
            ureq::Error::Timeout(Timeout::Connect | Timeout::Resolve) => Failure::Unreached(why),
            ureq::Error::Timeout(_) => Failure::TimedOut(why),
            _ => Failure::Unreached(why),
        }
    }

    /// Checks whether the server would accept batches, without sending any. The server first authenticates the
    /// client, then checks the content type. It rejects the unknown type of this request and counts nothing.
    ///
    /// # Errors
    /// The server is unreachable, or does not accept batches from this client.
    pub(crate) fn knock(&self) -> Result<(), Failure> {
        let request = self.request(&self.url, "application/x-jobmeter-knock");
        let mut response = request.send(&[][..]).map_err(|e| Self::unreached(&self.url, &e))?;
        let (status, after) = (response.status(), retry_after(response.headers()));
        if status == StatusCode::UNSUPPORTED_MEDIA_TYPE {
            return Ok(());
        }
        let mut body = Vec::new();
        let mut reader = response.body_mut().as_reader().take(REASON_BYTES_MAX);
        reader.read_to_end(&mut body).map_err(|e| Self::unreached(&self.url, &e.into()))?;
        if status.is_success() {
            let what = format!("{}: it is no server of jobmeter", self.url);
            return Err(Failure::Unreached(what));
        }
        Err(rejection(status, &body, after))
    }

    /// Sends frames with the agent's status and waits for the response.
    ///
    /// # Errors
    /// The server did not accept the frames.
    pub fn post(&self, frames: &[u8], status: &AgentStatus) -> Result<Answer, Failure> {
        let request = self
            .request(&self.url, "application/x-jobmeter-batches")
            .header(STATUS_HEADER, wire::encode_status(status));
        let body = self.exchange(&self.url, request, frames, ANSWER_BYTES_MAX)?;
        Answer::decode(&body)
            .map_err(|e| Failure::Unreached(format!("{}: invalid response: {e}", self.url)))
    }

    /// Sends a JSON text to a path of the server, and returns the response's body: at most `bytes_max`.
    ///
    /// # Errors
    /// The server is unreachable, or does not accept the request.
    pub fn post_json(&self, path: &str, json: &str, bytes_max: u64) -> Result<Vec<u8>, Failure> {
        let url = format!("{}{path}", self.base);
        let request = self.request(&url, "application/json");
        self.exchange(&url, request, json.as_bytes(), bytes_max)
    }

    fn exchange(
        &self,
        url: &str,
        request: RequestBuilder<WithBody>,
        body: &[u8],
        bytes_max: u64,
    ) -> Result<Vec<u8>, Failure> {
        let mut response = request.send(body).map_err(|e| {
            self.addresses.doubt();
            Self::unreached(url, &e)
        })?;
        let (code, after) = (response.status(), retry_after(response.headers()));
        let most = if code.is_success() { bytes_max } else { REASON_BYTES_MAX };
        let mut body = Vec::new();
        let read = response.body_mut().as_reader().take(most).read_to_end(&mut body);
        if !code.is_success() {
            return Err(rejection(code, &body, after));
        }
        read.map_err(|e| Failure::Unreached(format!("{url}: cannot read the response: {e}")))?;
        Ok(body)
    }
}

/// Maps an HTTP status other than success to a failure.
fn rejection(status: StatusCode, body: &[u8], after: Option<Duration>) -> Failure {
    let body = String::from_utf8_lossy(body);
    let reason = message(&body).unwrap_or_else(|| body.trim().to_owned());
    let reason = if reason.is_empty() {
        status.canonical_reason().unwrap_or("no reason").to_owned()
    } else {
        reason
    };
    let status = status.as_u16();
    match status {
        400 | 413 | 415 | 422 => Failure::Never { status, reason },
        _ => Failure::Later { status, reason, after },
    }
}

/// The message of an error object of the server.
fn message(body: &str) -> Option<String> {
    let (_, rest) = body.strip_prefix('{')?.split_once("\"message\":\"")?;
    let mut message = String::new();
    let mut letters = rest.chars();
    loop {
        match letters.next()? {
            '"' => return Some(message),
            '\\' => match letters.next()? {
                quoted @ ('"' | '\\' | '/') => message.push(quoted),
                // A control character or a code.
                _ => message.push(' '),
            },
            letter => message.push(letter),
        }
    }
}

/// The delay that a response requests.
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get("Retry-After")?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// Reason why a TLS connection cannot be set up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TlsError(String);

/// Creates the TLS settings: CA certificates from `ca` or the system, and the client certificate `cert` with `key`.
///
/// # Errors
/// A file cannot be read or has invalid content. The text names the file and the reason.
pub fn tls(
    ca: Option<&Path>,
    cert: Option<&Path>,
    key: Option<&Path>,
) -> Result<TlsConfig, TlsError> {
    client_tls(ca, cert, key).map_err(TlsError)
}

/// The same without verification of the server's certificate: whoever answers is trusted.
///
/// # Errors
/// As those of [`tls`].
pub fn unverified_tls(cert: Option<&Path>, key: Option<&Path>) -> Result<TlsConfig, TlsError> {
    let client = client_certificate(cert, key).map_err(TlsError)?;
    Ok(tls_builder(client).disable_verification(true).build())
}

fn client_tls(
    ca: Option<&Path>,
    cert: Option<&Path>,
    key: Option<&Path>,
) -> Result<TlsConfig, String> {
    let roots = certificates(&config::paths::authorities(ca)?)?;
    let builder = tls_builder(client_certificate(cert, key)?);
    Ok(builder.root_certs(RootCerts::new_with_certs(&roots)).build())
}

fn tls_builder(client: Option<ClientCert>) -> TlsConfigBuilder {
    TlsConfig::builder()
        .client_cert(client)
        .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()))
}

fn items(path: &Path) -> Result<Vec<PemItem<'static>>, String> {
    let pem = config::read_small(path, config::CERTIFICATES_BYTES_MAX);
    let pem = pem.map_err(|e| format!("{}: {e}", path.display()))?;
    let items = parse_pem(&pem).collect::<Result<Vec<_>, _>>();
    items.map_err(|e| format!("{}: {e}", path.display()))
}

fn certificates(path: &Path) -> Result<Vec<Certificate<'static>>, String> {
    let certificates = items(path)?.into_iter().filter_map(|item| match item {
        PemItem::Certificate(certificate) => Some(certificate),
        _ => None,
    });
    let certificates: Vec<_> = certificates.collect();
    if certificates.is_empty() {
        return Err(format!("{}: contains no certificate in PEM format", path.display()));
    }
    Ok(certificates)
}

fn client_certificate(
    cert: Option<&Path>,
    key: Option<&Path>,
) -> Result<Option<ClientCert>, String> {
    let (Some(cert), Some(key)) = (cert, key) else { return Ok(None) };
    let chain = certificates(cert)?;
    let key_item = items(key)?.into_iter().find_map(|item| match item {
        PemItem::PrivateKey(key) => Some(key),
        _ => None,
    });
    let key = key_item
        .ok_or_else(|| format!("{}: contains no private key in PEM format", key.display()))?;
    Ok(Some(ClientCert::new_with_certs(&chain, key)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_the_url_of_its_request() {
        // Port 1 of the loopback interface has no service.
        let http = Http::over(ureq::Agent::new_with_defaults(), "http://127.0.0.1:1", None, None);
        let json = http.post_json("/v1/path", "{}", 1).unwrap_err().to_string();
        assert!(json.starts_with("http://127.0.0.1:1/v1/path: "), "{json}");
        let frames = http.post(b"", &AgentStatus::default()).unwrap_err().to_string();
        assert!(frames.starts_with("http://127.0.0.1:1/v1/batches: "), "{frames}");
    }

    #[test]
    fn a_rejection_has_the_message_of_the_server() {
        let object =
            r#"{"code":"28000","message":"no \"token\"; set `token_file`","details":null}"#;
        assert_eq!(message(object).as_deref(), Some("no \"token\"; set `token_file`"));
        for other in ["", "not now", r#"{"message":"cut"#, r#"{"error":1}"#] {
            assert_eq!(message(other), None, "{other}");
        }
    }
}
