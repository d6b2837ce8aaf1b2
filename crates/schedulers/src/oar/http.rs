//! GET over plain HTTP/1.1, one connection per call.

use crate::SchedulerError;
use bytes::Bytes;
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::Request;
use hyper_util::rt::TokioIo;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// Longest answer, in bytes.
const ANSWER_BYTES_MAX: usize = 32 << 20;

/// An HTTP server that answers `GET`.
#[derive(Clone)]
pub(crate) struct Endpoint {
    /// `host:port`.
    address: String,
    /// The prefix of every path, without a `/` at its end.
    prefix: String,
    /// The header `Authorization`, if any.
    authorization: Option<String>,
    target: String,
    call_time_max: Duration,
}

/// Hides the secret header.
impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint").field("target", &self.target).finish_non_exhaustive()
    }
}

impl Endpoint {
    /// The endpoint of a URL `http://host[:port][/path]`; `None` if it is malformed.
    pub(crate) fn new(
        url: &str,
        authorization: Option<String>,
        call_time_max: Duration,
    ) -> Option<Self> {
        let rest = url.strip_prefix("http://")?;
        let (host, prefix) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        let host = (!host.is_empty()).then_some(host)?;
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let address = if has_port { host.to_owned() } else { format!("{host}:80") };
        let prefix = prefix.trim_end_matches('/').to_owned();
        let target = format!("OAR's REST API at {url}");
        Some(Self { address, prefix, authorization, target, call_time_max })
    }

    /// Fetches a path and returns the body.
    pub(crate) async fn get(&self, path: &str) -> Result<Bytes, SchedulerError> {
        let answer = tokio::time::timeout(self.call_time_max, self.call(path)).await;
        let silent =
            |_| SchedulerError::Silent { target: self.target.clone(), time: self.call_time_max };
        answer.map_err(silent)?
    }

    async fn call(&self, path: &str) -> Result<Bytes, SchedulerError> {
        let stream = TcpStream::connect(self.address.as_str()).await;
        let stream = stream.map_err(|error| self.broken(&error))?;
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|error| self.broken(&error))?;
        // Aborted when this call ends, in any case.
        let mut task = JoinSet::new();
        task.spawn(connection);
        let mut request = Request::get(format!("{}{path}", self.prefix))
            .header("host", &self.address)
            .header("accept", "application/json");
        if let Some(value) = &self.authorization {
            request = request.header("authorization", value);
        }
        let request = request.body(Empty::<Bytes>::new()).map_err(|error| self.broken(&error))?;
        let answer = sender.send_request(request).await.map_err(|error| self.broken(&error))?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| match error.downcast_ref::<LengthLimitError>() {
            Some(_) => self.answer(format!("more than {ANSWER_BYTES_MAX} bytes")),
            None => self.broken(&*error),
        })?;
        let body = body.to_bytes();
        if status.is_success() {
            return Ok(body);
        }
        let words: String = String::from_utf8_lossy(&body).trim().chars().take(300).collect();
        let what = format!("{status}: {words}");
        Err(SchedulerError::Rejected { target: self.target.clone(), what })
    }

    pub(crate) fn answer(&self, what: String) -> SchedulerError {
        SchedulerError::Answer { target: self.target.clone(), what }
    }

    fn broken(&self, error: &dyn std::error::Error) -> SchedulerError {
        let what = match error.source() {
            Some(cause) => format!("{error}: {cause}"),
            None => error.to_string(),
        };
        SchedulerError::Unreachable { target: self.target.clone(), what }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed() {
        let endpoint = |url: &str| Endpoint::new(url, None, Duration::from_secs(1));
        let parts = |url: &str| endpoint(url).map(|it| (it.address, it.prefix));
        let of = |address: &str, prefix: &str| Some((address.to_owned(), prefix.to_owned()));
        assert_eq!(parts("http://front/oarapi/"), of("front:80", "/oarapi"));
        assert_eq!(parts("http://front:6668/oarapi"), of("front:6668", "/oarapi"));
        assert_eq!(parts("http://[::1]"), of("[::1]:80", ""));
        assert_eq!((parts("https://front"), parts("http:///x")), (None, None));
        let secret = Endpoint::new("http://h", Some("Basic eDp5".into()), Duration::from_secs(1));
        assert!(!format!("{secret:?}").contains("eDp5"));
    }
}
