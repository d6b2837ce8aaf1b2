//! Requests to servers of other systems.

use super::Request;
use crate::client::http_client::agent;
use crate::client::plain::plain;
use crate::client::unreachable::unreachable;
use anyhow::{Context as _, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use config::ServerUrl;
use serde_json::Value;
use std::io::Read;
use std::time::Duration;

/// Largest answer that is read as a whole. Its parsed form may need eight times as much memory.
const ANSWER_BYTES_MAX: u64 = 64 << 20;
/// Longest time of a request with its answer.
const TIME_MAX: Duration = Duration::from_secs(300);
/// Most characters of a server's error that are shown.
const ERROR_CHARS_MAX: usize = 200;

/// A server of another system.
pub(super) struct Remote {
    agent: ureq::Agent,
    base: String,
    authorization: Option<String>,
    auth_option: &'static str,
}

impl Remote {
    /// Reads the file with user and password, if one is named.
    pub(super) fn new(url: &ServerUrl, request: &Request<'_>) -> anyhow::Result<Self> {
        let authorization = match request.auth {
            None => None,
            Some(file) => {
                let text = config::read_secret_file(file)?;
                let secret = text.lines().next().unwrap_or_default().trim_end();
                ensure!(
                    secret.contains(':'),
                    "{}: its first line is not `user:password`",
                    file.display()
                );
                Some(format!("Basic {}", STANDARD.encode(secret)))
            }
        };
        let agent = agent(url, request.settings)?;
        let (base, auth_option) = (url.as_str().to_owned(), request.auth_option);
        Ok(Self { agent, base, authorization, auth_option })
    }

    /// A GET request; the answer is streamed.
    pub(super) fn get(&self, path: &str) -> anyhow::Result<impl Read> {
        let request = self.agent.get(format!("{}{path}", self.base));
        let request = request.config().timeout_global(Some(TIME_MAX)).build();
        let request = request.header("Accept", "application/json");
        let request = match &self.authorization {
            Some(value) => request.header("Authorization", value),
            None => request,
        };
        self.successful(request.call())
    }

    /// A GET request for a document.
    pub(super) fn document(&self, path: &str) -> anyhow::Result<Value> {
        let body = self.get(path)?;
        self.parsed(body)
    }

    /// A POST request of a document, for a document.
    pub(super) fn post(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        let request = self.agent.post(format!("{}{path}", self.base));
        let request = request.config().timeout_global(Some(TIME_MAX)).build();
        let request = request.header("Accept", "application/json");
        let request = request.header("Content-Type", "application/json");
        let request = match &self.authorization {
            Some(value) => request.header("Authorization", value),
            None => request,
        };
        let body = self.successful(request.send(&serde_json::to_vec(body)?[..]))?;
        self.parsed(body)
    }

    fn parsed(&self, body: impl Read) -> anyhow::Result<Value> {
        let mut text = Vec::new();
        body.take(ANSWER_BYTES_MAX + 1)
            .read_to_end(&mut text)
            .with_context(|| format!("{}: the answer is incomplete", self.base))?;
        ensure!(
            text.len() as u64 <= ANSWER_BYTES_MAX,
            "{}: an answer has more than {} MiB; select with --device, --metric or --job",
            self.base,
            ANSWER_BYTES_MAX >> 20
        );
        serde_json::from_slice(&text)
            .with_context(|| format!("{}: the answer is no JSON", self.base))
    }

    fn successful(
        &self,
        answer: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> anyhow::Result<impl Read + use<>> {
        let mut answer =
            answer.map_err(|error| anyhow::anyhow!(unreachable(&self.base, &error)))?;
        let status = answer.status().as_u16();
        if (200..300).contains(&status) {
            return Ok(answer.into_body().into_with_config().limit(u64::MAX).reader());
        }
        let text = answer.body_mut().read_to_string().unwrap_or_default();
        let text: String = plain(text.trim()).chars().take(ERROR_CHARS_MAX).collect();
        let text = if text.starts_with('<') { "a page of HTML".to_owned() } else { text };
        let hint = match status {
            401 | 403 => format!("; check {}", self.auth_option),
            404 => "; check the kind of server before `+http` and the URL".to_owned(),
            _ => String::new(),
        };
        bail!("{} responds {status}: {text}{hint}", self.base)
    }
}
