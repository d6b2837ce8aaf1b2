//! Requests to Elasticsearch or OpenSearch: authentication, TLS, and limits.

use super::settings::{AuthKind, Authentication, Settings};
use crate::spec::WriteError;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Deserialize;
use std::io::{Read as _, Write as _};
use std::time::Duration;
use ureq::Body;
use ureq::http::{Method, Request, Response, StatusCode};

/// Longest answer.
const ANSWER_BYTES_MAX: u64 = 32 << 20;
/// Longest part of a reason that is shown, in characters.
const REASON_CHARS_MAX: usize = 500;
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);

/// A client of one server. It reconnects as needed.
pub(super) struct Client {
    agent: ureq::Agent,
    base: String,
    authentication: Option<Authentication>,
    /// The value of the header, once the file was read.
    authorization: Option<String>,
    gzip: bool,
}

/// The body of a request.
#[derive(Clone, Copy)]
pub(super) enum Content<'a> {
    None,
    Json(&'a str),
    /// Lines of JSON.
    Lines(&'a [u8]),
}

/// A complete answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
    after: Option<Duration>,
}

/// The error in an answer, or of an item in one.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum ErrorText {
    Described {
        #[serde(rename = "type")]
        kind: String,
        reason: Option<String>,
        caused_by: Option<CauseText>,
    },
    Plain(String),
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct CauseText {
    reason: Option<String>,
}

impl Client {
    /// Prepares a client. Sends nothing.
    ///
    /// # Errors
    /// A certificate, key or secret cannot be read, with the option.
    pub(super) fn new(settings: &Settings) -> Result<Self, (&'static str, String)> {
        let Settings { address, ca, client, timeout, .. } = settings;
        let mut builder = ureq::Agent::config_builder()
            .timeout_connect(Some(CONNECT_TIME_MAX.min(*timeout)))
            .timeout_global(Some(*timeout))
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .user_agent(concat!("jobmeter/", env!("CARGO_PKG_VERSION")));
        if !address.is_plain() {
            let (cert, key) = client.as_ref().map(|(cert, key)| (&**cert, &**key)).unzip();
            let tls = if settings.verifies {
                delivery::tls(ca.as_deref(), cert, key)
            } else {
                delivery::unverified_tls(cert, key)
            };
            builder = builder.tls_config(tls.map_err(|error| ("ca", error.to_string()))?);
        }
        let connector = delivery::connector(address.host(), &settings.server_uids);
        let resolver = ureq::unversioned::resolver::DefaultResolver::default();
        let agent = ureq::Agent::with_parts(builder.build(), connector, resolver);
        let mut new = Self {
            agent,
            base: address.as_str().to_owned(),
            authentication: settings.authentication.clone(),
            authorization: None,
            gzip: settings.gzip,
        };
        new.read_secret().map_err(|error| ("auth_file", error.why))?;
        Ok(new)
    }

    /// Sends a request and reads its answer.
    ///
    /// # Errors
    /// There is no complete answer: the server may have done what was requested.
    pub(super) fn call(
        &mut self,
        method: Method,
        path: &str,
        content: Content<'_>,
    ) -> Result<Answer, WriteError> {
        self.read_secret()?;
        let url = format!("{}{path}", self.base);
        let failed = |why: &dyn std::fmt::Display| WriteError::new(format!("{}: {why}", self.base));
        let request =
            Request::builder().method(method).uri(url).header("accept", "application/json");
        let request = match &self.authorization {
            Some(value) => request.header("authorization", value),
            None => request,
        };
        let (kind, bytes) = match content {
            Content::None => ("", &[][..]),
            Content::Json(text) => ("application/json", text.as_bytes()),
            Content::Lines(lines) => ("application/x-ndjson", lines),
        };
        let response = if kind.is_empty() {
            let request = request.body(()).map_err(|error| failed(&error))?;
            self.agent.run(request)
        } else {
            let request = request.header("content-type", kind);
            let (request, bytes) = if self.gzip {
                let packed = packed(bytes).map_err(|error| failed(&error))?;
                (request.header("content-encoding", "gzip"), packed)
            } else {
                (request, bytes.to_vec())
            };
            let request = request.body(bytes).map_err(|error| failed(&error))?;
            self.agent.run(request)
        };
        let answer = response
            .map_err(|error| failed(&error))
            .and_then(|response| read(response).map_err(|error| failed(&error)))?;
        if answer.status == StatusCode::UNAUTHORIZED {
            // The next request reads the file again.
            self.authorization = None;
        }
        Ok(answer)
    }

    fn read_secret(&mut self) -> Result<(), WriteError> {
        if let (Some(of), None) = (&self.authentication, &self.authorization) {
            self.authorization = Some(header(of)?);
        }
        Ok(())
    }
}

/// The header that authenticates.
fn header(Authentication { kind, file }: &Authentication) -> Result<String, WriteError> {
    let wrong = |what: &str| WriteError::new(format!("{}: {what}", file.display()));
    let text =
        config::read_secret_file(file).map_err(|error| WriteError::new(error.to_string()))?;
    let secret = text.lines().next().unwrap_or_default().trim_end();
    // Colons are in both forms of a user and a password, and in an API key that is not encoded.
    let has_colon = secret.contains(':');
    match kind {
        AuthKind::Basic if !has_colon => Err(wrong("its first line is not `user:password`")),
        AuthKind::Basic => Ok(format!("Basic {}", STANDARD.encode(secret))),
        _ if secret.is_empty() || !secret.bytes().all(|byte| byte.is_ascii_graphic()) => {
            Err(wrong("its first line is no key: letters, digits and signs"))
        }
        AuthKind::ApiKey if has_colon => Ok(format!("ApiKey {}", STANDARD.encode(secret))),
        AuthKind::ApiKey => Ok(format!("ApiKey {secret}")),
        AuthKind::Bearer => Ok(format!("Bearer {secret}")),
    }
}

fn packed(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes)?;
    encoder.finish()
}

fn read(mut response: Response<Body>) -> Result<Answer, String> {
    let (status, after) = (response.status().as_u16(), delivery::retry_after(response.headers()));
    let mut body = Vec::new();
    let mut reader = response.body_mut().as_reader().take(ANSWER_BYTES_MAX + 1);
    reader.read_to_end(&mut body).map_err(|error| format!("the answer is cut: {error}"))?;
    if body.len() as u64 > ANSWER_BYTES_MAX {
        return Err(format!("the answer has more than {} MiB", ANSWER_BYTES_MAX >> 20));
    }
    Ok(Answer { status, body, after })
}

impl Answer {
    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The error of an answer that is no success.
    pub(super) fn error(&self, what: &str) -> WriteError {
        #[derive(Deserialize)]
        struct Object {
            error: ErrorText,
        }
        let object: Option<Object> = serde_json::from_slice(&self.body).ok();
        let reason = object.map(|object| object.error.text());
        let reason = reason.unwrap_or_else(|| shortened(&String::from_utf8_lossy(&self.body)));
        let hint = hint(self.status, &reason);
        let separator = if reason.is_empty() { "" } else { ": " };
        let why = format!("{what}: the server responds {}{separator}{reason}{hint}", self.status);
        WriteError { why, after: self.after }
    }

    /// The document of a success.
    ///
    /// # Errors
    /// It is none, or not of this form.
    pub(super) fn parse<'a, T: Deserialize<'a>>(&'a self, what: &str) -> Result<T, WriteError> {
        if !self.is_success() {
            return Err(self.error(what));
        }
        let parsed = serde_json::from_slice(&self.body);
        parsed.map_err(|error| WriteError::new(format!("{what}: the answer is malformed: {error}")))
    }
}

impl ErrorText {
    /// The kind of the error and its reasons.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Plain(text) => shortened(text),
            Self::Described { kind, reason, caused_by } => {
                let cause = caused_by.as_ref().and_then(|cause| cause.reason.as_ref());
                let parts = [Some(kind), reason.as_ref(), cause].into_iter().flatten();
                shortened(&parts.map(String::as_str).collect::<Vec<_>>().join(": "))
            }
        }
    }

    /// Whether it is a block of the index or of the whole cluster.
    pub(super) fn is_block(&self) -> bool {
        matches!(self, Self::Described { kind, .. } if kind == "cluster_block_exception" || kind == "index_closed_exception")
    }
}

/// What to do about a status.
pub(super) fn hint(status: u16, reason: &str) -> &'static str {
    match status {
        401 => "; check `auth` and `auth_file`",
        403 if reason.contains("block") => {
            "; the index is read-only: free disk space, or remove the block"
        }
        403 => "; give the user the privileges that the guide names",
        404 => "; create the index, or permit its creation",
        _ => "",
    }
}

fn shortened(text: &str) -> String {
    text.trim().chars().take(REASON_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn secrets_are_read_from_private_files() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("secret");
        let of = |kind, text: &str, mode| {
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            header(&Authentication { kind, file: file.clone() }).map_err(|error| error.why)
        };
        assert_eq!(of(AuthKind::Basic, "user:pa:ss\n", 0o600).unwrap(), "Basic dXNlcjpwYTpzcw==");
        assert_eq!(of(AuthKind::ApiKey, "a2V5\n", 0o640).unwrap(), "ApiKey a2V5");
        assert_eq!(of(AuthKind::ApiKey, "id:key", 0o600).unwrap(), "ApiKey aWQ6a2V5");
        assert_eq!(of(AuthKind::Bearer, "t0ken", 0o600).unwrap(), "Bearer t0ken");
        assert!(of(AuthKind::Basic, "user", 0o600).unwrap_err().contains("user:password"));
        assert!(of(AuthKind::Bearer, "a b", 0o600).unwrap_err().contains("no key"));
        assert!(of(AuthKind::Bearer, "t0ken", 0o644).unwrap_err().contains("everyone can open it"));
    }

    #[test]
    fn errors_of_the_server_are_shown() {
        let answer = |status, body: &str| Answer { status, body: body.into(), after: None };
        let why = |status, body| answer(status, body).error("bulk").why;
        let body = r#"{"error":{"type":"a","reason":"b","caused_by":{"type":"c","reason":"d"}},"status":401}"#;
        assert_eq!(
            why(401, body),
            "bulk: the server responds 401: a: b: d; check `auth` and `auth_file`"
        );
        assert_eq!(
            why(400, r#"{"error":"no handler"}"#),
            "bulk: the server responds 400: no handler"
        );
        assert_eq!(
            why(404, ""),
            "bulk: the server responds 404; create the index, or permit its creation"
        );
        assert_eq!(why(502, "<html>"), "bulk: the server responds 502: <html>");
        assert_eq!(why(500, &"x".repeat(9000)).len(), 531);
        let wrong = answer(200, "[]").parse::<std::collections::BTreeMap<String, u8>>("it");
        assert!(wrong.unwrap_err().why.contains("malformed"));
    }
}
